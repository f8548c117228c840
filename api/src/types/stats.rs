//! Counters and gauges, one snapshot at a time. Rates are differences of two snapshots.

use super::{
    CongestionStats, GroupStats, IoStats, PoolStatus, PortSignal, TemplateStatus, WayStats,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Traffic of one port since it was made, seen from its owner: `rx` is what the owner received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Frames delivered into the port.
    pub rx_packets: u64,
    /// Their bytes, without FCS.
    pub rx_bytes: u64,
    /// Frames that the owner sent and the switch took over.
    pub tx_packets: u64,
    /// Their bytes, without FCS.
    pub tx_bytes: u64,
    /// Frames that were delivered with a congestion signal, an ECN mark.
    #[serde(default)]
    pub marked_packets: u64,
    /// Frames sent by the owner and dropped, by reason (`ring_full`, `foreign_mac`, ...).
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
}

impl Counters {
    /// Dropped frames, all reasons together.
    pub fn dropped(&self) -> u64 {
        self.drops.values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// One port's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// `instance.port`, or the uplink's name.
    pub name: String,
    /// Traffic since the port was made.
    pub counters: Counters,
    /// Frames that wait in the RX ring now, in those of all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_ring_used: Option<u32>,
    /// Slots of the RX ring, of those of all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_ring_size: Option<u32>,
    /// Hyperio calls made by the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// CPU time of its instance in nanoseconds, split among the instance's ports by the frames they received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// What becomes of frames for it; absent: they are delivered as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<PortSignal>,
}

/// One instance's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceStats {
    /// The instance.
    pub name: String,
    /// CPU time used since it started, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the I/O thread that makes its calls and no other's, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_cpu_ns: Option<u64>,
    /// Time that the kernel's receive side spent at uplinks on frames for it, in nanoseconds: in proportion to the frames
    /// delivered, see [`UplinkStats::receive_ns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_ns: Option<u64>,
    /// The core that its placement has put it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// CPU time that a packet takes of late, in nanoseconds, that of its own I/O thread included: by the kernel's
    /// accounting over the frames that the switch delivered less those that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
    /// The same since the daemon began to measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_cost_ns: Option<f64>,
    /// The promised share, in percent of one core; in a group its proportion there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Time it was ready to run but throttled by its cap, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// Memory in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Memory limit, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Restarts since the instance was created.
    pub restarts: u64,
    /// It stands still until it is unpaused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether it is well; absent: nobody looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// How often it was found unhealthy, since this daemon looks after it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy_total: u64,
    /// The NF's own metrics: name, with labels as in Prometheus, to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What an uplink costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UplinkStats {
    /// The uplink.
    pub name: String,
    /// Time that the kernel's receive side spent in nfluid's program for it, in nanoseconds: charged by the kernel to
    /// whoever was on the core. An estimate: what a frame costs is measured in short windows.
    pub receive_ns: u64,
    /// What a received frame costs there, in nanoseconds; absent: too few have come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_ns: Option<f64>,
}

/// One chain's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainStats {
    /// The chain.
    pub name: String,
    /// Frames sent into it at its `from` end.
    pub forward_packets: u64,
    /// Frames sent into it at its `to` end.
    pub return_packets: u64,
    /// Frames that wait now in the rings on the way from `from` to `to`. A ring that other chains
    /// share is counted in each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_waiting: Option<u64>,
    /// The same on the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_waiting: Option<u64>,
    /// What is refused at `from`, and who holds it up.
    #[serde(default)]
    pub forward: WayStats,
    /// The same on the way back.
    #[serde(default, rename = "return")]
    pub back: WayStats,
}

/// All figures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// When, on the daemon's monotonic clock, in nanoseconds. Only differences mean anything.
    pub time_ns: u64,
    /// Every port of every instance, and every uplink.
    pub ports: Vec<PortStats>,
    /// Every instance.
    pub instances: Vec<InstanceStats>,
    /// Every uplink whose cost is measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<UplinkStats>,
    /// Every group of tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStats>,
    /// Every chain.
    pub chains: Vec<ChainStats>,
    /// The I/O threads; absent: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStats>,
    /// Every pool of shells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
    /// Every template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<TemplateStatus>,
    /// What the platform does about congestion; absent: the daemon does not measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionStats>,
}
