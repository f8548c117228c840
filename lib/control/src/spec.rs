//! Specifications for an actuator: objects with all defaults filled in.

use crate::access::Access;
use crate::fast::Attach;
use crate::health::Health;
use crate::interface::Interface;
use crate::io::IoModel;
use crate::model::Frames;
use crate::model::{
    DEFAULT_FLAVOR, DEFAULT_MTU, Deployment, Instance, PortRef, Program, Restart, Steering,
    SuperFrames, Tunnel, Uplink, UplinkKind, XdpMode,
};
use crate::placement::Placement;
use crate::portion::Portion;
use crate::quantity::{Bytes, Mac, Micros};
use crate::stack::Stack;
use crate::tier::{PortKind, Tier};
use crate::wake::Wake;
use serde::Serialize;
use serde_json::Value;

/// The specification of an instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstanceSpec {
    /// The program.
    pub program: Program,
    /// The isolation tier.
    pub tier: Tier,
    /// The interfaces that the fast path is attached to; only in tier `xdp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// Listening addresses on the kernel's own stack. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<Stack>,
    /// Volumes and capabilities. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The NF's configuration; null if none was given.
    pub config: Value,
    /// The ports, by index.
    pub ports: Vec<PortSpec>,
    /// Frames that the NF takes. Serialized unless plain.
    #[serde(skip_serializing_if = "Frames::is_plain")]
    pub frames: Frames,
    /// Name of the flavor.
    pub flavor: String,
    /// Slots per ring.
    pub ring: u32,
    /// CPU and memory.
    pub resources: Resources,
    /// The engine and its object that the instance belongs to. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The restart policy.
    pub restart: Restart,
    /// The trust group whose members share the memory of frames. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Condition for waking the sleeping instance; absent: every frame wakes it. Serialized only if present, so that
    /// instances that an older daemon has recorded are adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// The health checks; absent: none. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// The party that executes the switch for the instance. Not serialized: the model changes while the instance runs,
    /// and an instance with another model is the same instance.
    #[serde(skip)]
    pub io: IoModel,
}

/// The specification of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortSpec {
    /// Name of the port within the instance.
    pub name: String,
    /// MAC address.
    pub mac: Mac,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Number of queues, each with a thread of its own.
    #[serde(skip_serializing_if = "is_one")]
    pub queues: u16,
    /// The interface that the port is. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// Slots for long frames; 0: none. Not serialized, since the neighbours decide about it: see [`crate::frames`]. An
    /// instance keeps the slots that it was made with.
    #[serde(skip)]
    pub long: u32,
}

impl PortSpec {
    /// Returns true if a port that was made from this specification can be used for another one.
    fn fits(&self, other: &PortSpec) -> bool {
        let same = PortSpec {
            long: self.long,
            ..other.clone()
        };
        *self == same
    }
}

/// Returns true if a port with `have` slots for long frames can be used where `want` are wanted: fewer slots hold fewer
/// frames, without slots there are none.
pub(crate) fn long_fit(have: u32, want: u32) -> bool {
    have > 0 || want == 0
}

/// Returns true for the default. Only other values are serialized, so that instances that an older daemon has recorded
/// are adopted.
fn is_one(queues: &u16) -> bool {
    *queues == 1
}

/// The resources that an instance can use. All of them can be changed while the instance runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// The group of tenants that the instance is in. Serialized only if present, like all keys that older daemons did
    /// not know, so that instances that an older daemon has recorded are adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Promised part of the CPUs; absent: an even part of the remainder.
    pub share: Option<Portion>,
    /// Maximum CPU share.
    pub cap: Option<Portion>,
    /// Guaranteed CPU share, independent of the load of the neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Portion>,
    /// Memory limit.
    pub memory: Bytes,
    /// CPUs that the instance can use; empty: all.
    pub cpus: Vec<u32>,
    /// The policy by which one of these CPUs is chosen.
    #[serde(skip_serializing_if = "is_free")]
    pub placement: Placement,
    /// Time slice on a core that others want as well; absent: the kernel's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Micros>,
}

fn is_free(placement: &Placement) -> bool {
    *placement == Placement::Free
}

fn is_xdp(steering: &Steering) -> bool {
    *steering == Steering::Xdp
}

/// The specification of an uplink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UplinkSpec {
    /// The interface.
    pub interface: String,
    /// Network namespace of the interface: a name in `/run/netns` or an absolute path; absent: the daemon's own.
    pub netns: Option<String>,
    /// NIC or tap.
    pub kind: UplinkKind,
    /// The tunnel that is made for it. Serialized only if present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// The requested XDP mode.
    pub mode: XdpMode,
    /// Classifier of received frames. Serialized only if it differs from the default, so that uplinks that an older
    /// daemon has recorded are adopted.
    #[serde(skip_serializing_if = "is_xdp")]
    pub steering: Steering,
    /// Address that is assigned to the interface; absent: the address is not changed.
    pub mac: Option<Mac>,
    /// Slots per ring.
    pub ring: u32,
    /// Frames that have work left to be done. Serialized only if it differs from the default.
    #[serde(rename = "super", skip_serializing_if = "is_auto")]
    pub super_frames: SuperFrames,
    /// Slots for long frames; 0: none. Not serialized, as those of ports.
    #[serde(skip)]
    pub long: u32,
}

