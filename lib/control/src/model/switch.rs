//! Switches, and places on them.

use crate::quantity::Millis;
use serde::Serialize;

/// A place on a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Attachment {
    /// The switch.
    pub switch: String,
    /// Untagged frames belong to this VLAN, and the port sees only this one; absent: the port is a
    /// trunk, tagged and untagged frames pass unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Whether the switch learns source addresses from this port. If not, frames whose source is
    /// not the port's own address are dropped and counted. Default: uplinks yes, instances no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<bool>,
}

/// A learning bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// How long a learned address is kept after its last frame.
    pub ageing: Millis,
    /// Most addresses that are kept.
    pub addresses: u32,
}

impl Default for Switch {
    fn default() -> Self {
        Switch {
            ageing: Millis::secs(300),
            addresses: 4096,
        }
    }
}
