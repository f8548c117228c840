//! The desired state, as a user writes it. `docs/guide/deployment.md` is its manual.
//!
//! A [`Deployment`] serializes into the same syntax that [`decode`](crate::decode) reads: there is
//! one format for the user's file, the state on disk and `nfluid get deployment`.
//!
//! Values are right in themselves here (a share is a share); whether they go together is
//! [`validate`](crate::validate)'s question.

use crate::congestion::Congestion;
use crate::fast::Attach;
use crate::group::{Group, Groups};
use crate::health::Health;
use crate::io::{Io, IoModel};
use crate::matching::MatchRule;
use crate::placement::Placement;
use crate::pool::Pool;
use crate::portion::Portion;
use crate::quantity::{Bytes, Mac, Micros, Millis, ValueError, serialize_as_text};
use crate::stack::Stack;
use crate::table::Table;
use crate::template::Template;
use crate::tier::Tier;
use crate::wake::Wake;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// The version of the document format that this code reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// Everything that shall exist on a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deployment {
    /// Version of the format: [`FORMAT_VERSION`].
    pub version: u32,
    /// Shares may add up to more than the host's cores.
    #[serde(skip_serializing_if = "is_default")]
    pub overcommit: bool,
    /// I/O model of instances that name none, and how I/O threads are; absent: inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Who decides on which cores instances run that do not say; absent: the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Groups of tenants.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub groups: Table<Group>,
    /// Who is told of congestion, and how; absent: nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// Flavors of the user's own, beside the built-in ones.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub flavors: Table<Flavor>,
    /// Prepared instances, by the name of their pool.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub pool: Table<Pool>,
    /// Ports backed by real interfaces.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub uplinks: Table<Uplink>,
    /// Learning bridges.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub switches: Table<Switch>,
    /// Running NFs.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub instances: Table<Instance>,
    /// Point-to-point connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Ordered lists of NFs between two end points. Where several chains start at one end point,
    /// the first that matches takes the frame.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub chains: Table<Chain>,
    /// Instances that are made when their first frames come, behind the chains.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub templates: Table<Template>,
}

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            version: FORMAT_VERSION,
            overcommit: false,
            io: None,
            placement: None,
            groups: Table::new(),
            congestion: None,
            flavors: Table::new(),
            pool: Table::new(),
            uplinks: Table::new(),
            switches: Table::new(),
            instances: Table::new(),
            links: Vec::new(),
            chains: Table::new(),
            templates: Table::new(),
        }
    }
}

impl Deployment {
    /// The flavor of that name: the user's own, else a built-in one.
    pub fn flavor(&self, name: &str) -> Option<Flavor> {
        self.flavors.get(name).copied().or_else(|| {
            BUILT_IN_FLAVORS
                .iter()
                .find(|(built_in, _)| *built_in == name)
                .map(|(_, flavor)| *flavor)
        })
    }

    /// The groups of tenants by name.
    pub fn group_table(&self) -> Groups {
        let groups = self.groups.iter();
        groups
            .map(|(name, group)| (name.to_owned(), group.clone()))
            .collect()
    }

    /// The I/O model of instances that name none, and how I/O threads are.
    pub fn io(&self) -> Io {
        self.io.clone().unwrap_or_default()
    }

    /// Who is told of congestion, and how.
    pub fn congestion(&self) -> Congestion {
        self.congestion.clone().unwrap_or_default()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Size of rings and of memory, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flavor {
    /// Slots per ring: a power of two, 64 ..= 1024.
    pub ring: u32,
    /// Memory limit of an instance.
    pub memory: Bytes,
}

/// Flavors that exist without being written down.
pub const BUILT_IN_FLAVORS: [(&str, Flavor); 3] = [
    (
        "small",
        Flavor {
            ring: 64,
            memory: Bytes::mib(16),
        },
    ),
    (
        "medium",
        Flavor {
            ring: 256,
            memory: Bytes::mib(64),
        },
    ),
    (
        "large",
        Flavor {
            ring: 1024,
            memory: Bytes::mib(256),
        },
    ),
];

/// The flavor of an instance that names none.
pub const DEFAULT_FLAVOR: &str = "medium";

/// A port backed by a real interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uplink {
    /// The interface's name. A tap of that name is made.
    pub interface: String,
    /// Network namespace of the interface: a name in `/run/netns` or an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// How frames are taken off the interface.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: UplinkKind,
    /// Which XDP mode.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: XdpMode,
    /// Who tells whose frames are, where chains' rules do.
    #[serde(skip_serializing_if = "is_default")]
    pub steering: Steering,
    /// Address to give to the interface; absent: leave it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Slots per ring; absent: those of the default flavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// Attaches the uplink to a switch.
    #[serde(flatten)]
    pub attachment: Option<Attachment>,
}

/// What kind of interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UplinkKind {
    /// An existing NIC or veth: XDP receives, AF_XDP transmits.
    #[default]
    Xdp,
    /// A tap that the daemon makes, for programs that use the kernel's stack.
    Tap,
}

