//! What the daemon writes down about an uplink, so that a later daemon finds its process.

use nfluid_sandbox::ProcessIdentity;
use serde::{Deserialize, Serialize};

/// One uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkRecord {
    /// The specification from which it was made, as JSON.
    pub spec: String,
    /// Platform-wide number of its port.
    pub port: u32,
    /// Number of its pool.
    pub pool: u32,
    /// Its process.
    pub process: Option<ProcessIdentity>,
}
