//! The part of a deployment that an object belongs to, as far as frames decide about it: an instance that is added or removed
//! may change which frames uplinks far away let in. See [`crate::frames`].

use crate::frames::domain::{PORTS_MAX, join_all};
use crate::frames::{Node, Sets, domains};
use crate::inventory::Inventory;
use crate::model::{Deployment, Instance, SuperFrames};
use std::collections::HashMap;

/// Objects between which frames can pass. Parts are joined when objects are added; a part that loses objects may be several
/// parts in truth.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    sets: Sets<Node>,
    parts: HashMap<usize, Part>,
    /// There are uplinks that instances could be wired to, and that could let in super-frames then.
    has_super_uplinks: bool,
    /// Ports of instances that no uplink leads to.
    ports_outside: usize,
}

/// Objects of one part.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    has_uplinks: bool,
    /// Its frames are plain, whatever else is connected.
    is_refused: bool,
    ports: usize,
}

impl Reach {
    /// Looks at a whole deployment.
    pub fn of(deployment: &Deployment) -> Self {
        let inventory = Inventory::of(deployment);
        let mut uplinks = inventory.uplinks.values();
        let mut reach = Reach {
            has_super_uplinks: uplinks.any(|spec| spec.super_frames == SuperFrames::Auto),
            ports_outside: deployment.instances.iter().map(|(_, it)| it.queues()).sum(),
            ..Reach::default()
        };
        join_all(&inventory, &mut reach.sets);
        for domain in domains(&[&inventory]) {
            reach.ports_outside -= reach.ports_outside.min(domain.ports);
            let part = Part {
                has_uplinks: true,
                is_refused: domain.is_refused,
                ports: domain.ports,
            };
            for uplink in domain.uplinks {
                let set = reach.sets.set_of(Node::Uplink(uplink));
                reach.parts.insert(set, part);
            }
        }
        reach
    }

    /// Returns true if frames may come from an uplink to this object.
    pub fn has_uplinks(&self, node: &Node) -> bool {
        self.part(node).is_some_and(|part| part.has_uplinks)
    }

    /// Returns true if uplinks let in the same frames, whatever is connected to this object or taken away, as long as that
    /// has at most `ports` ports.
    pub fn is_settled(&self, node: &Node, ports: usize) -> bool {
        self.part(node).is_none_or(|part| {
            !part.has_uplinks || part.is_refused || part.ports.saturating_sub(ports) > PORTS_MAX
        })
    }

    fn part(&self, node: &Node) -> Option<&Part> {
        self.parts.get(&self.sets.find(node)?)
    }

    /// Returns true if an instance with `ports` ports gets memory for long frames before an uplink leads to it.
    pub fn is_prepared_for_uplinks(&self, ports: usize) -> bool {
        self.has_super_uplinks && self.ports_outside + ports <= PORTS_MAX
    }

    /// Adds an instance, with its ports on switches.
    pub fn add_instance(&mut self, name: &str, instance: &Instance) {
        self.ports_outside += instance.queues();
        let node = Node::Instance(name.to_owned());
        let set = self.sets.set_of(node.clone());
        self.parts.entry(set).or_default().ports += instance.queues();
        for switch in switches(instance) {
            self.join(node.clone(), switch);
        }
    }

    /// Removes the ports of an instance. What it joined stays one part.
    pub fn remove_instance(&mut self, name: &str, instance: &Instance) {
        self.ports_outside -= self.ports_outside.min(instance.queues());
        let set = self.sets.find(&Node::Instance(name.to_owned()));
        if let Some(part) = set.and_then(|set| self.parts.get_mut(&set)) {
            part.ports = part.ports.saturating_sub(instance.queues());
        }
    }

    /// Joins the parts of two objects.
    pub fn join(&mut self, one: Node, other: Node) {
        let (whole, former) = self.sets.join(one, other);
        if whole == former {
            return;
        }
        if let Some(former) = self.parts.remove(&former) {
            let part = self.parts.entry(whole).or_default();
            part.has_uplinks |= former.has_uplinks;
            part.is_refused |= former.is_refused;
            part.ports += former.ports;
        }
    }
}

/// The switches that ports of an instance are on.
pub fn switches(instance: &Instance) -> impl Iterator<Item = Node> {
    let places = instance
        .ports
        .iter()
        .filter_map(|(_, port)| port.attachment.as_ref());
    places.map(|place| Node::Switch(place.switch.clone()))
}