fn is_auto(super_frames: &SuperFrames) -> bool {
    *super_frames == SuperFrames::Auto
}

impl InstanceSpec {
    /// Fills in the defaults of `instance`, a part of a valid `deployment`.
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
            access: instance.access.clone(),
            config: instance.config.clone(),
            ports: port_specs(name, instance),
            frames: instance.effective_frames(),
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
            owner: instance.owner.clone(),
            restart: instance.restart,
            trust: instance.trust.clone(),
            wake: instance.wake,
            health: instance.health.clone(),
            io: match (&instance.stack, instance.io, &deployment.io) {
                // An instance without rings needs no I/O thread.
                (Some(_), ..) => IoModel::Inline,
                (None, Some(own), _) => own,
                (None, None, of_all) => of_all.as_ref().map_or(IoModel::Inline, |io| io.model),
            },
        }
    }
}

impl InstanceSpec {
    /// Returns the number of ports for the switch: each queue is one.
    pub fn queues(&self) -> u32 {
        self.ports.iter().map(|port| u32::from(port.queues)).sum()
    }

    /// Returns true if the ports of an instance of this specification are those that `new` asks for.
    pub fn has_ports_for(&self, new: &InstanceSpec) -> bool {
        let mut pairs = self.ports.iter().zip(&new.ports);
        self.ports.len() == new.ports.len() && pairs.all(|(own, other)| own.fits(other))
    }

    /// Takes over the slots for long frames of an instance whose ports this one gets.
    pub fn keep_long(&mut self, old: &InstanceSpec) {
        for (port, old) in self.ports.iter_mut().zip(&old.ports) {
            port.long = old.long;
        }
    }

    /// Returns true if the instance is a fast path on interfaces.
    pub fn is_fast_path(&self) -> bool {
        self.port_kind() == PortKind::Interfaces
    }

    /// Returns the kind of the instance's ports.
    pub fn port_kind(&self) -> PortKind {
        if self.tier.takes(PortKind::Interfaces) {
            PortKind::Interfaces
        } else if self.stack.is_some() {
            PortKind::Sockets
        } else {
            PortKind::Rings
        }
    }

    /// Returns the position among the fast paths of an interface.
    pub fn order(&self) -> Option<u16> {
        self.attach.as_ref().and_then(|attach| attach.order)
    }

    /// Returns the resources of a fast path. A fast path has no ports, memory or CPU time of its own, whatever the
    /// deployment contains.
    fn of_fast_path(instance: &Instance) -> Self {
        InstanceSpec {
            attach: instance.attach.clone(),
            config: instance.config.clone(),
            owner: instance.owner.clone(),
            ..Self::bare(instance.program.clone(), instance.tier)
        }
    }

    /// Returns true if nfluid's own program runs in the instance: it answers requests, and takes a new configuration.
    pub fn is_hosted(&self) -> bool {
        self.program.is_hosted(self.tier)
    }

    /// Returns true if its built-in NF makes processes in the instance's sandbox: slices whose PEs are processes do.
    pub fn makes_processes(&self) -> bool {
        let is_of_slices =
            matches!(&self.program, Program::BuiltIn { nf } if nf == crate::slices::NF);
        is_of_slices && self.config["back_end"] == "processes"
    }

    /// Returns an instance without ports and resources.
    pub fn bare(program: Program, tier: Tier) -> Self {
        InstanceSpec {
            program,
            tier,
            attach: None,
            stack: None,
            access: None,
            config: Value::Null,
            ports: Vec::new(),
            frames: Frames::Plain,
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
            owner: None,
            restart: Restart::default(),
            trust: None,
            wake: None,
            health: None,
            io: IoModel::Inline,
        }
    }
}

/// Returns the ports of the instance `name`, by index.
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
            interface: spec.interface.clone(),
            long: 0,
        })
        .collect()
}

impl UplinkSpec {
    /// Returns true if an uplink of this specification is what `new` asks for.
    pub fn is_as(&self, new: &UplinkSpec) -> bool {
        let same = UplinkSpec {
            long: self.long,
            ..new.clone()
        };
        *self == same && long_fit(self.long, new.long)
    }

    /// Fills in the defaults of `uplink`.
    pub fn resolve(deployment: &Deployment, uplink: &Uplink) -> Self {
        let default_ring = deployment.flavor(DEFAULT_FLAVOR).map_or(256, |f| f.ring);
        UplinkSpec {
            interface: uplink.interface.clone(),
            netns: uplink.netns.clone(),
            kind: uplink.kind,
            tunnel: uplink.tunnel.clone(),
            mode: uplink.mode,
            steering: uplink.steering,
            mac: uplink.mac,
            ring: uplink.ring.unwrap_or(default_ring),
            super_frames: uplink.super_frames,
            long: 0,
        }
    }
}
