//! Counters and gauges, one snapshot at a time. Rates are differences of two snapshots.

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
}

/// One instance's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceStats {
    /// The instance.
    pub name: String,
    /// CPU time used since it started, in nanoseconds.
    pub cpu_ns: u64,
    /// The promised share of one core, in percent.
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
    /// The NF's own metrics: name, with labels as in Prometheus, to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
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
    /// Every chain.
    pub chains: Vec<ChainStats>,
}
