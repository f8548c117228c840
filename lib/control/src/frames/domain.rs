//! Domains: objects between which frames can pass.

use super::sets::Sets;
use super::{LONG_MAX, LONG_MIN, affordable, memory};
use crate::fast::Slow;
use crate::inventory::Inventory;
use crate::levels::{Level, Levels};
use crate::members::member_names;
use crate::model::{Frames, PortRef, Program, Steering, SuperFrames, XdpMode};
use crate::spec::{InstanceSpec, UplinkSpec};
use crate::wiring::Destination;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most ports of a domain whose frames are not plain: each port has memory for the frames of all.
pub const PORTS_MAX: usize = 64;

/// An object that frames pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// An uplink.
    Uplink(String),
    /// An instance: frames may pass between all its ports.
    Instance(String),
    /// A switch.
    Switch(String),
}

impl Node {
    /// Returns the object that owns a port.
    pub fn of(port: &PortRef) -> Self {
        match port {
            PortRef::Uplink(name) => Node::Uplink(name.clone()),
            PortRef::Instance { instance, .. } => Node::Instance(instance.clone()),
        }
    }
}

/// Objects between which frames can pass, and what they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its uplinks.
    pub uplinks: BTreeSet<String>,
    /// Its instances.
    pub instances: BTreeSet<String>,
    /// Its instances on a network stack of their own.
    pub stacks: BTreeSet<String>,
    /// Its frames are plain whatever its instances take.
    pub(crate) is_refused: bool,
    /// Number of ports, each queue counted.
    pub ports: usize,
    /// Frames that its uplinks may let in.
    pub frames: Frames,
    /// The reason for which no other frames may come in; empty: none.
    pub why: String,
    /// Slots for long frames that a port may have at most. A domain whose instances take different frames has memory for the
    /// best of them: no instance is made again when the others follow.
    pub slots: u32,
}

impl Domain {
    /// Returns the uplink to which nothing is connected, if it could take other than plain frames.
    pub(super) fn uplink_alone(&self) -> Option<&str> {
        let is_alone = self.uplinks.len() == 1 && self.instances.is_empty() && !self.is_refused;
        self.uplinks
            .first()
            .map(String::as_str)
            .filter(|_| is_alone)
    }
}

/// Returns what the uplinks of these domains let in.
pub(super) fn levels_of(domains: &[Domain]) -> Levels {
    let level = |domain: &Domain| Level {
        uplinks: domain.uplinks.clone(),
        stacks: domain.stacks.clone(),
        frames: domain.frames,
    };
    domains.iter().map(level).collect()
}

/// Returns levels that are right at each step from one inventory to another: while wires of both exist.
pub fn levels_between(current: &Inventory, desired: &Inventory) -> Levels {
    let mut domains = domains(&[current, desired]);
    for domain in &mut domains {
        if domain.uplink_alone().is_some() {
            // It keeps what it has: see `Inventory::keep_memory`.
            domain.frames = Frames::Super;
        }
        for name in &domain.uplinks {
            // Uplinks that are made now have no level to start from.
            if current.uplinks.contains_key(name) {
                domain.frames = domain.frames.min(current.levels.of_uplink(name));
            }
            if desired.uplinks.contains_key(name) {
                domain.frames = domain.frames.min(desired.levels.of_uplink(name));
            }
        }
    }
    levels_of(&domains)
}

/// Returns all domains that have uplinks, as the wires of all these inventories together make them.
pub fn domains(parts: &[&Inventory]) -> Vec<Domain> {
    find(parts, true)
}

/// Returns the domains of instances that get their memory for long frames yet.
pub(super) fn entitled(inventory: &Inventory) -> Vec<Domain> {
    find(&[inventory], false)
}

/// `are_made`: an instance without memory for long frames takes none.
fn find(parts: &[&Inventory], are_made: bool) -> Vec<Domain> {
    let mut sets = Sets::default();
    // Wires on which frames wait for instances that do not exist yet.
    let mut refusals: Vec<(Node, String)> = Vec::new();
    for part in parts {
        join_all(part, &mut sets);
        for (port, to) in &part.wires {
            refusals.extend(refusal(to).map(|why| (Node::of(port), why)));
        }
    }
    let mut found: BTreeMap<usize, Builder> = BTreeMap::new();
    for part in parts {
        let taps = taps(part);
        for (name, spec) in &part.uplinks {
            let set = sets.set_of(Node::Uplink(name.clone()));
            let builder = found.entry(set).or_default();
            builder.add_uplink(name, spec, &taps);
        }
        for (name, spec) in &part.instances {
            if let Some(set) = sets.find(&Node::Instance(name.clone())) {
                let builder = found.entry(set).or_default();
                builder.add_instance(name, spec, are_made);
            }
        }
    }
    for (node, why) in refusals {
        let set = sets.set_of(node);
        found.entry(set).or_default().refused.get_or_insert(why);
    }
    let found = found.into_values();
    let with_uplinks = found.filter(|it| !it.domain.uplinks.is_empty());
    let mut domains: Vec<Domain> = with_uplinks.map(Builder::build).collect();
    memory::divide(&mut domains);
    domains
}

/// Joins all objects between which frames can pass.
pub(crate) fn join_all(part: &Inventory, sets: &mut Sets<Node>) {
    for (port, to) in &part.wires {
        for other in neighbours(to) {
            sets.join(Node::of(port), other);
        }
    }
    for (name, members) in &part.members {
        for member in member_names(name, *members) {
            sets.join(Node::Instance(name.clone()), Node::Instance(member));
        }
    }
}

