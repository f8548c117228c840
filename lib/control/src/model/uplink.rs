//! Uplinks: ports that are backed by real interfaces.

use super::{Attachment, is_default};
use crate::quantity::Mac;
use serde::Serialize;

/// A port backed by a real interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uplink {
    /// The interface's name. A tap of that name is made.
    pub interface: String,
    /// Network namespace of the interface: a name in `/run/netns` or an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// How frames are taken off the interface.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: UplinkKind,
    /// Which XDP mode.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: XdpMode,
    /// Who tells whose frames are, where chains' rules do.
    #[serde(skip_serializing_if = "is_default")]
    pub steering: Steering,
    /// Address to give to the interface; absent: leave it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Slots per ring; absent: those of the default flavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// Attaches the uplink to a switch.
    #[serde(flatten)]
    pub attachment: Option<Attachment>,
}

/// What kind of interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkKind {
    /// An existing NIC or veth: XDP receives, AF_XDP transmits.
    #[default]
    Xdp,
    /// A tap that the daemon makes, for programs that use the kernel's stack.
    Tap,
}

/// Which XDP mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// Native where the driver has it, else generic; the daemon says which and why.
    #[default]
    Auto,
    /// In the driver, or an error.
    Native,
    /// In the kernel's stack.
    Generic,
    /// Not XDP, but the ingress of tc; of fast paths only.
    Tc,
}

/// Who classifies what an uplink receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// The uplink's XDP program.
    #[default]
    Xdp,
    /// The NIC, all of it, or an error.
    Nic,
    /// The NIC as far as it can; the XDP program the rest.
    Hybrid,
}
