//! Pools of prepared instances.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pool of shells. A new instance takes one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// Ring size and memory of the shells.
    pub flavor: String,
    /// Ports of each shell.
    pub ports: u32,
    /// The instances that the shells can become: `built-in` NFs, `programs` of users, `static-programs`, `microvms` or
    /// `images`.
    #[serde(rename = "for", default)]
    pub purpose: String,
    /// The image of the shells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The group of tenants that the shells are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The trust group that the shells are members of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// The number of shells that the pool is to keep now.
    pub wanted: u32,
    /// The number of ready shells.
    pub ready: u32,
    /// Instances created from a shell since the daemon started.
    pub taken: u64,
    /// Instances created without a shell because none was ready, although a shell of this pool could have become the
    /// instance.
    pub missed: u64,
    /// The reason why the pool has fewer shells than wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