fn neighbours(to: &Destination) -> impl Iterator<Item = Node> {
    let switch = to.switch().map(|name| Node::Switch(name.to_owned()));
    to.targets().map(Node::of).chain(switch)
}

/// Returns the reason for which a wire takes plain frames alone.
fn refusal(to: &Destination) -> Option<String> {
    let Destination::Classify(entries) = to else {
        return None;
    };
    let template = entries.iter().find_map(|entry| entry.clients.as_ref());
    template.map(|clients| {
        format!(
            "frames wait for instances of template '{}', which takes plain frames",
            clients.template
        )
    })
}

/// A domain that is being put together.
#[derive(Default)]
struct Builder {
    domain: Domain,
    /// The reason for which no long frames can be.
    refused: Option<String>,
    /// The most that the instances take together, and who takes the least.
    limit: Option<(Frames, String)>,
    takes_some: bool,
}

impl Builder {
    fn add_uplink(&mut self, name: &str, spec: &UplinkSpec, taps: &Taps<'_>) {
        if self.domain.uplinks.insert(name.to_owned()) {
            self.domain.ports += 1;
        }
        if let Some(why) = uplink_refuses(name, spec, taps) {
            self.refused.get_or_insert(why);
        }
    }

    fn add_instance(&mut self, name: &str, spec: &InstanceSpec, is_made: bool) {
        if self.domain.instances.insert(name.to_owned()) {
            self.domain.ports += spec.queues() as usize;
        }
        if spec.tier.capabilities().own_stack {
            self.domain.stacks.insert(name.to_owned());
        }
        let (mut frames, mut why) = taken(name, spec);
        self.takes_some |= !frames.is_plain();
        if is_made && !frames.is_plain() && spec.ports.iter().any(|port| port.long == 0) {
            frames = Frames::Plain;
            why = format!(
                "instance '{name}' was made without memory for long frames, when no uplink led to it; it gets memory when it is deleted and made again"
            );
        }
        if self.limit.as_ref().is_none_or(|(least, _)| frames < *least) {
            self.limit = Some((frames, why));
        }
    }

    fn build(self) -> Domain {
        let mut domain = self.domain;
        let objects = domain.uplinks.len() + domain.instances.len();
        domain.is_refused = self.refused.is_some();
        let refused = self.refused.or_else(|| {
            (domain.ports > PORTS_MAX).then(|| {
                format!(
                    "frames can reach {} ports, and super-frames at most {PORTS_MAX}",
                    domain.ports
                )
            })
        });
        if let Some(why) = refused {
            domain.why = why;
            return domain;
        }
        if objects < 2 {
            // The uplink is not made again when something is connected to it.
            domain.slots = LONG_MAX;
            "nothing else is connected".clone_into(&mut domain.why);
            return domain;
        }
        let (frames, why) = self.limit.unwrap_or((Frames::Super, String::new()));
        if self.takes_some || domain.instances.is_empty() {
            domain.slots = LONG_MAX;
        }
        (domain.frames, domain.why) = (frames, why);
        domain
    }
}

/// Returns what an instance takes, and if that is not all, the reason.
pub(super) fn taken(name: &str, spec: &InstanceSpec) -> (Frames, String) {
    let memory = spec.resources.memory;
    if spec.frames.is_plain() {
        let why = match (&spec.trust, &spec.program) {
            (Some(trust), _) => format!(
                "instance '{name}' is in trust group '{trust}', whose memory has no room for long frames"
            ),
            (None, Program::Path { .. } | Program::Image { .. }) => format!(
                "instance '{name}' takes plain frames: 'frames: super' is for programs that take others"
            ),
            (None, Program::BuiltIn { .. }) => format!("instance '{name}' takes plain frames"),
        };
        return (Frames::Plain, why);
    }
    let least = affordable(memory.0, spec.queues().into());
    if least < LONG_MIN {
        let why = format!("the {memory} of instance '{name}' are too little for long frames");
        return (Frames::Plain, why);
    }
    let why = match spec.frames {
        Frames::Super => String::new(),
        frames => format!("instance '{name}' takes frames with {frames} left to be done"),
    };
    (spec.frames, why)
}

/// Taps by which fast paths hand up packets, by namespace and name, and the fast paths.
type Taps<'a> = HashMap<(Option<&'a str>, &'a str), &'a str>;

fn taps(part: &Inventory) -> Taps<'_> {
    let attached = part
        .instances
        .iter()
        .filter_map(|(name, spec)| Some((name, spec.attach.as_ref()?)));
    let taps = attached.flat_map(|(name, attach)| {
        let taps = attach.slow.iter().flat_map(Slow::taps);
        taps.map(move |tap| ((attach.netns.as_deref(), tap), name.as_str()))
    });
    taps.collect()
}

/// Returns the reason for which an uplink takes plain frames alone.
fn uplink_refuses(name: &str, spec: &UplinkSpec, taps: &Taps<'_>) -> Option<String> {
    if spec.super_frames == SuperFrames::Off {
        return Some(format!("uplink '{name}' has 'super: off'"));
    }
    if spec.steering != Steering::Xdp {
        return Some(format!("the NIC of uplink '{name}' classifies frames"));
    }
    if spec.mode != XdpMode::Auto {
        return Some(format!("uplink '{name}' has a 'mode', which is XDP's"));
    }
    let fast = taps.get(&(spec.netns.as_deref(), spec.interface.as_str()))?;
    Some(format!(
        "uplink '{name}' takes the packets that fast path '{fast}' hands up"
    ))
}
