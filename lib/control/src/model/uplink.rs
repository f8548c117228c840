//! Uplinks: ports that are backed by real interfaces.

use super::{Attachment, is_default};
use crate::quantity::Mac;
use serde::Serialize;
use std::net::IpAddr;

/// A port backed by a real interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uplink {
    /// Name of the interface. A tap is created with this name.
    pub interface: String,
    /// Network namespace of the interface: a name in `/run/netns` or an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The method of receiving frames from the interface.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: UplinkKind,
    /// The interface is a tunnel, which the daemon makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// The XDP mode.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: XdpMode,
    /// The classifier of received frames that match rules of chains.
    #[serde(skip_serializing_if = "is_default")]
    pub steering: Steering,
    /// Address that is assigned to the interface; absent: the address is not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Frames that have work left to be done.
    #[serde(rename = "super", skip_serializing_if = "is_default")]
    pub super_frames: SuperFrames,
    /// Slots per ring; absent: those of the default flavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// Attaches the uplink to a switch.
    #[serde(flatten)]
    pub attachment: Option<Attachment>,
    /// Whose it is, as for an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A tunnel to another host (VXLAN, RFC 7348).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tunnel {
    /// The host at its other end.
    pub remote: IpAddr,
    /// The address of this host; absent: the kernel's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// The number by which both ends know it.
    pub vni: u32,
    /// The UDP port at both ends.
    #[serde(skip_serializing_if = "is_vxlan")]
    pub port: u16,
    /// The longest IP packet in bytes; absent: what the way to the other host leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// The UDP port of VXLAN (RFC 7348).
pub const VXLAN_PORT: u16 = 4789;

fn is_vxlan(port: &u16) -> bool {
    *port == VXLAN_PORT
}

/// Frames with work left to be done: partial checksums, and segments in one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SuperFrames {
    /// Where all take them that they can reach.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// The kind of interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkKind {
    /// An existing NIC or veth: XDP receives, AF_XDP transmits.
    #[default]
    Xdp,
    /// A tap that the daemon creates, for programs that use the kernel's stack.
    Tap,
}

/// The XDP mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// Native if the driver supports it, else generic. The daemon reports the mode and the reason.
    #[default]
    Auto,
    /// In the driver; a driver without XDP is an error.
    Native,
    /// In the kernel's stack.
    Generic,
    /// Ingress of tc instead of XDP; only for fast paths.
    Tc,
}

/// The classifier of frames that an uplink receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// The uplink's XDP program.
    #[default]
    Xdp,
    /// The NIC, for all rules; rules that it cannot represent are an error.
    Nic,
    /// The NIC for the rules that it can represent, and the XDP program for the others.
    Hybrid,
}
