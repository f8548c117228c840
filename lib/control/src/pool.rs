//! Pools of shells: prepared instances. Creating an instance can use a shell of a pool.

use crate::access::Access;
use crate::host::{PROGRAM_BYTES_MIN, rings_bytes};
use crate::model::{Deployment, PortApi, Program};
use crate::placement::Placement;
use crate::quantity::Bytes;
use crate::spec::InstanceSpec;
use crate::tier::Tier;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Maximum number of shells of a pool.
pub const SIZE_MAX: u32 = 4096;
/// Default maximum of shells of a pool that follows the rate of creations.
pub const MOST_DEFAULT: u32 = 64;
/// Default number of ports of a shell.
pub const PORTS_DEFAULT: u32 = 2;

/// The kind of instance that the shells of a pool can become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A built-in NF: the program of the built-in NFs has started already.
    #[default]
    BuiltIn,
    /// A user's program with a dynamic loader, the common case: the shell has the host's library directories mounted.
    Programs,
    /// A user's program that is linked statically: the shell's file system has no files.
    StaticPrograms,
    /// A built-in NF of tier `microvm`: a virtual machine with the image of the built-in NFs has started already.
    MicroVms,
    /// The program of a container image: the shell has the files of the image, a network stack and its interfaces, and the
    /// monitor has started already.
    Images,
}

impl Purpose {
    /// All purposes, by their words in documents.
    pub const WORDS: [(&str, Purpose); 5] = [
        ("built-in", Purpose::BuiltIn),
        ("programs", Purpose::Programs),
        ("static-programs", Purpose::StaticPrograms),
        ("microvms", Purpose::MicroVms),
        ("images", Purpose::Images),
    ];

    /// Returns the word of the purpose.
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, purpose)| *purpose == self);
        found.map_or("built-in", |(word, _)| word)
    }

    /// Returns the tier of the instances.
    pub fn tier(self) -> Tier {
        match self {
            Purpose::BuiltIn | Purpose::Programs | Purpose::StaticPrograms => Tier::PROCESS,
            Purpose::MicroVms => Tier::MICROVM,
            Purpose::Images => Tier::STACK,
        }
    }

    /// Returns true if the shells become built-in NFs.
    pub fn is_built_in(self) -> bool {
        matches!(self, Purpose::BuiltIn | Purpose::MicroVms)
    }

    fn is_default(&self) -> bool {
        *self == Purpose::default()
    }
}

impl Serialize for Purpose {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// The number of shells that a pool keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A constant number.
    Fixed(u32),
    /// The number of shells taken within a second recently, up to a limit.
    Rate {
        /// The limit.
        most: u32,
    },
}

impl Size {
    /// Returns the maximum number of shells.
    pub fn most(self) -> u32 {
        match self {
            Size::Fixed(count) | Size::Rate { most: count } => count,
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Size::Fixed(count) => serializer.serialize_u32(*count),
            Size::Rate { .. } => serializer.serialize_str("rate"),
        }
    }
}

/// The image of a pool's shells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PooledImage {
    /// The image, as instances name it.
    pub image: String,
    /// What sandboxes are made with: see [`Access::of_sandbox`].
    #[serde(flatten)]
    pub access: Access,
}

/// A pool as it is written in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Flavor: ring size and memory, by name.
    pub flavor: String,
    /// Ports of each shell, with one queue each.
    pub ports: u32,
    /// The kind of instance that the shells can become.
    pub purpose: Purpose,
    /// The image of instances with one; absent for all others.
    pub image: Option<PooledImage>,
    /// The group of tenants that the shells are in.
    pub group: Option<String>,
    /// The trust group that the shells are members of.
    pub trust: Option<String>,
    /// The number of shells.
    pub size: Size,
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Keys<'a> {
            flavor: &'a str,
            ports: u32,
            #[serde(rename = "for", skip_serializing_if = "Purpose::is_default")]
            purpose: Purpose,
            #[serde(flatten)]
            image: &'a Option<PooledImage>,
            #[serde(skip_serializing_if = "Option::is_none")]
            group: &'a Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            trust: &'a Option<String>,
            size: Size,
            #[serde(skip_serializing_if = "Option::is_none")]
            most: Option<u32>,
        }
        Keys {
            flavor: &self.flavor,
            ports: self.ports,
            purpose: self.purpose,
            image: &self.image,
            group: &self.group,
            trust: &self.trust,
            size: self.size,
            most: match self.size {
                Size::Fixed(_) => None,
                Size::Rate { most } => Some(most),
            },
        }
        .serialize(serializer)
    }
}

