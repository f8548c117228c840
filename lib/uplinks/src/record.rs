//! The record of an uplink, by which a later daemon finds the process.

use nfluid_sandbox::ProcessIdentity;
use serde::{Deserialize, Serialize};

/// The record of an uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkRecord {
    /// The specification from which it was made, as JSON.
    pub spec: String,
    /// Platform-wide number of its port.
    pub port: u32,
    /// Number of its pool.
    pub pool: u32,
    /// Slots of its port for long frames.
    #[serde(default)]
    pub long: u32,
    /// The process of the uplink.
    pub process: Option<ProcessIdentity>,
}
