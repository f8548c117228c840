//! New instances and the links of their ports.

use super::index::{Index, Use};
use super::proposal::Proposal;
use super::reach::switches;
use super::step::{insert, refers_to_nothing_else};
use crate::action::Action;
use crate::frames::{Node, SLOT_MTU_MAX};
use crate::inventory::Inventory;
use crate::model::{Deployment, Instance, PortRef};
use crate::plan::plan;
use crate::report::Report;
use crate::spec::port_specs;
use crate::table::Table;
use crate::validate::{Background, Environment, validate};
use nfluid_api::types::{Change, Diagnostic, Kind, Verb};

/// Limit of instances that are followed from a new one to find one with a port that does not lead to an instance.
const FOLLOWED_MAX: usize = 64;

/// New objects that were checked.
#[derive(Clone, Debug)]
pub struct Addition {
    /// The new objects: instances and links.
    pub added: Deployment,
    /// The warnings about the new objects.
    pub warnings: Vec<Diagnostic>,
    /// The new objects and all that they refer to.
    part: Deployment,
}

impl Addition {
    /// Returns what a document adds to a deployment. `None`: the document does more than that, has a fault, or needs
    /// the check of the whole.
    pub fn of(
        proposal: Proposal,
        whole: &Deployment,
        index: &Index,
        environment: Environment<'_>,
    ) -> Option<Self> {
        let Proposal {
            file, root, added, ..
        } = proposal;
        let part = part_of(&added, whole, index)?;
        let mut report = Report::new(file.as_deref(), Some(&root));
        let background = Background {
            root: Some(&root),
            present: Some(whole),
        };
        validate(&part, background, environment, &mut report);
        let mut warnings = report.finish().ok()?;
        warnings.retain(|warning| is_about(warning, &added));
        Some(Addition {
            added,
            warnings,
            part,
        })
    }

    /// Returns the actions. `None`: more has to be done, since an object that the new objects refer to is not as it
    /// shall be.
    pub fn actions(&self, present: &Inventory) -> Option<Vec<Action>> {
        let mut desired = Inventory::of(&self.part);
        desired.forget_frames();
        let actions = plan(&present.narrowed_to(&desired), &desired);
        let is_own = |action: &Action| match action {
            Action::Wire { .. } => true,
            action => action
                .created()
                .is_some_and(|(name, _)| self.added.instances.contains(name)),
        };
        actions.iter().all(is_own).then_some(actions)
    }

    /// Returns the changes for the answer to the user.
    pub fn changes(&self) -> Vec<Change> {
        let created = |kind, name: String| Change {
            verb: Verb::Created,
            kind,
            name,
            details: Vec::new(),
        };
        let instances = self.added.instances.names();
        let instances = instances.map(|name| created(Kind::Instance, name.to_owned()));
        let links = self.added.links.iter();
        let links = links.map(|link| created(Kind::Link, link.name()));
        instances.chain(links).collect()
    }

    /// Adds the new objects to the deployment.
    pub fn enter(self, whole: &mut Deployment, index: &mut Index) {
        insert(whole, index, self.added);
    }
}

/// Returns true if a warning is about one of these objects: warnings about others were reported when those were
/// added.
fn is_about(warning: &Diagnostic, added: &Deployment) -> bool {
    let mut keys = warning.path.split(['.', '[']);
    match keys.next() {
        Some("instances") => keys
            .next()
            .is_some_and(|name| added.instances.contains(name)),
        _ => true,
    }
}

/// Returns the new objects with everything that they refer to. `None` if that is not enough for a check.
fn part_of(added: &Deployment, whole: &Deployment, index: &Index) -> Option<Deployment> {
    if !refers_to_nothing_else(added) || added.instances.is_empty() {
        return None;
    }
    let mut part = Deployment {
        io: whole.io.clone(),
        placement: whole.placement,
        congestion: whole.congestion.clone(),
        overcommit: whole.overcommit,
        ..added.clone()
    };
    if added.overcommit && !whole.overcommit {
        return None;
    }
    for (name, instance) in added.instances.iter() {
        if whole.instances.contains(name) || !is_on_its_own(name, instance, index) {
            return None;
        }
        refer(instance, whole, &mut part)?;
    }
    for link in &added.links {
        let is_new = |port: &PortRef| {
            let owner = port.owner();
            owner.is_some_and(|owner| added.instances.contains(owner))
        };
        if !is_new(&link.0) && !is_new(&link.1) {
            return None;
        }
        for port in [&link.0, &link.1] {
            if index.use_of(port).is_some() {
                return None;
            }
            if is_new(port) {
                continue;
            }
            match port {
                PortRef::Uplink(name) => copy(&whole.uplinks, &mut part.uplinks, name)?,
                PortRef::Instance { instance, .. } => {
                    let other = whole.instances.get(instance)?;
                    part.instances.insert(instance.clone(), other.clone());
                    refer(other, whole, &mut part)?;
                }
            }
        }
    }
    let is_of_several = |it: &Instance| it.members() > 1 || it.has_guards();
    if part.instances.iter().any(|(_, it)| is_of_several(it)) {
        return None;
    }
    if !leaves_frames_as_they_are(added, index) {
        return None;
    }
    let leads_out = |name| leads_out(name, &part, whole, index);
    added.instances.names().all(leads_out).then_some(part)
}

