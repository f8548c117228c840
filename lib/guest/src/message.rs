//! The requests and replies that are JSON.

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A network function to be built, or its new configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build<C> {
    /// Name in the deployment.
    pub name: String,
    /// Configuration.
    pub config: C,
    /// The ports, in their order.
    pub ports: Vec<PortWords>,
}

/// A port, as a network function is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortWords {
    /// Name.
    pub name: String,
    /// MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
}

/// The properties of a network function that was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Several of them can share the flows of their ports.
    pub divides: bool,
    /// Versions of the state that it writes, and of the oldest that it reads. Absent: it has no state.
    pub state: Option<(u16, u16)>,
}

/// The reason why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Path of the key within the configuration.
    pub path: String,
    /// Line within a text value, 1-based.
    pub line: Option<u32>,
    /// The error, and the remedy.
    pub message: String,
}

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// A counter or gauge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Value.
    pub value: f64,
}

/// The result of importing a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Entries that were taken over.
    pub taken: u64,
    /// Entries that were left out.
    pub left_out: u64,
}
