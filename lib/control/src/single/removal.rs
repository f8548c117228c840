//! Instances that are removed together with their links.

use super::index::{Index, Use};
use super::reach::switches;
use super::step::{Gone, take_out};
use crate::action::Action;
use crate::frames::Node;
use crate::inventory::Inventory;
use crate::model::{Deployment, Link, PortRef};
use crate::plan::plan;
use nfluid_api::types::{Change, DeleteRequest, Kind, Verb};
use std::collections::{BTreeMap, BTreeSet};

/// Objects of the deployment that no other object refers to.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The names of the objects.
    pub gone: Gone,
    links: BTreeMap<String, Link>,
}

/// Returns true if more ports than the link's two send into the link.
fn ends_at_members(link: &Link, whole: &Deployment) -> bool {
    let mut owners = [&link.0, &link.1].into_iter().filter_map(PortRef::owner);
    owners.any(|owner| {
        whole
            .instances
            .get(owner)
            .is_some_and(|it| it.members() > 1)
    })
}

impl Removal {
    /// Returns what a request removes from a deployment. `None`: the request does more than that, has a fault, or
    /// needs the check of the whole.
    pub fn of(request: &DeleteRequest, whole: &Deployment, index: &Index) -> Option<Self> {
        if request.dry_run || request.everything || request.text.is_some() {
            return None;
        }
        let named = |kind| {
            let objects = request.objects.iter();
            objects.filter(move |object| object.kind == kind)
        };
        let instances: Vec<String> = named(Kind::Instance).map(|it| it.name.clone()).collect();
        let named_links: Vec<&str> = named(Kind::Link).map(|it| it.name.as_str()).collect();
        if instances.is_empty() || instances.len() + named_links.len() != request.objects.len() {
            return None;
        }
        let mut links = BTreeMap::new();
        for name in &instances {
            let instance = whole.instances.get(name)?;
            if instance.members() > 1 || instance.has_guards() {
                return None;
            }
            if instance.group.is_some() && !instance.cpus.is_empty() {
                return None;
            }
            let mut neighbours: BTreeSet<Node> = switches(instance).collect();
            for port in instance.ports.names() {
                match index.use_of(&PortRef::instance(name, port)) {
                    None | Some(Use::Switch) => {}
                    Some(Use::Chain) => return None,
                    Some(Use::Link(at)) => {
                        let link = whole.links.get(at)?;
                        if ends_at_members(link, whole) {
                            return None;
                        }
                        neighbours.extend([&link.0, &link.1].map(Node::of));
                        links.insert(link.name(), link.clone());
                    }
                }
            }
            let node = Node::Instance(name.clone());
            neighbours.remove(&node);
            // Without the instance, two objects that it has connected are in two parts.
            let divides = neighbours.len() > 1 && index.reach().has_uplinks(&node);
            if divides || !index.reach().is_settled(&node, instance.queues()) {
                return None;
            }
        }
        let all_are_named = links
            .keys()
            .all(|name| named_links.contains(&name.as_str()));
        let all_are_theirs = named_links.iter().all(|name| links.contains_key(*name));
        if !all_are_theirs || !(all_are_named || request.with_links) {
            return None;
        }
        let gone = Gone {
            instances,
            links: links.keys().cloned().collect(),
        };
        Some(Removal { gone, links })
    }

    /// Returns the actions. `None`: some of the objects do not exist.
    pub fn actions(&self, present: &Inventory) -> Option<Vec<Action>> {
        let mut current = Inventory::default();
        let ends = self.links.values().flat_map(|link| [&link.0, &link.1]);
        let mut ports: Vec<PortRef> = ends.cloned().collect();
        for name in &self.gone.instances {
            let spec = present.instances.get(name)?;
            let own = spec.ports.iter();
            ports.extend(own.map(|port| PortRef::instance(name, &port.name)));
            current.instances.insert(name.clone(), spec.clone());
        }
        for port in ports {
            if let Some(to) = present.wires.get(&port) {
                current.wires.insert(port, to.clone());
            }
        }
        Some(plan(&current, &Inventory::default()))
    }

    /// Returns the changes for the answer to the user.
    pub fn changes(&self) -> Vec<Change> {
        let removed = |kind, name: &String| Change {
            verb: Verb::Removed,
            kind,
            name: name.clone(),
            details: Vec::new(),
        };
        let instances = self.gone.instances.iter();
        let instances = instances.map(|name| removed(Kind::Instance, name));
        let links = self.gone.links.iter();
        instances
            .chain(links.map(|name| removed(Kind::Link, name)))
            .collect()
    }

    /// Removes the objects from the deployment.
    pub fn leave(&self, whole: &mut Deployment, index: &mut Index) {
        take_out(whole, index, &self.gone);
    }
}