/// A pool with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSpec {
    /// Name of the flavor.
    pub flavor: String,
    /// Slots per ring.
    pub ring: u32,
    /// Memory limit of a shell; an instance that uses the shell gets its own limit.
    pub memory: Bytes,
    /// Ports of each shell.
    pub ports: u32,
    /// Slots of each port for long frames: the platform gives shells some where their instances may need them.
    #[serde(skip_serializing_if = "is_zero")]
    pub long: u32,
    /// The kind of instance that the shells can become. Serialized only if it differs from the default, like the groups
    /// below.
    #[serde(rename = "for", skip_serializing_if = "Purpose::is_default")]
    pub purpose: Purpose,
    /// The image of instances with one; absent for all others.
    #[serde(flatten)]
    pub image: Option<PooledImage>,
    /// The group of tenants that the shells are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The trust group that the shells are members of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// The number of shells.
    pub size: Size,
}

/// The needs of a pool's shells.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Number of shells.
    pub shells: u64,
    /// Bytes for their rings and programs.
    pub bytes: u64,
    /// Number of their ports.
    pub ports: u64,
}

fn is_zero(slots: &u32) -> bool {
    *slots == 0
}

/// All pools, by name.
pub type Pools = BTreeMap<String, PoolSpec>;

/// Returns the pools of a valid deployment.
pub fn pools(deployment: &Deployment) -> Pools {
    let resolve = |(name, pool): (&str, &Pool)| {
        let flavor = deployment.flavor(&pool.flavor)?;
        let spec = PoolSpec {
            flavor: pool.flavor.clone(),
            ring: flavor.ring,
            memory: flavor.memory,
            ports: pool.ports,
            long: 0,
            purpose: pool.purpose,
            image: pool.image.clone(),
            group: pool.group.clone(),
            trust: pool.trust.clone(),
            size: pool.size,
        };
        Some((name.to_owned(), spec))
    };
    deployment.pool.iter().filter_map(resolve).collect()
}

impl PoolSpec {
    /// Returns true if the shells of `other` have the same properties; the numbers of shells can differ.
    pub fn makes_as(&self, other: &PoolSpec) -> bool {
        let sized = PoolSpec {
            size: other.size,
            ..self.clone()
        };
        sized == *other
    }

    /// Returns the most that all its shells need: their number, bytes of memory, and ports.
    pub fn needs(&self) -> Needs {
        let shells = u64::from(self.size.most());
        let each = rings_bytes(self.ring, self.ports as usize, 1) + PROGRAM_BYTES_MIN;
        Needs {
            shells,
            bytes: shells.saturating_mul(each),
            ports: shells * u64::from(self.ports),
        }
    }

    /// Returns true if a shell of this pool can become such an instance, according to the document. The document does
    /// not show how a program is linked.
    pub fn suits(&self, instance: &InstanceSpec) -> bool {
        self.misfit(instance).is_none()
    }