/// Which XDP mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// Native where the driver has it, else generic; the daemon says which and why.
    #[default]
    Auto,
    /// In the driver, or an error.
    Native,
    /// In the kernel's stack.
    Generic,
    /// Not XDP, but the ingress of tc; of fast paths only.
    Tc,
}

/// Who classifies what an uplink receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// The uplink's XDP program.
    #[default]
    Xdp,
    /// The NIC, all of it, or an error.
    Nic,
    /// The NIC as far as it can; the XDP program the rest.
    Hybrid,
}

/// A place on a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Attachment {
    /// The switch.
    pub switch: String,
    /// Untagged frames belong to this VLAN, and the port sees only this one; absent: the port is a
    /// trunk, tagged and untagged frames pass unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Whether the switch learns source addresses from this port. If not, frames whose source is
    /// not the port's own address are dropped and counted. Default: uplinks yes, instances no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<bool>,
}

/// A learning bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// How long a learned address is kept after its last frame.
    pub ageing: Millis,
    /// Most addresses that are kept.
    pub addresses: u32,
}

impl Default for Switch {
    fn default() -> Self {
        Switch {
            ageing: Millis::secs(300),
            addresses: 4096,
        }
    }
}

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

/// What runs in an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Program {
    /// A network function of nfluid's own, by name.
    BuiltIn {
        /// Its name in the catalogue.
        nf: String,
    },
    /// A program of the user's that links the port library.
    Path {
        /// Absolute path of the executable.
        program: String,
        /// Its arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
    },
}

impl Program {
    /// The NF's name or the program's path.
    pub fn name(&self) -> &str {
        match self {
            Program::BuiltIn { nf } => nf,
            Program::Path { program, .. } => program,
        }
    }
}

/// A port of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its address; absent: derived from the names of instance and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Largest IP packet in bytes; absent: [`DEFAULT_MTU`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Queues among which the frames for it are spread by flow, 1 ..= [`QUEUES_MAX`]; absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Attaches the port to a switch.
    #[serde(flatten)]
    pub attachment: Option<Attachment>,
}

/// Most queues of a port.
pub const QUEUES_MAX: u16 = 8;

/// MTU of a port that names none.
pub const DEFAULT_MTU: u16 = 1500;

/// What happens when an instance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// When to start it again.
    pub policy: RestartPolicy,
    /// How long to wait before.
    pub backoff: Backoff,
    /// Restarts in a row after which it is given up; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// A run of this length ends the row: the wait starts anew from the shortest.
    pub healthy: Millis,
}

impl Default for Restart {
    fn default() -> Self {
        Restart {
            policy: RestartPolicy::Always,
            backoff: Backoff {
                shortest: Millis(10),
                longest: Millis::secs(10),
            },
            max: None,
            healthy: Millis::secs(30),
        }
    }
}

/// When to start an ended instance again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Whenever it ends.
    #[default]
    Always,
    /// When it ends with an error or is killed.
    OnFailure,
    /// Never.
    Never,
}

/// The wait before a restart, doubled each time: `100ms..10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the first restart.
    pub shortest: Millis,
    /// At most.
    pub longest: Millis,
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.shortest, self.longest)
    }
}

