//! The switch's trusted state: the Rust mirror of `bpf/switch/switch_types.h`.

use nfluid_ring::flow::BUCKETS;
use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Version of what programs of the kernel and processes of the platform share: ports' states, maps,
/// rings. Raised with every change of it: an uplink's process of another version is replaced.
pub const VERSION: u32 = 10;
/// EtherType of IPv4.
pub(crate) const ETHER_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const ETHER_IPV6: u16 = 0x86dd;
/// Most ports of a platform.
pub const PORTS_MAX: u32 = 32768;
/// Trust groups of a platform are numbered from 1 to one less.
pub const GROUPS_MAX: u32 = 1024;
/// Entries of a group's table of owners.
pub const OWNERS: usize = 65536;
/// Owner of a slot that is changing hands.
pub const OWNER_MOVING: u32 = u32::MAX;
/// Most switches of a platform.
pub const SWITCHES_MAX: u32 = 1024;
/// Most ports of a switch.
pub const MEMBERS_MAX: usize = 1024;
/// Ports per call of an I/O thread.
pub const SERVE_PORTS: usize = 63;
/// Frames per hyperio call.
pub const CALL_FRAMES: u32 = 256;

/// The port exists and takes part.
pub const PORT_UP: u32 = 1 << 0;
/// Frames must carry the port's own MAC as source.
pub const PORT_PINNED: u32 = 1 << 1;
/// Source addresses seen on the port enter the FDB.
pub const PORT_LEARN: u32 = 1 << 2;
/// The switch itself wakes the receiver, also on a link.
pub const PORT_KERNEL_DOORBELL: u32 = 1 << 3;
/// Uplink: what no rule takes goes to the host's own stack.
pub const PORT_PASS: u32 = 1 << 4;

/// Copies of the port's frames go to the daemon.
pub const PORT_CAPTURE: u32 = 1 << 5;
/// The port has slots for long frames.
pub const PORT_LONG: u32 = 1 << 6;
/// The port takes frames with a partial checksum.
pub const PORT_CHECKSUMS: u32 = 1 << 7;
/// The port takes super-frames.
pub const PORT_SUPER: u32 = 1 << 8;

/// Bit of `PortState::interface`: an end of a veth, and the frames are for the stack at the other end.
pub(crate) const INTERFACE_PEER: u32 = 1 << 31;

/// Bit of `PortState::signal`: every frame is refused.
pub const SIGNAL_REFUSE: u64 = 1 << 63;
/// A unit of the time in `PortState::signal` has 2^20 ns.
pub const SIGNAL_UNIT_SHIFT: u32 = 20;
/// The time in that word has 31 bits.
pub const SIGNAL_UNTIL_MASK: u64 = 0x7fff_ffff;
/// Longest that a word counts, in these units.
pub const SIGNAL_UNITS_MAX: u64 = 1024;

/// In `PortState::queues`: a table of that number, in the lowest bits, says which port takes a frame.
pub(crate) const QUEUES_SPREAD: u32 = 1 << 31;
/// Tables of ports behind which are several instances.
pub const SPREADS_MAX: u32 = 1024;

/// Number of counters in `PortState::drops`: those after [`DropReason::ALL`] are not used.
pub const DROPS: usize = 32;

/// Reason for a drop. Each dropped frame is counted under exactly one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The receiver had no free slot; counted on the receiver's port.
    RingFull = 0,
    /// Length outside 14..65520 bytes, or cut within a VLAN tag.
    BadLength = 1,
    /// The descriptor names a slot outside the pool, or another member's of the group, or a long frame crosses a block
    /// of the pool; counted on the port whose descriptor it is.
    BadIndex = 2,
    /// The source address is not the port's own, or is pinned to another port.
    ForeignMac = 3,
    /// The port is not connected, no rule matches, or the switch has no other port.
    NoRoute = 4,
    /// The destination is down or gone.
    PortDown = 5,
    /// The destination is behind the port that the frame came from.
    SamePort = 6,
    /// The flooded frames of one call made too many copies.
    FloodLimit = 7,
    /// An IEEE 802.1D reserved destination, which bridges do not forward.
    ReservedMac = 8,
    /// Lost the race for slots too often.
    Contended = 9,
    /// The sender changed its frame while it was being switched.
    Changed = 10,
    /// The interface refused the frame; counted on the port behind which the interface is, mostly by the daemon.
    Uplink = 11,
    /// The frame lay in the ring of an instance that ended; counted by the daemon.
    Reclaimed = 12,
    /// A congestion signal to a sender that cannot read a mark; counted on the receiver's port.
    Congestion = 13,
    /// Refused at the entry of a chain, because a ring further on is full; counted on the receiver's
    /// port.
    Refused = 14,
    /// The frame is of a client that has no instance yet: there was no room to wait, or the template's limits refused
    /// the client. Counted on the sender's port, the latter by the daemon.
    Client = 15,
    /// The frame is longer than a slot, and the receiver's port has no slots for long frames; counted on the receiver's
    /// port.
    TooLong = 16,
    /// Metadata that no frame of this length can have; counted on the sender's port.
    BadOffload = 17,
    /// The frame has a partial checksum or is a super-frame, which the receiver's port does not take; counted on the
    /// receiver's port.
    NoOffload = 18,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [DropReason; 19] = [
        DropReason::RingFull,
        DropReason::BadLength,
        DropReason::BadIndex,
        DropReason::ForeignMac,
        DropReason::NoRoute,
        DropReason::PortDown,
        DropReason::SamePort,
        DropReason::FloodLimit,
        DropReason::ReservedMac,
        DropReason::Contended,
        DropReason::Changed,
        DropReason::Uplink,
        DropReason::Reclaimed,
        DropReason::Congestion,
        DropReason::Refused,
        DropReason::Client,
        DropReason::TooLong,
        DropReason::BadOffload,
        DropReason::NoOffload,
    ];

    /// The label in metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::RingFull => "ring_full",
            DropReason::BadLength => "bad_length",
            DropReason::BadIndex => "bad_index",
            DropReason::ForeignMac => "foreign_mac",
            DropReason::NoRoute => "no_route",
            DropReason::PortDown => "port_down",
            DropReason::SamePort => "same_port",
            DropReason::FloodLimit => "flood_limit",
            DropReason::ReservedMac => "reserved_mac",
            DropReason::Contended => "contended",
            DropReason::Changed => "changed",
            DropReason::Uplink => "uplink",
            DropReason::Reclaimed => "reclaimed",
            DropReason::Congestion => "congestion",
            DropReason::Refused => "refused",
            DropReason::Client => "client",
            DropReason::TooLong => "too_long",
            DropReason::BadOffload => "bad_offload",
            DropReason::NoOffload => "no_offload",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The trusted state of a port, in a map that no instance can map.
