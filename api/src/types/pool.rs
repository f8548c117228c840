//! Pools of prepared instances.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pool of shells. A new instance takes one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Ring size and memory of its shells.
    pub flavor: String,
    /// Ports of each.
    pub ports: u32,
    /// The instances that its shells can become: `built-in` NFs, `programs` of users, or `static-programs`.
    #[serde(rename = "for", default)]
    pub purpose: String,
    /// The group that they are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The trust group that they are members of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// The number of shells to keep now.
    pub wanted: u32,
    /// The number of shells that are ready.
    pub ready: u32,
    /// Instances that were made from a shell since the daemon started.
    pub taken: u64,
    /// Instances that a shell would have suited, while none was ready.
    pub missed: u64,
    /// The reason why there are fewer shells than wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
