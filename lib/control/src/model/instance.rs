//! Instances.

use super::{Port, Program, Restart, is_default};
use crate::fast::Attach;
use crate::health::Health;
use crate::io::IoModel;
use crate::placement::Placement;
use crate::portion::Portion;
use crate::quantity::{Bytes, Micros};
use crate::stack::Stack;
use crate::table::Table;
use crate::tier::Tier;
use crate::wake::Wake;
use serde::Serialize;
use serde_json::Value;

/// A running NF.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// What runs.
    #[serde(flatten)]
    pub program: Program,
    /// The NF's own configuration.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// Its ports; the position is the port's index. None in tier `xdp`, and none if it listens on the kernel's stack.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub ports: Table<Port>,
    /// Ring size and memory, by name. Empty in tier `xdp`, which has neither.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flavor: String,
    /// The group of tenants that it is in; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Promised part of the CPUs; in a group its proportion there. Absent: whatever is left over, shared evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Portion>,
    /// Most that it gets, also when there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Portion>,
    /// What it gets whatever those beside it do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Portion>,
    /// Memory limit, instead of the flavor's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// CPUs that it may run on; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Who decides on which of them it runs; absent: as the deployment says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// How long it runs at a time beside others that want its core; absent: as the kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Micros>,
    /// What happens when it ends.
    #[serde(skip_serializing_if = "is_default")]
    pub restart: Restart,
    /// How it is isolated, and what its ports are attached to.
    #[serde(skip_serializing_if = "is_default")]
    pub tier: Tier,
    /// The interfaces that it is on; only in tier `xdp`, and always there.
    #[serde(flatten)]
    pub attach: Option<Attach>,
    /// Where it listens on the kernel's own stack; absent: it has ports.
    #[serde(flatten)]
    pub stack: Option<Stack>,
    /// Who executes the switch for it; absent: as the deployment says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoModel>,
    /// The trust group that it is in; absent: none, its frames lie in memory of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// When it is woken if it sleeps; absent: for each frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// How it is looked after; absent: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Among how many instances its flows are divided, 1 ..= [`REPLICAS_MAX`](crate::members::REPLICAS_MAX); absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
}

impl Instance {
    /// On how many of the host's `cpus` it may run.
    pub fn usable_cpus(&self, cpus: usize) -> usize {
        match self.cpus.len() {
            0 => cpus,
            named => named,
        }
    }
}
