//! Counters and gauges, one snapshot at a time. Rates are differences of two snapshots.

use super::{
    CongestionStats, GroupStats, IoStats, PoolStatus, PortSignal, TemplateStatus, WayStats,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Traffic of a port since it was created, from the point of view of its owner: `rx` counts frames that the owner
/// received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Frames delivered into the port.
    pub rx_packets: u64,
    /// Bytes of these frames, without FCS.
    pub rx_bytes: u64,
    /// Frames that the owner sent and the switch accepted.
    pub tx_packets: u64,
    /// Bytes of these frames, without FCS.
    pub tx_bytes: u64,
    /// Packets on a wire that the delivered frames are: a super-frame is several.
    #[serde(default)]
    pub rx_segments: u64,
    /// Bytes of these packets, without FCS.
    #[serde(default)]
    pub rx_wire_bytes: u64,
    /// Packets on a wire that the sent frames are.
    #[serde(default)]
    pub tx_segments: u64,
    /// Bytes of these packets, without FCS.
    #[serde(default)]
    pub tx_wire_bytes: u64,
    /// Frames that were delivered with a congestion signal, an ECN mark.
    #[serde(default)]
    pub marked_packets: u64,
    /// Delivered frames that went out of the interface behind the port at once, without a process in between.
    #[serde(default)]
    pub forwarded_packets: u64,
    /// Frames sent by the owner and dropped, by reason (`ring_full`, `foreign_mac`, ...).
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
}

impl Counters {
    /// Returns the number of dropped frames of all reasons.
    pub fn dropped(&self) -> u64 {
        self.drops.values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// The figures of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// `instance.port`, or the uplink's name.
    pub name: String,
    /// Traffic since the port was created.
    pub counters: Counters,
    /// Frames that wait in the RX ring now, summed over all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_ring_used: Option<u32>,
    /// Slots of the RX ring, summed over all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_ring_size: Option<u32>,
    /// Hyperio calls made by the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// CPU time of the port's instance in nanoseconds, divided among the instance's ports in proportion to the frames
    /// they received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// The congestion signal for frames to the port; absent: frames are neither marked nor refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<PortSignal>,
}

/// The figures of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceStats {
    /// The instance.
    pub name: String,
    /// CPU time used since the instance started, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the I/O thread that makes only this instance's system calls, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_cpu_ns: Option<u64>,
    /// Time that the kernel's receive side spent at uplinks on frames for the instance, in nanoseconds: in proportion
    /// to the frames delivered, see [`UplinkStats::receive_ns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_ns: Option<u64>,
    /// The core that the placement has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Recent CPU time per packet, in nanoseconds, including the instance's own I/O thread: the kernel's CPU
    /// accounting, divided by the frames that the switch delivered less those that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
    /// CPU time per packet since the daemon began to measure, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_cost_ns: Option<f64>,
    /// The promised share, in percent of one core; in a group, the proportion there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Time for which the instance was ready to run but throttled by its cap, in nanoseconds.
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
    /// True if the instance is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// True if the instance passes its health checks; absent: the instance has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// Number of times that the instance became unhealthy, since this daemon checks it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy_total: u64,
    /// The NF's own metrics: name, with labels as in Prometheus, to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The cost of receiving at an uplink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UplinkStats {
    /// The uplink.
    pub name: String,
    /// Time that the kernel's receive side spent in nfluid's program for the uplink, in nanoseconds. The kernel charges
    /// this time to whichever process was on the core. An estimate: the cost of a frame is measured in short windows.
    pub receive_ns: u64,
    /// CPU time of a received frame there, in nanoseconds; absent: too few frames have arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_ns: Option<f64>,
}

/// The figures of a chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainStats {
    /// The chain.
    pub name: String,
    /// Frames that entered the chain at its `from` end.
    pub forward_packets: u64,
    /// Frames that entered the chain at its `to` end.
    pub return_packets: u64,
    /// Frames that wait now in the rings on the way from `from` to `to`. A ring that several chains share is counted in
    /// each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_waiting: Option<u64>,
    /// Frames that wait now in the rings on the way from `to` to `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_waiting: Option<u64>,
    /// Refused frames and the bottleneck, on the way from `from` to `to`.
    #[serde(default)]
    pub forward: WayStats,
    /// Refused frames and the bottleneck, on the way from `to` to `from`.
    #[serde(default, rename = "return")]
    pub back: WayStats,
}

/// A snapshot of the figures of one instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceSnapshot {
    /// Time of the snapshot on the daemon's monotonic clock, in nanoseconds. Only differences are meaningful.
    pub time_ns: u64,
    /// The instance, without the NF's own metrics.
    pub instance: InstanceStats,
    /// Its ports.
    pub ports: Vec<PortStats>,
}

/// A snapshot of all figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Time of the snapshot on the daemon's monotonic clock, in nanoseconds. Only differences are meaningful.
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
    /// The I/O threads; absent: none exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStats>,
    /// Every pool of shells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
    /// Every template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<TemplateStatus>,
    /// The state of congestion control; absent: the daemon does not measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionStats>,
}
