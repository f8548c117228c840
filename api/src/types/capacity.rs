//! What a host has, for engines that schedule.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// How much of something a host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// What there is.
    pub total: u64,
    /// What the deployment has promised; with `overcommit: true` it can be more than there is.
    pub used: u64,
    /// What is left; 0 if more is promised than there is.
    pub free: u64,
}

impl Amount {
    /// Returns an amount of which so much is promised.
    pub fn new(total: u64, used: u64) -> Self {
        Amount {
            total,
            used,
            free: total.saturating_sub(used),
        }
    }
}

/// What a host has, how much of it is promised, and what can run there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// The CPUs of instances.
    pub cpus: Vec<u32>,
    /// CPU shares in thousandths of a core: the shares and guarantees of instances and groups.
    pub share_per_mille: Amount,
    /// Memory: the limits of instances, and what prepared instances need.
    pub memory_bytes: Amount,
    /// Ports of instances (each queue is one), uplinks and prepared instances.
    pub ports: Amount,
    /// Instances, and prepared instances.
    pub instances: Amount,
    /// The tiers that this host can run.
    pub tiers: Vec<String>,
    /// The built-in network functions.
    pub nfs: Vec<String>,
    /// The architecture, as `uname -m` names it.
    pub architecture: String,
    /// What the operator says of the host (`nfluidd --label`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}
