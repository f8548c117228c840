//! The objects that exist on a host, or that a deployment asks for, with all defaults filled in.

use crate::action::Action;
use crate::congestion::Congestion;
use crate::diff::Diff;
use crate::group::{Group, Groups, has_place};
use crate::guards::with_guards;
use crate::io::IoSettings;
use crate::levels::Levels;
use crate::members::{Members, member_names, members};
use crate::model::{Deployment, Hop, PortRef, Switch};
use crate::pool::{Pools, pools};
use crate::setting::Setting;
use crate::spec::{InstanceSpec, Resources, UplinkSpec};
use crate::wiring::{Destination, Wiring, wiring};
use serde::Serialize;
use std::collections::BTreeMap;

/// The instances that the frames of each chain cross, in order, by chain.
pub type Ways = BTreeMap<String, Vec<Hop>>;

/// All objects, by name. A plan is the difference of two inventories.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Inventory {
    /// Groups of tenants.
    pub groups: Groups,
    /// Learning bridges.
    pub switches: BTreeMap<String, Switch>,
    /// Ports backed by real interfaces.
    pub uplinks: BTreeMap<String, UplinkSpec>,
    /// Running NFs.
    pub instances: BTreeMap<String, InstanceSpec>,
    /// Settings of the I/O threads.
    pub io: IoSettings,
    /// The congestion signals.
    pub congestion: Congestion,
    /// The order of instances in chains.
    pub ways: Ways,
    /// Prepared instances.
    pub pools: Pools,
    /// The number of members among which the flows of instances are divided.
    #[serde(skip_serializing_if = "Members::is_empty")]
    pub members: Members,
    /// Frames that the uplinks let in.
    #[serde(skip_serializing_if = "Levels::is_empty")]
    pub levels: Levels,
    /// The destination of each port's frames.
    #[serde(serialize_with = "wires_by_name")]
    pub wires: Wiring,
}

fn wires_by_name<S: serde::Serializer>(wires: &Wiring, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(wires.iter().map(|(port, to)| (port.to_string(), to)))
}

/// The entries of `all` whose keys `part` has.
fn entries_of<K: Clone + Ord, T: Clone>(
    all: &BTreeMap<K, T>,
    part: &BTreeMap<K, T>,
) -> BTreeMap<K, T> {
    let keys = part.keys();
    keys.filter_map(|key| Some((key.clone(), all.get(key)?.clone())))
        .collect()
}

/// Applies a change to a table.
fn put<T>(objects: &mut BTreeMap<String, T>, change: Diff<T>) {
    match change.new {
        Some(new) => drop(objects.insert(change.name, new)),
        None => drop(objects.remove(&change.name)),
    }
}

impl Inventory {
    /// Returns the inventory that a valid deployment asks for.
    pub fn of(deployment: &Deployment) -> Self {
        let deployment = &*with_guards(deployment);
        let mut inventory = Inventory {
            groups: deployment.group_table(),
            switches: deployment
                .switches
                .iter()
                .map(|(name, switch)| (name.to_owned(), switch.clone()))
                .collect(),
            uplinks: deployment
                .uplinks
                .iter()
                .map(|(name, uplink)| (name.to_owned(), UplinkSpec::resolve(deployment, uplink)))
                .collect(),
            instances: deployment
                .instances
                .iter()
                .map(|(name, instance)| {
                    let spec = InstanceSpec::resolve(deployment, name, instance);
                    (name.to_owned(), spec)
                })
                .collect(),
            io: deployment.io().settings,
            congestion: deployment.congestion(),
            ways: deployment
                .chains
                .iter()
                .map(|(name, chain)| (name.to_owned(), chain.via.clone()))
                .collect(),
            pools: pools(deployment),
            members: members(deployment),
            levels: Levels::default(),
            wires: wiring(deployment),
        };
        inventory.add_members();
        inventory.assign_frames();
        inventory
    }

    /// Returns the objects of this inventory that `part` has as well. A plan from the result to `part` is the plan to
    /// `part` if no other object changes, and no setting of the platform.
    #[must_use]
    pub fn narrowed_to(&self, part: &Inventory) -> Self {
        Inventory {
            groups: entries_of(&self.groups, &part.groups),
            switches: entries_of(&self.switches, &part.switches),
            uplinks: entries_of(&self.uplinks, &part.uplinks),
            instances: entries_of(&self.instances, &part.instances),
            members: entries_of(&self.members, &part.members),
            wires: entries_of(&self.wires, &part.wires),
            io: part.io.clone(),
            congestion: part.congestion.clone(),
            ways: part.ways.clone(),
            pools: part.pools.clone(),
            levels: part.levels.clone(),
        }
    }

    /// Returns true if the port exists.
    pub fn has_port(&self, port: &PortRef) -> bool {
        match port {
            PortRef::Uplink(name) => self.uplinks.contains_key(name),
            PortRef::Instance { instance, port } => self
                .instances
                .get(instance)
                .is_some_and(|spec| spec.ports.iter().any(|p| p.name == *port)),
        }
    }

