//! What an actuator is handed: objects with every default filled in.

use crate::fast::Attach;
use crate::health::Health;
use crate::io::IoModel;
use crate::model::{
    DEFAULT_FLAVOR, DEFAULT_MTU, Deployment, Instance, PortRef, Program, Restart, Steering, Uplink,
    UplinkKind, XdpMode,
};
use crate::placement::Placement;
use crate::portion::Portion;
use crate::quantity::{Bytes, Mac, Micros};
use crate::stack::Stack;
use crate::tier::{PortKind, Tier};
use crate::wake::Wake;
use serde::Serialize;
use serde_json::Value;

/// An instance to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstanceSpec {
    /// What runs.
    pub program: Program,
    /// How it is isolated.
    pub tier: Tier,
    /// The interfaces that it is on; only in tier `xdp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// Where it listens on the kernel's own stack. Written only where it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<Stack>,
    /// Its configuration; null if none was given.
    pub config: Value,
    /// Its ports, by index.
    pub ports: Vec<PortSpec>,
    /// Name of its flavor.
    pub flavor: String,
    /// Slots per ring.
    pub ring: u32,
    /// CPU and memory.
    pub resources: Resources,
    /// What happens when it ends.
    pub restart: Restart,
    /// The trust group whose members it shares the memory of frames with. Written only where it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// When it is woken if it sleeps; absent: for each frame. Written only where it says something: an instance
    /// that an older daemon has recorded is adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// How it is looked after; absent: not at all. Written only where it says something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Who executes the switch for it. Not part of what is written: it changes while the instance
    /// runs, and one that has another is the same instance.
    #[serde(skip)]
    pub io: IoModel,
}

/// A port to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortSpec {
    /// Its name in the instance.
    pub name: String,
    /// Its address.
    pub mac: Mac,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Queues, each for a thread of its own.
    #[serde(skip_serializing_if = "is_one")]
    pub queues: u16,
}

/// Written only where it says something: an instance that an older daemon has recorded is adopted.
fn is_one(queues: &u16) -> bool {
    *queues == 1
}

/// What an instance may use; can be changed while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// The group of tenants that it is in. Written only where it says something, as all that older daemons did not know:
    /// an instance that one has recorded is adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Promised part of the CPUs; absent: an even part of what is left over.
    pub share: Option<Portion>,
    /// Most that it gets.
    pub cap: Option<Portion>,
    /// What it gets whatever those beside it do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Portion>,
    /// Memory limit.
    pub memory: Bytes,
    /// CPUs that it may run on; empty: all.
    pub cpus: Vec<u32>,
    /// Who decides on which of them it runs.
    #[serde(skip_serializing_if = "is_free")]
    pub placement: Placement,
    /// How long it runs at a time beside others that want its core; absent: as the kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Micros>,
}

fn is_free(placement: &Placement) -> bool {
    *placement == Placement::Free
}

fn is_xdp(steering: &Steering) -> bool {
    *steering == Steering::Xdp
}

/// An uplink to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UplinkSpec {
    /// The interface.
    pub interface: String,
    /// Its namespace: a name in `/run/netns` or an absolute path; absent: the daemon's own.
    pub netns: Option<String>,
    /// NIC or tap.
    pub kind: UplinkKind,
    /// XDP mode that was asked for.
    pub mode: XdpMode,
    /// Who classifies what it receives. Written only where it says something: an uplink that an older daemon has
    /// recorded is adopted.
    #[serde(skip_serializing_if = "is_xdp")]
    pub steering: Steering,
    /// Address to give to the interface; absent: leave it.
    pub mac: Option<Mac>,
    /// Slots per ring.
    pub ring: u32,
}