impl FromStr for Backoff {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write the shortest and the longest wait, for example 100ms..10s";
        let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
        let backoff = Backoff {
            shortest: shortest.parse()?,
            longest: longest.parse()?,
        };
        if backoff.shortest.0 == 0 {
            return Err(ValueError::new(
                "a wait of nothing would restart without a pause",
                remedy,
            ));
        }
        if backoff.shortest > backoff.longest {
            return Err(ValueError::new(
                format!("in '{text}' the shortest wait is longer than the longest"),
                remedy,
            ));
        }
        Ok(backoff)
    }
}

/// A port by its name: `wan` (an uplink) or `fw1.out` (an instance's port).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortRef {
    /// An uplink.
    Uplink(String),
    /// A port of an instance.
    Instance {
        /// The instance.
        instance: String,
        /// The port's name in it.
        port: String,
    },
}

impl PortRef {
    /// The port `port` of `instance`.
    pub fn instance(instance: impl Into<String>, port: impl Into<String>) -> Self {
        PortRef::Instance {
            instance: instance.into(),
            port: port.into(),
        }
    }

    /// The instance that owns the port, if one does.
    pub fn owner(&self) -> Option<&str> {
        match self {
            PortRef::Uplink(_) => None,
            PortRef::Instance { instance, .. } => Some(instance),
        }
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortRef::Uplink(name) => f.write_str(name),
            PortRef::Instance { instance, port } => write!(f, "{instance}.{port}"),
        }
    }
}

impl FromStr for PortRef {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.split_once('.') {
            None => Ok(PortRef::Uplink(check_name(text)?.to_owned())),
            Some((instance, port)) => {
                Ok(PortRef::instance(check_name(instance)?, check_name(port)?))
            }
        }
    }
}

serialize_as_text!(Backoff, PortRef);

/// Longest name of an object, in bytes.
pub const NAME_MAX: usize = 63;

/// Checks the name of an object: 1 ..= 63 letters, digits, `-` and `_`, the first a letter or digit.
///
/// # Errors
/// Says what a name looks like.
pub fn check_name(name: &str) -> Result<&str, ValueError> {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    let goes_on_well = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if starts_well && goes_on_well && name.len() <= NAME_MAX {
        return Ok(name);
    }
    Err(ValueError::new(
        format!("'{}' is not a name", name.escape_debug()),
        format!(
            "use 1 to {NAME_MAX} letters, digits, '-' and '_', beginning with a letter or digit"
        ),
    ))
}

/// A connection of two ports: what one sends, the other receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Link(pub PortRef, pub PortRef);

impl Link {
    /// The link's name: `a--b`, the ends in order, so that it does not depend on how it is written.
    pub fn name(&self) -> String {
        let (a, b) = if self.0 <= self.1 {
            (&self.0, &self.1)
        } else {
            (&self.1, &self.0)
        };
        format!("{a}--{b}")
    }
}

/// An ordered list of NFs between two end points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Where traffic enters.
    pub from: PortRef,
    /// Where it leaves, and where the answers enter.
    pub to: PortRef,
    /// The instances in between.
    pub via: Vec<Hop>,
    /// Which frames that enter at `from` take the chain; empty: all.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<MatchRule>,
    /// Which frames that enter at `to` take the chain backwards; absent: the mirrored `rules`.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub return_rules: Option<Vec<MatchRule>>,
}

impl Chain {
    /// Which frames that enter at `to` take the chain backwards; empty: all.
    pub fn effective_return_rules(&self) -> Vec<MatchRule> {
        match &self.return_rules {
            Some(rules) => rules.clone(),
            None => self.rules.iter().map(MatchRule::mirrored).collect(),
        }
    }
}

/// One instance of a chain and the ports by which the chain crosses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The instance.
    pub instance: String,
    /// The port towards the chain's `from`.
    #[serde(rename = "in")]
    pub input: String,
    /// The port towards the chain's `to`.
    #[serde(rename = "out")]
    pub output: String,
}

impl Hop {
    /// The port towards the chain's `from`.
    pub fn input_port(&self) -> PortRef {
        PortRef::instance(&self.instance, &self.input)
    }

    /// The port towards the chain's `to`.
    pub fn output_port(&self) -> PortRef {
        PortRef::instance(&self.instance, &self.output)
    }
}
