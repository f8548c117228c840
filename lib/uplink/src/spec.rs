//! Specification of an uplink, and its status.

use crate::steering::Steered;
use nfluid_netdev::tunnel::{self, Tunnel};
use nfluid_netdev::{Link, Mode, NetNs, NetdevError, Netlink, Place, ReceivePath};
use nfluid_ring::Level;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The kind of socket by which frames go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transmit {
    /// The fastest that the interface takes.
    #[default]
    Auto,
    /// AF_XDP, but never zero-copy: for drivers whose zero-copy mode is broken.
    Copy,
    /// AF_PACKET.
    Packet,
}

/// The interface under the uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An interface that exists: NIC, veth, bridge, ...
    #[default]
    Xdp,
    /// A tap, made for it (or taken over if it exists), for programs that use the kernel's stack.
    Tap,
}

/// Levels of an uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// What frames that come in may have left to be done: no more than all ports take that they can reach.
    pub enter: Level,
    /// What frames to the interface may have left to be done; at least `enter`.
    pub take: Level,
}

impl From<Level> for Levels {
    /// The level of an uplink that takes what it lets in.
    fn from(level: Level) -> Self {
        Levels {
            enter: level,
            take: level,
        }
    }
}

/// An uplink to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkSpec {
    /// Name, for messages and the state file.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Path of its network namespace; `None`: that of the calling thread.
    pub netns: Option<PathBuf>,
    /// The kind of interface.
    pub kind: Kind,
    /// The interface is a tunnel, which is made for it; absent: it exists, or is a tap.
    #[serde(default)]
    pub tunnel: Option<Tunnel>,
    /// XDP mode.
    pub mode: Mode,
    /// Kind of socket.
    pub transmit: Transmit,
    /// Address to give to the interface; `None`: leave it.
    pub mac: Option<[u8; 6]>,
    /// Number of the uplink's port.
    pub port: u32,
    /// Number of its pool.
    pub pool: u32,
    /// Slots of its ring: 64, 128, 256, 512 or 1024. A kernel's TCP sends bursts of several hundred
    /// frames: on a busy machine, 256 slots lost a sixth of them, 1024 a thirtieth.
    pub ring_slots: u32,
    /// Slots of its ring for long frames, as in [`nfluid_switch::LongSlots`]; 0: it takes none.
    #[serde(default)]
    pub long_slots: u32,
    /// The levels may be above plain: see [`crate::Uplink::set_levels`].
    #[serde(default)]
    pub offloads: bool,
    /// The levels at first. A process that comes after one that has crashed goes on with the levels of that one.
    #[serde(default)]
    pub levels: Levels,
    /// Passes frames that no rule takes to the host's own stack, if true.
    pub pass: bool,
    /// Folder of the state file; `None`: keep no record (tests), so that a crash leaves its traces.
    pub state_dir: Option<PathBuf>,
    /// Folder on a BPF file system where the port's memory is pinned, so that a successor goes on with
    /// the frames that wait in it; `None`: the memory ends with the uplink.
    pub pins: Option<PathBuf>,
    /// The named pipe by which senders may wake the uplink's thread, beside the switch; it is made if it is not there. It is left
    /// behind: who has it rings a successor by it.
    #[serde(default)]
    pub doorbell: Option<PathBuf>,
}

impl UplinkSpec {
    /// An uplink on `interface` of the calling thread's namespace, with 1024 slots.
    pub fn new(name: &str, interface: &str, port: u32, pool: u32) -> Self {
        UplinkSpec {
            name: name.to_owned(),
            interface: interface.to_owned(),
            netns: None,
            kind: Kind::Xdp,
            tunnel: None,
            mode: Mode::Auto,
            transmit: Transmit::Auto,
            mac: None,
            port,
            pool,
            ring_slots: 1024,
            long_slots: 0,
            offloads: false,
            levels: Levels::default(),
            pass: false,
            state_dir: None,
            pins: None,
            doorbell: None,
        }
    }

    /// Returns the place of the interface.
    pub fn place(&self) -> Place {
        Place {
            interface: self.interface.clone(),
            netns: self.netns.clone(),
        }
    }

    /// Returns the interface, by a socket in its namespace, which is `netns`. A tunnel is made if it is not there.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses a tunnel.
    pub(crate) fn find_link(&self, netlink: &Netlink, netns: &NetNs) -> Result<Link, NetdevError> {
        match &self.tunnel {
            Some(tunnel) => tunnel::open(netlink, &self.interface, &self.name, tunnel),
            None => self.place().find(netlink, netns),
        }
    }

    /// Removes the tunnel that was made for the uplink, if there is one. Failures are logged.
    pub(crate) fn remove_tunnel(&self) {
        if self.tunnel.is_none() {
            return;
        }
        let UplinkSpec {
            interface, name, ..
        } = self;
        let netns = NetNs::open(self.netns.as_deref());
        let removed = netns
            .and_then(|netns| netns.within(|| tunnel::remove(&Netlink::open()?, interface, name)));
        if let Err(error) = removed {
            tracing::warn!(uplink = name, interface, %error, "the tunnel stays");
        }
    }
}

/// The path by which frames go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransmitPath {
    /// AF_XDP; the hardware reads the uplink's slots.
    XdpZeroCopy,
    /// AF_XDP; the kernel copies each frame once.
    XdpCopy,
    /// AF_PACKET, for interfaces that take no AF_XDP socket, and for frames longer than a slot.
    Packet,
    /// AF_PACKET, with what is still to be done to each frame.
    PacketOffloads,
    /// Written to the tap by the uplink's thread.
    Tap,
}

impl fmt::Display for TransmitPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransmitPath::XdpZeroCopy => "af-xdp-zero-copy",
            TransmitPath::XdpCopy => "af-xdp-copy",
            TransmitPath::Packet => "af-packet",
            TransmitPath::PacketOffloads => "af-packet-offloads",
            TransmitPath::Tap => "tap",
        })
    }
}

/// The present paths of an uplink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkPath {
    /// The path by which frames come in.
    pub receive: ReceivePath,
    /// The reason for which frames do not come in natively; empty if they do.
    pub receive_why: String,
    /// The path by which frames go out.
    pub transmit: TransmitPath,
    /// The reason against the faster paths; empty for the fastest.
    pub transmit_why: String,
    /// Index of the interface.
    pub index: u32,
    /// Largest packet of the interface in bytes.
    pub mtu: u32,
    /// Address of the interface.
    pub mac: Option<[u8; 6]>,
    /// What frames that come in, and frames that go out, may have left to be done.
    #[serde(default)]
    pub levels: Levels,
    /// The reason for which the levels are lower than they were asked for; empty if they are not.
    #[serde(default)]
    pub levels_why: String,
}

/// State and counters of an uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkStatus {
    /// The present paths; `None`: the interface is gone.
    pub path: Option<UplinkPath>,
    /// Frames that the interface has taken.
    pub sent_frames: u64,
    /// The bytes of the sent frames.
    pub sent_bytes: u64,
    /// Frames that it refused, also counted as drops of the port under `uplink`.
    pub refused_frames: u64,
    /// System calls to make it send.
    pub kicks: u64,
    /// Times that the interface vanished.
    pub vanished: u64,
    /// Times that it came back.
    pub returned: u64,
    /// The rules that the NIC classifies; absent: the NIC is not asked to classify.
    #[serde(default)]
    pub steering: Option<Steered>,
}