#[repr(C)]
#[derive(Debug)]
pub struct PortState {
    pub(crate) flags: AtomicU32,
    pub(crate) mask: AtomicU32,
    pub(crate) pool: AtomicU32,
    pub(crate) rx_base: AtomicU32,
    pub(crate) way: AtomicU64,
    pub(crate) mac: AtomicU64,
    pub(crate) queues: AtomicU32,
    pub(crate) fdb_limit: AtomicU32,
    pub(crate) ageing: AtomicU32,
    pub(crate) wake_frames: AtomicU32,
    pub(crate) wake_after_us: AtomicU32,
    pub(crate) group: AtomicU32,
    pub(crate) signal: AtomicU64,
    pub(crate) busy: AtomicU32,
    pub(crate) tx_pos: AtomicU32,
    pub(crate) tx_frames: AtomicU64,
    pub(crate) tx_bytes: AtomicU64,
    pub(crate) tx_calls: AtomicU64,
    pub(crate) tx_bad_heads: AtomicU64,
    pub(crate) last_source: AtomicU64,
    pub(crate) fdb_used: AtomicU32,
    pub(crate) fdb_refused: AtomicU32,
    _copies: AtomicU32,
    _copies_since: AtomicU32,
    pub(crate) rx_reserved: AtomicU64,
    pub(crate) rx_frames: AtomicU64,
    pub(crate) rx_bytes: AtomicU64,
    pub(crate) rung: AtomicU32,
    pub(crate) timed: AtomicU32,
    pub(crate) doorbells: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) marked: AtomicU64,
    pub(crate) signal_checked: AtomicU64,
    pub(crate) drops: [AtomicU64; DROPS],
    pub(crate) long_base: AtomicU32,
    pub(crate) long_slots: AtomicU32,
    pub(crate) tx_more_segments: AtomicU64,
    pub(crate) tx_more_bytes: AtomicU64,
    pub(crate) rx_more_segments: AtomicU64,
    pub(crate) rx_more_bytes: AtomicU64,
    pub(crate) querier_seen: AtomicU32,
    pub(crate) interface: AtomicU32,
    pub(crate) netns: AtomicU32,
    _pad: AtomicU32,
    pub(crate) forwarded: AtomicU64,
}

const _: () = assert!(size_of::<PortState>() == 512);
const _: () = assert!(std::mem::offset_of!(PortState, busy) == 64);
const _: () = assert!(std::mem::offset_of!(PortState, rx_reserved) == 128);
const _: () = assert!(std::mem::offset_of!(PortState, drops) == 192);
const _: () = assert!(std::mem::offset_of!(PortState, long_base) == 448);

/// The members that take the flows of a port behind which there are several instances.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SpreadState {
    pub(crate) front: AtomicU32,
    pub(crate) turn: AtomicU32,
    pub(crate) inside: [AtomicU32; 2],
    pub(crate) port: [AtomicU16; BUCKETS],
}

const _: () = assert!(size_of::<SpreadState>() == 528);

/// The FDB address of (VLAN, MAC).
pub fn fdb_address(vlan: u16, mac: [u8; 6]) -> u64 {
    mac_word(mac) | u64::from(vlan & 0xfff) << 48
}

/// A MAC address as the switch loads it from a frame.
pub fn mac_word(mac: [u8; 6]) -> u64 {
    let mut bytes = [0u8; 8];
    bytes[..6].copy_from_slice(&mac);
    u64::from_le_bytes(bytes)
}

/// The inverse of [`mac_word`], and the VLAN id.
pub fn split_address(address: u64) -> (u16, [u8; 6]) {
    let bytes = address.to_le_bytes();
    let mut mac = [0u8; 6];
    mac.copy_from_slice(&bytes[..6]);
    ((address >> 48) as u16 & 0xfff, mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_do_not_mix_vlan_and_mac() {
        let mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
        assert_eq!(split_address(fdb_address(0xabc, mac)), (0xabc, mac));
        assert_eq!(fdb_address(0, mac), mac_word(mac));
    }

    // promise: 1.9
    #[test]
    fn every_reason_has_its_own_counter() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }
}