/// Returns true if uplinks let in the same frames with these objects as without them, and no port gets memory for long frames.
fn leaves_frames_as_they_are(added: &Deployment, index: &Index) -> bool {
    let reach = index.reach();
    let (mut ports_outside, mut is_jumbo) = (0, false);
    for (name, instance) in added.instances.iter() {
        let links = added.links.iter().filter(|link| link.is_of(name));
        let ends = links.flat_map(|link| [&link.0, &link.1]).map(Node::of);
        let mut is_outside = true;
        for node in switches(instance).chain(ends) {
            if !reach.is_settled(&node, 0) {
                return false;
            }
            is_outside &= !reach.has_uplinks(&node);
        }
        if is_outside {
            ports_outside += instance.queues();
        }
        let mut ports = instance.ports.iter();
        is_jumbo |= ports.any(|(_, port)| port.mtu.is_some_and(|mtu| mtu > SLOT_MTU_MAX));
    }
    let may_need_memory = ports_outside > 0 && reach.is_prepared_for_uplinks(ports_outside);
    !is_jumbo && !may_need_memory
}

/// Returns true if nothing about the instance depends on sums over all instances.
fn is_on_its_own(name: &str, instance: &Instance, index: &Index) -> bool {
    let decides_for_group = instance.group.is_some() && !instance.cpus.is_empty();
    if instance.trust.is_some() || decides_for_group || !index.has_room_for(instance) {
        return false;
    }
    let mut ports = instance.ports.iter().zip(port_specs(name, instance));
    ports.all(|((_, port), spec)| {
        let attachment = port.attachment.as_ref();
        attachment.is_none_or(|place| !index.has_address(&place.switch, spec.mac))
    })
}

/// Adds the objects that an instance names. `None`: one of them does not exist.
fn refer(instance: &Instance, whole: &Deployment, part: &mut Deployment) -> Option<()> {
    if let Some(flavor) = whole.flavors.get(&instance.flavor) {
        part.flavors.insert(instance.flavor.clone(), *flavor);
    }
    let mut group = instance.group.as_deref();
    while let Some(name) = group.filter(|name| !part.groups.contains(name)) {
        copy(&whole.groups, &mut part.groups, name)?;
        group = whole.groups.get(name).and_then(|it| it.group.as_deref());
    }
    for (_, port) in instance.ports.iter() {
        if let Some(place) = &port.attachment {
            copy(&whole.switches, &mut part.switches, &place.switch)?;
        }
    }
    Some(())
}

fn copy<T: Clone>(from: &Table<T>, to: &mut Table<T>, name: &str) -> Option<()> {
    to.insert(name, from.get(name)?.clone());
    Some(())
}

/// Returns true if frames leave the instances around a new one: an instance that the new one reaches by links has a port
/// that is not linked to an instance.
fn leads_out(name: &str, part: &Deployment, whole: &Deployment, index: &Index) -> bool {
    let mut to_do = vec![name.to_owned()];
    let mut seen = to_do.clone();
    while let Some(name) = to_do.pop() {
        let Some(instance) = part
            .instances
            .get(&name)
            .or_else(|| whole.instances.get(&name))
        else {
            return true;
        };
        for port in instance.ports.names() {
            let port = PortRef::instance(&name, port);
            let Some(other) = peer(&port, part, whole, index) else {
                return true;
            };
            if !seen.contains(&other) {
                seen.push(other.clone());
                to_do.push(other);
            }
        }
        if seen.len() > FOLLOWED_MAX {
            return false;
        }
    }
    false
}

/// Returns the instance that a port is linked to.
fn peer(port: &PortRef, part: &Deployment, whole: &Deployment, index: &Index) -> Option<String> {
    let new = part
        .links
        .iter()
        .find(|link| link.0 == *port || link.1 == *port);
    let link = match index.use_of(port) {
        Some(Use::Link(at)) => whole.links.get(at),
        _ => new,
    }?;
    let other = if link.0 == *port { &link.1 } else { &link.0 };
    other.owner().map(str::to_owned)
}
