//! The capacity of a host: engines that schedule ask for it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An amount of a resource of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// The amount that the host has.
    pub total: u64,
    /// The amount that the deployment has promised; with `overcommit: true` it can exceed the total.
    pub used: u64,
    /// The amount that is left; 0 if the promised amount exceeds the total.
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

/// The capacity of a host, its promised part, and the tiers and network functions that the host can run.
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
    /// The labels that the operator has given to the host (`nfluidd --label`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}