impl InstanceSpec {
    /// Fills in what `instance` of a valid `deployment` leaves open.
    pub fn resolve(deployment: &Deployment, name: &str, instance: &Instance) -> Self {
        if instance.tier.takes(PortKind::Interfaces) {
            return Self::of_fast_path(instance);
        }
        let flavor = deployment
            .flavor(&instance.flavor)
            .unwrap_or(crate::model::BUILT_IN_FLAVORS[0].1);
        InstanceSpec {
            program: instance.program.clone(),
            tier: instance.tier,
            attach: None,
            stack: instance.stack.clone(),
            config: instance.config.clone(),
            ports: port_specs(name, instance),
            flavor: instance.flavor.clone(),
            ring: flavor.ring,
            resources: Resources {
                group: instance.group.clone(),
                share: instance.share,
                cap: instance.cap,
                guarantee: instance.guarantee,
                memory: instance.memory.unwrap_or(flavor.memory),
                cpus: instance.cpus.clone(),
                placement: instance
                    .placement
                    .or(deployment.placement)
                    .unwrap_or_default(),
                slice: instance.slice,
            },
            restart: instance.restart,
            trust: instance.trust.clone(),
            wake: instance.wake,
            health: instance.health.clone(),
            io: match (&instance.stack, instance.io, &deployment.io) {
                // Without rings, nobody serves them.
                (Some(_), ..) => IoModel::Inline,
                (None, Some(own), _) => own,
                (None, None, of_all) => of_all.as_ref().map_or(IoModel::Inline, |io| io.model),
            },
        }
    }
}

impl InstanceSpec {
    /// Whether it is a fast path on interfaces.
    pub fn is_fast_path(&self) -> bool {
        self.port_kind() == PortKind::Interfaces
    }

    /// What its ports are.
    pub fn port_kind(&self) -> PortKind {
        if self.tier.takes(PortKind::Interfaces) {
            PortKind::Interfaces
        } else if self.stack.is_some() {
            PortKind::Sockets
        } else {
            PortKind::Rings
        }
    }

    /// Its place among the fast paths of an interface.
    pub fn order(&self) -> Option<u16> {
        self.attach.as_ref().and_then(|attach| attach.order)
    }

    /// What a process has - ports, memory, CPU time of its own - a fast path has not, whatever the deployment says.
    fn of_fast_path(instance: &Instance) -> Self {
        InstanceSpec {
            attach: instance.attach.clone(),
            config: instance.config.clone(),
            ..Self::bare(instance.program.clone(), instance.tier)
        }
    }

    /// An instance that has nothing.
    pub fn bare(program: Program, tier: Tier) -> Self {
        InstanceSpec {
            program,
            tier,
            attach: None,
            stack: None,
            config: Value::Null,
            ports: Vec::new(),
            flavor: String::new(),
            ring: 0,
            resources: Resources {
                group: None,
                share: None,
                cap: None,
                guarantee: None,
                memory: Bytes(0),
                cpus: Vec::new(),
                placement: Placement::Free,
                slice: None,
            },
            restart: Restart::default(),
            trust: None,
            wake: None,
            health: None,
            io: IoModel::Inline,
        }
    }
}

/// The ports of the instance `name`, by index.
pub fn port_specs(name: &str, instance: &Instance) -> Vec<PortSpec> {
    instance
        .ports
        .iter()
        .map(|(port, spec)| PortSpec {
            name: port.into(),
            mac: spec
                .mac
                .unwrap_or_else(|| Mac::derived(&PortRef::instance(name, port).to_string())),
            mtu: spec.mtu.unwrap_or(DEFAULT_MTU),
            queues: spec.queues.unwrap_or(1),
        })
        .collect()
}

impl UplinkSpec {
    /// Fills in what `uplink` leaves open.
    pub fn resolve(deployment: &Deployment, uplink: &Uplink) -> Self {
        let default_ring = deployment.flavor(DEFAULT_FLAVOR).map_or(256, |f| f.ring);
        UplinkSpec {
            interface: uplink.interface.clone(),
            netns: uplink.netns.clone(),
            kind: uplink.kind,
            mode: uplink.mode,
            steering: uplink.steering,
            mac: uplink.mac,
            ring: uplink.ring.unwrap_or(default_ring),
        }
    }
}
