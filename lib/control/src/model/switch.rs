//! Switches, and attachments to switches.

use crate::quantity::Millis;
use serde::Serialize;

/// An attachment to a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Attachment {
    /// The switch.
    pub switch: String,
    /// Access VLAN: untagged frames belong to this VLAN, and the port receives only frames of this VLAN. Absent: the
    /// port is a trunk, and both tagged and untagged frames pass unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// True: the switch learns source addresses from this port. False: frames whose source is not the port's own
    /// address are dropped and counted. Default: true for uplinks, false for instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<bool>,
}

/// A learning bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// Ageing time: how long a learned address is kept after its last frame.
    pub ageing: Millis,
    /// Maximum number of learned addresses.
    pub addresses: u32,
    /// Whose it is, as for an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Default for Switch {
    fn default() -> Self {
        Switch {
            ageing: Millis::secs(300),
            addresses: 4096,
            owner: None,
        }
    }
}
