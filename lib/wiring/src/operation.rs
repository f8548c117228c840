//! Operations on ports of the data plane.

use nfluid_control::matching::MatchRule;
use nfluid_control::model::Switch;
use nfluid_control::quantity::Mac;
use nfluid_control::template::ClientBy;
use std::ops::Range;

/// A change of a port.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// The NIC of an uplink classifies the entries that it can.
    Steer {
        /// The uplink.
        uplink: String,
        /// The entries, in order of precedence.
        entries: Vec<Entry>,
        /// The entries that the NIC had before. These stay in force if the NIC refuses.
        before: Vec<Entry>,
    },
    /// Frames of these queues go into a port, whatever their address; `None`: nowhere.
    Link {
        /// The numbers of the sender's queues.
        queues: Range<u32>,
        /// The number of the receiver's first queue.
        to: Option<u32>,
    },
    /// Frames of a port go onto a switch.
    Join(Join),
    /// Frames of a port go where the first entry says that matches.
    Classify {
        /// The number of the port.
        port: u32,
        /// The entries in order of precedence.
        entries: Vec<Entry>,
    },
    /// Sets the party that wakes the owner of a port when a frame has arrived.
    Doorbell {
        /// The number of the port.
        port: u32,
        /// The switch wakes the owner. Otherwise every sender does that itself.
        by_switch: bool,
    },
}

/// A port's place on a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The number of the port.
    pub port: u32,
    /// The number of the switch.
    pub switch: u32,
    /// The switch learns source addresses (true), or drops frames that are not from the port's own address (false).
    pub learn: bool,
    /// The number of addresses that the switch learns, and their ageing.
    pub limits: Switch,
    /// The address that leads to the port without being learned.
    pub address: Option<Mac>,
}

/// An entry of a classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// A frame takes this entry if any of the rules matches; empty: every frame.
    pub rules: Vec<MatchRule>,
    /// The number of the port; `None`: the frame is dropped and counted.
    pub to: Option<u32>,
    /// Each client has a port of its own instead.
    pub clients: Option<ClientEntry>,
}

/// The clients of a template, as a classifier knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEntry {
    /// The number of the template.
    pub template: u32,
    /// The field that distinguishes clients.
    pub by: ClientBy,
    /// The frames are for clients, not from them.
    pub back: bool,
}
