//! Groups of tenants: instances that share the group's CPU time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A group of tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// The group that this group is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Weight among its siblings, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// CPU cap, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_percent: Option<f64>,
    /// Guaranteed CPU share, independent of its siblings, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee_percent: Option<f64>,
    /// The groups that are members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The instances that are members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<String>,
}

/// The resources that a group of tenants has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupStats {
    /// The group.
    pub name: String,
    /// CPU time of all members, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of I/O threads that make the system calls of a single instance in the group, in nanoseconds; not
    /// included in `cpu_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_cpu_ns: Option<u64>,
    /// Weight among its siblings, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Time for which a thread in the group was ready to run but held back by the group's cap, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
}