    /// Returns the reason why no shell of this pool can become such an instance; `None` if a shell can.
    pub fn misfit(&self, instance: &InstanceSpec) -> Option<&'static str> {
        let resources = &instance.resources;
        let is_built_in = matches!(instance.program, Program::BuiltIn { .. });
        let reasons = [
            (
                instance.stack.is_some(),
                "an instance on the kernel's stack has a network namespace of its own, and shells have none",
            ),
            (
                instance.program.api() != PortApi::Library,
                "a program on DPDK or netmap sees more than shells do",
            ),
            (
                resources.placement != Placement::Free,
                "'placement' chooses a core before the process exists, and the processes of shells exist already",
            ),
            (
                instance.ports.iter().any(|port| port.queues != 1),
                "ports of shells have one queue each",
            ),
            (
                instance.tier != self.purpose.tier(),
                "its shells are of another tier; a pool 'for: microvms' serves tier microvm, and one 'for: images' instances with an image",
            ),
            (
                instance.makes_processes(),
                "its PEs are processes, which the sandbox of shells refuses",
            ),
            (
                self.is_of_other_image(instance),
                "its shells are of another image",
            ),
            (
                self.has_other_sandbox(instance),
                "its shells have other 'volumes', 'capabilities', 'user', 'writable' or 'stop'; the pool names them as the instance does",
            ),
            (
                is_built_in && !self.purpose.is_built_in(),
                "its shells become programs, and this is a built-in NF",
            ),
            (
                !is_built_in && self.purpose.is_built_in(),
                "its shells become built-in NFs; a pool 'for: programs' (or 'static-programs') serves programs",
            ),
            (instance.ring != self.ring, "its flavor has other rings"),
            (
                self.long == 0 && instance.ports.iter().any(|port| port.long > 0),
                "its shells have no memory for long frames, and its uplinks let such frames in; 'frames: plain' does without",
            ),
            (
                instance.ports.len() != self.ports as usize,
                "its shells have another number of ports",
            ),
            (
                instance.trust != self.trust,
                "its shells are not in the same trust group; see the pool's 'trust'",
            ),
            (
                resources.group != self.group,
                "its shells are not in the same group; see the pool's 'group'",
            ),
        ];
        let found = reasons.into_iter().find(|(is_so, _)| *is_so);
        found.map(|(_, reason)| reason)
    }

    fn is_of_other_image(&self, instance: &InstanceSpec) -> bool {
        let of_instance = match &instance.program {
            Program::Image { image, .. } => Some(image),
            Program::BuiltIn { .. } | Program::Path { .. } => None,
        };
        self.image.as_ref().map(|pooled| &pooled.image) != of_instance
    }

    fn has_other_sandbox(&self, instance: &InstanceSpec) -> bool {
        let of_instance = instance.access.as_ref().map(Access::of_sandbox);
        let own = self.image.as_ref().map(|pooled| pooled.access.of_sandbox());
        own.unwrap_or_default() != of_instance.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{PoolSpec, PooledImage, Purpose, Size};
    use crate::access::Access;
    use crate::model::{DEFAULT_MTU, PortApi, Program};
    use crate::placement::Placement;
    use crate::quantity::{Bytes, Mac};
    use crate::spec::{InstanceSpec, PortSpec};
    use crate::tier::Tier;

    fn pool() -> PoolSpec {
        PoolSpec {
            flavor: "small".to_owned(),
            ring: 64,
            memory: Bytes(16 << 20),
            ports: 1,
            long: 0,
            purpose: Purpose::BuiltIn,
            image: None,
            group: None,
            trust: None,
            size: Size::Fixed(1),
        }
    }

    fn instance(program: Program) -> InstanceSpec {
        InstanceSpec {
            ring: 64,
            ports: vec![PortSpec {
                name: "in".to_owned(),
                mac: Mac([2, 0, 0, 0, 0, 1]),
                mtu: DEFAULT_MTU,
                long: 0,
                queues: 1,
                interface: None,
            }],
            ..InstanceSpec::bare(program, Tier::PROCESS)
        }
    }

    fn built_in() -> InstanceSpec {
        instance(Program::BuiltIn {
            nf: "bridge".to_owned(),
        })
    }

    fn own_program() -> InstanceSpec {
        instance(Program::Path {
            program: "/usr/bin/nf".to_owned(),
            args: Vec::new(),
            api: PortApi::Library,
        })
    }

    fn reason(pool: &PoolSpec, instance: &InstanceSpec) -> &'static str {
        pool.misfit(instance).expect("it does not suit")
    }

    // promise: 5.20
    #[test]
    fn a_pool_serves_what_it_is_for() {
        let programs = |purpose| PoolSpec { purpose, ..pool() };
        assert!(pool().suits(&built_in()));
        assert!(reason(&pool(), &own_program()).contains("for: programs"));
        for purpose in [Purpose::Programs, Purpose::StaticPrograms] {
            assert!(programs(purpose).suits(&own_program()));
            assert!(reason(&programs(purpose), &built_in()).contains("built-in"));
        }
    }

    // promise: 18.6
    #[test]
    fn shells_of_virtual_machines_become_virtual_machines() {
        let machines = PoolSpec {
            purpose: Purpose::MicroVms,
            ..pool()
        };
        let of_tier = |tier, instance| InstanceSpec { tier, ..instance };
        assert!(machines.suits(&of_tier(Tier::MICROVM, built_in())));
        assert!(reason(&machines, &built_in()).contains("tier"));
        assert!(reason(&pool(), &of_tier(Tier::MICROVM, built_in())).contains("for: microvms"));
        assert!(reason(&machines, &of_tier(Tier::MICROVM, own_program())).contains("built-in"));
    }

    // promise: 5.20
    #[test]
    fn an_image_is_served_by_a_pool_of_it_with_the_same_sandbox() {
        let capable = |name: &str| Access {
            capabilities: vec![name.to_owned()],
            ..Access::default()
        };
        let pool_of = |image: &str, access| PoolSpec {
            purpose: Purpose::Images,
            image: Some(PooledImage {
                image: image.to_owned(),
                access,
            }),
            ..pool()
        };
        let web = |access| InstanceSpec {
            tier: Tier::STACK,
            access,
            ..instance(Program::Image {
                image: "oci:/web".to_owned(),
                entrypoint: vec!["/bin/sh".to_owned()],
                args: Vec::new(),
            })
        };
        let plain = pool_of("oci:/web", Access::default());
        assert!(plain.suits(&web(None)));
        // These are not a part of the sandbox.
        let own = Access {
            environment: vec!["A=1".to_owned()],
            directory: Some("/srv".to_owned()),
            forwarding: true,
            ..Access::default()
        };
        assert!(plain.suits(&web(Some(own))));
        let other = pool_of("oci:/mail", Access::default());
        assert!(reason(&other, &web(None)).contains("another image"));
        let raw = web(Some(capable("NET_RAW")));
        assert!(reason(&plain, &raw).contains("'capabilities'"));
        assert!(pool_of("oci:/web", capable("NET_RAW")).suits(&raw));
        let more = pool_of("oci:/web", capable("NET_ADMIN"));
        assert!(reason(&more, &web(None)).contains("'capabilities'"));
        // A program of the host, on a stack of its own.
        let host = InstanceSpec {
            tier: Tier::STACK,
            ..own_program()
        };
        assert!(reason(&plain, &host).contains("another image"));
        assert!(reason(&pool(), &web(None)).contains("for: images"));
    }

    // promise: 5.20
    #[test]
    fn groups_are_served_by_pools_in_them() {
        let us = || Some("us".to_owned());
        let mut trusting = built_in();
        trusting.trust = us();
        let mut tenant = built_in();
        tenant.resources.group = us();
        let trusted = PoolSpec {
            trust: us(),
            ..pool()
        };
        let rented = PoolSpec {
            group: us(),
            ..pool()
        };
        assert!(trusted.suits(&trusting) && rented.suits(&tenant));
        assert!(reason(&pool(), &trusting).contains("'trust'"));
        assert!(reason(&trusted, &built_in()).contains("'trust'"));
        assert!(reason(&pool(), &tenant).contains("'group'"));
        assert!(reason(&rented, &built_in()).contains("'group'"));
    }

    // promise: 5.20
    #[test]
    fn the_reason_why_no_shell_fits_is_given() {
        let mut several = built_in();
        several.ports[0].queues = 2;
        assert!(reason(&pool(), &several).contains("queue"));
        let mut pinned = built_in();
        pinned.resources.placement = Placement::Pinned;
        assert!(reason(&pool(), &pinned).contains("placement"));
        let mut large = built_in();
        large.ring = 1024;
        assert!(reason(&pool(), &large).contains("rings"));
        let mut wide = built_in();
        wide.ports.extend(built_in().ports);
        assert!(reason(&pool(), &wide).contains("ports"));
    }
}
