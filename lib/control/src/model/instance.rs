//! Instances.

use super::Frames;
use super::{DEFAULT_FLAVOR, DEFAULT_PORTS, Port, Program, Restart, is_default};
use crate::access::Access;
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

/// A network function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// The program.
    #[serde(flatten)]
    pub program: Program,
    /// The NF's configuration.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// The ports; the position is the port's index. Empty in tier `xdp`, and for an instance that listens on the
    /// kernel's stack.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub ports: Table<Port>,
    /// Flavor: ring size and memory, by name. Empty in tier `xdp`, where instances have neither.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flavor: String,
    /// The engine and its object that the instance belongs to, in the engine's own words; absent: the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The group of tenants that the instance is in; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Promised part of the CPUs; in a group, the proportion there. Absent: the remainder, shared evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Portion>,
    /// Maximum CPU share, also if more is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Portion>,
    /// Guaranteed CPU share, independent of the load of the neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Portion>,
    /// Memory limit, instead of the flavor's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// CPUs that the instance can use; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// The policy by which one of these CPUs is chosen; absent: the deployment's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Time slice on a core that others want as well; absent: the kernel's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Micros>,
    /// Frames that the NF takes; absent: all that a built-in NF can take outside of trust groups, else plain ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// The restart policy.
    #[serde(skip_serializing_if = "is_default")]
    pub restart: Restart,
    /// The isolation tier, which also determines the kind of the ports.
    #[serde(skip_serializing_if = "is_default")]
    pub tier: Tier,
    /// The interfaces that the fast path is attached to; only in tier `xdp`, where the key is required.
    #[serde(flatten)]
    pub attach: Option<Attach>,
    /// Listening addresses on the kernel's own stack; absent: the instance has ports.
    #[serde(flatten)]
    pub stack: Option<Stack>,
    /// Volumes and capabilities; absent: none.
    #[serde(flatten)]
    pub access: Option<Access>,
    /// The party that executes the switch for the instance; absent: the deployment's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoModel>,
    /// The trust group that the instance is in; absent: none, and its frames are in memory of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Condition for waking the sleeping instance; absent: every frame wakes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// The health checks; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Number of members among which the flows are divided, 1 ..= [`REPLICAS_MAX`](crate::members::REPLICAS_MAX);
    /// absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
}

/// An instance without a program: the ports that an NF has by default, in the default flavor.
impl Default for Instance {
    fn default() -> Self {
        let ports = DEFAULT_PORTS.map(|name| (name.to_owned(), Port::default()));
        Instance {
            program: Program::BuiltIn { nf: String::new() },
            config: Value::Null,
            ports: ports.into_iter().collect(),
            flavor: DEFAULT_FLAVOR.into(),
            owner: None,
            group: None,
            share: None,
            cap: None,
            guarantee: None,
            memory: None,
            cpus: Vec::new(),
            placement: None,
            slice: None,
            frames: None,
            restart: Restart::default(),
            tier: Tier::PROCESS,
            attach: None,
            stack: None,
            access: None,
            io: None,
            trust: None,
            wake: None,
            health: None,
            replicas: None,
        }
    }
}

impl Instance {
    /// Returns the number of ports, with every queue counted.
    pub fn queues(&self) -> usize {
        let ports = self.ports.iter();
        ports
            .map(|(_, port)| usize::from(port.queues.unwrap_or(1)))
            .sum()
    }

    /// Returns the frames that the NF takes.
    pub fn effective_frames(&self) -> Frames {
        let is_built_in = matches!(self.program, Program::BuiltIn { .. });
        match self.frames {
            Some(frames) => frames,
            None if self.tier.capabilities().own_stack => Frames::Super,
            None if is_built_in && self.trust.is_none() => self.program.frames(),
            None => Frames::Plain,
        }
    }

    /// Returns the number of the host's `cpus` that the instance can use.
    pub fn usable_cpus(&self, cpus: usize) -> usize {
        match self.cpus.len() {
            0 => cpus,
            named => named,
        }
    }
}