    /// Records that an action was carried out.
    pub fn record(&mut self, action: &Action) {
        match action.clone() {
            Action::Group(change) => put(&mut self.groups, change),
            Action::Switch(change) => put(&mut self.switches, change),
            Action::Uplink(change) => put(&mut self.uplinks, change),
            Action::Instance(Diff { name, old, new }) => {
                let (old, new) = (old.map(|old| *old), new.map(|new| *new));
                put(&mut self.instances, Diff { name, old, new });
            }
            Action::Upgrade { name, new, .. } => drop(self.instances.insert(name, *new)),
            Action::Set { name, new, .. } => self.change(&name, |spec| new.put(spec)),
            Action::Order { name, new, .. } => self.change(&name, |spec| {
                if let Some(attach) = &mut spec.attach {
                    attach.order = new;
                }
            }),
            Action::Platform { new, .. } => new.put(self),
            Action::Scale { name, new, .. } => self.set_member_count(&name, new),
            Action::Drain { .. } => {}
            Action::Wire { port, new, .. } => match new {
                Some(to) => drop(self.wires.insert(port, to)),
                None => drop(self.wires.remove(&port)),
            },
        }
    }

    fn change(&mut self, instance: &str, change: impl FnOnce(&mut InstanceSpec)) {
        if let Some(spec) = self.instances.get_mut(instance) {
            change(spec);
        }
    }

    /// Returns true if everything that an action needs exists, and nothing that conflicts with it.
    pub fn allows(&self, action: &Action) -> bool {
        match action {
            Action::Group(change) => self.allows_group(change),
            Action::Switch(Diff { name, old, new }) => {
                let is_used = |to: &Destination| to.switch() == Some(name.as_str());
                let is_free = new.is_some() || !self.wires.values().any(is_used);
                self.switches.get(name) == old.as_ref() && is_free
            }
            Action::Uplink(Diff { name, old, new }) => {
                let has_it = |spec: &UplinkSpec| {
                    let is_it = |other: &UplinkSpec| {
                        other.interface == spec.interface && other.netns == spec.netns
                    };
                    self.uplinks.values().any(is_it)
                };
                let is_it = |port: &PortRef| *port == PortRef::Uplink(name.clone());
                self.uplinks.contains_key(name) == old.is_some()
                    && !new.as_ref().is_some_and(has_it)
                    && (old.is_none() || !self.is_wired(is_it))
            }
            Action::Instance(Diff { name, old, new }) => {
                let is_its = |port: &PortRef| port.owner() == Some(name.as_str());
                let is_left = || !self.is_wired(is_its) && !self.shares_flows(name);
                let has_place = new
                    .as_ref()
                    .is_none_or(|new| self.has_group(&new.resources));
                self.instances.contains_key(name) == old.is_some()
                    && (old.is_none() || is_left())
                    && has_place
            }
            Action::Upgrade { name, old, .. } => self.instances.get(name) == Some(&**old),
            Action::Set { name, old, new } => {
                let has_place = match new {
                    Setting::Resources(resources) => self.has_group(resources),
                    _ => true,
                };
                let spec = self.instances.get(name);
                has_place && spec.is_some_and(|spec| old.is_of(spec))
            }
            Action::Order { name, old, .. } => self
                .instances
                .get(name)
                .is_some_and(|spec| spec.order() == *old),
            Action::Platform { old, .. } => old.as_in(self) == *old,
            Action::Scale { name, old, new } => {
                let mut names = member_names(name, *old.max(new));
                self.member_count(name) == *old && names.all(|it| self.instances.contains_key(&it))
            }
            Action::Drain { instances } => {
                instances.iter().all(|it| self.instances.contains_key(it))
            }
            Action::Wire { port, old, new } => {
                let leads_somewhere = new.as_ref().is_none_or(|to| {
                    to.targets().all(|target| self.has_port(target))
                        && to
                            .switch()
                            .is_none_or(|name| self.switches.contains_key(name))
                });
                self.has_port(port) && self.wires.get(port) == old.as_ref() && leads_somewhere
            }
        }
    }

    fn allows_group(&self, Diff { name, old, new }: &Diff<Group>) -> bool {
        let is_it = |group: &Option<String>| group.as_deref() == Some(name.as_str());
        let is_empty = || {
            let mut instances = self.instances.values();
            !self.groups.values().any(|group| is_it(&group.group))
                && !instances.any(|spec| is_it(&spec.resources.group))
        };
        self.groups.get(name) == old.as_ref()
            && match new {
                Some(new) => has_place(&self.groups, name, new),
                None => is_empty(),
            }
    }

    /// Returns the action without the parts that are impossible: classifier entries for ports that do not exist drop
    /// their frames instead.
    #[must_use]
    pub fn reduce(&self, mut action: Action) -> Action {
        if let Action::Wire {
            new: Some(Destination::Classify(entries)),
            ..
        } = &mut action
        {
            for entry in entries {
                entry.to = entry.to.take().filter(|to| self.has_port(to));
            }
        }
        action
    }

    /// Returns true if the group of these resources exists, or if they have none.
    fn has_group(&self, resources: &Resources) -> bool {
        let group = resources.group.as_ref();
        group.is_none_or(|group| self.groups.contains_key(group))
    }

    /// Returns true if such a port is at either end of a wire.
    fn is_wired(&self, which: impl Fn(&PortRef) -> bool) -> bool {
        self.wires
            .iter()
            .any(|(from, to)| which(from) || to.targets().any(&which))
    }
}
