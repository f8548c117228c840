//! Congestion signals: who is told to send less.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the platform does about congestion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CongestionStats {
    /// CPU time of the thread that measures and decides, in nanoseconds.
    pub cpu_ns: u64,
    /// Cores whose frames are marked, as far as an instance was at work there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoreSignal>,
}

/// The congestion of a core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CoreSignal {
    /// The core.
    pub core: u32,
    /// How likely a frame for its cheapest instance is marked, 0 to 1.
    pub probability: f64,
}

/// What becomes of frames for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortSignal {
    /// How likely a frame is marked, or dropped if it cannot be, 0 to 1.
    pub probability: f64,
    /// All are refused: further on in its chain a ring is full.
    pub refuses: bool,
}

/// Directions of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WayStats {
    /// Frames refused at its entry, since a ring further on was full.
    pub refused_packets: u64,
    /// The instance that holds it up: frames wait for it longest; absent: they wait for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<String>,
}
