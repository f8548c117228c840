//! Pools of prepared instances.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pool of shells: creating an instance takes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Ring size and memory of its shells.
    pub flavor: String,
    /// Ports of each.
    pub ports: u32,
    /// What they can become: `built-in` NFs, `programs` of users, or `static-programs`.
    #[serde(rename = "for", default)]
    pub purpose: String,
    /// The group that they are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The trust group that they are members of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// How many there are to be now.
    pub wanted: u32,
    /// How many there are.
    pub ready: u32,
    /// Instances that were made from one, since the daemon started.
    pub taken: u64,
    /// Instances that would have suited, and found none.
    pub missed: u64,
    /// Why there are not as many as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
