//! Congestion signals: frames are marked so that their senders slow down.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of congestion control on the platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CongestionStats {
    /// CPU time of the thread that measures and decides, in nanoseconds.
    pub cpu_ns: u64,
    /// Cores whose frames are marked, if an instance was active there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoreSignal>,
}

/// The congestion of a core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CoreSignal {
    /// The core.
    pub core: u32,
    /// Probability that a frame for the core's cheapest instance is marked, 0 to 1.
    pub probability: f64,
}

/// The congestion signal of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortSignal {
    /// Probability that a frame is marked, or dropped if it cannot be marked, 0 to 1.
    pub probability: f64,
    /// True if all frames are refused, since a ring further on in the chain is full.
    pub refuses: bool,
}

/// The congestion of one direction of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WayStats {
    /// Frames refused at the entry, since a ring further on was full.
    pub refused_packets: u64,
    /// The bottleneck of the direction: frames wait for this instance longest. Absent: frames wait for no instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<String>,
}
