//! What exists on a host, or shall exist: every object with nothing left to default.

use crate::action::Action;
use crate::congestion::Congestion;
use crate::group::{Groups, has_place};
use crate::io::IoSettings;
use crate::members::{Members, member_names, members};
use crate::model::{Deployment, Hop, PortRef, Switch};
use crate::pool::{Pools, pools};
use crate::spec::{InstanceSpec, Resources, UplinkSpec};
use crate::wiring::{Destination, Wiring, wiring};
use serde::Serialize;
use std::collections::BTreeMap;

/// By chain, the instances that its frames cross, in order.
pub type Ways = BTreeMap<String, Vec<Hop>>;

/// Every object, by name. A plan is the difference of two inventories.
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
    /// How I/O threads are.
    pub io: IoSettings,
    /// Who is told of congestion, and how.
    pub congestion: Congestion,
    /// Which instances are one after the other.
    pub ways: Ways,
    /// Prepared instances.
    pub pools: Pools,
    /// Among how many members the flows of instances are divided that have several.
    #[serde(skip_serializing_if = "Members::is_empty")]
    pub members: Members,
    /// Where each port's frames go.
    #[serde(serialize_with = "wires_by_name")]
    pub wires: Wiring,
}

fn wires_by_name<S: serde::Serializer>(wires: &Wiring, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(wires.iter().map(|(port, to)| (port.to_string(), to)))
}

impl Inventory {
    /// What a valid deployment asks for.
    pub fn of(deployment: &Deployment) -> Self {
        let mut inventory = Inventory {
            groups: deployment.group_table(),
            switches: deployment
                .switches
                .iter()
                .map(|(name, switch)| (name.to_owned(), *switch))
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
            wires: wiring(deployment),
        };
        inventory.add_members();
        inventory
    }

    /// Whether the port exists.
    pub fn has_port(&self, port: &PortRef) -> bool {
        match port {
            PortRef::Uplink(name) => self.uplinks.contains_key(name),
            PortRef::Instance { instance, port } => self
                .instances
                .get(instance)
                .is_some_and(|spec| spec.ports.iter().any(|p| p.name == *port)),
        }
    }

    /// Takes down that an action was carried out.
    pub fn record(&mut self, action: &Action) {
        match action.clone() {
            Action::CreateGroup { name, spec } => drop(self.groups.insert(name, spec)),
            Action::ChangeGroup { name, new, .. } => drop(self.groups.insert(name, new)),
            Action::RemoveGroup { name, .. } => drop(self.groups.remove(&name)),
            Action::CreateSwitch { name, spec } => drop(self.switches.insert(name, spec)),
            Action::UpdateSwitch { name, new, .. } => drop(self.switches.insert(name, new)),
            Action::RemoveSwitch { name, .. } => drop(self.switches.remove(&name)),
            Action::CreateUplink { name, spec } => drop(self.uplinks.insert(name, spec)),
            Action::RemoveUplink { name, .. } => drop(self.uplinks.remove(&name)),
            Action::CreateInstance { name, spec } => drop(self.instances.insert(name, *spec)),
            Action::ReplaceInstance { name, new, .. } => drop(self.instances.insert(name, *new)),
            Action::UpgradeInstance { name, new, .. } => drop(self.instances.insert(name, *new)),
            Action::RemoveInstance { name, .. } => drop(self.instances.remove(&name)),
            Action::Reconfigure { name, new, .. } => self.change(&name, |spec| spec.config = new),
            Action::Resize { name, new, .. } => self.change(&name, |spec| spec.resources = new),
            Action::SetRestart { name, new, .. } => self.change(&name, |spec| spec.restart = new),
            Action::SetWake { name, new, .. } => self.change(&name, |spec| spec.wake = new),
            Action::SetHealth { name, new, .. } => self.change(&name, |spec| spec.health = new),
            Action::SetOrder { name, new, .. } => self.change(&name, |spec| {
                if let Some(attach) = &mut spec.attach {
                    attach.order = new;
                }
            }),
            Action::SetIo { name, new, .. } => self.change(&name, |spec| spec.io = new),
            Action::SetIoSettings { new, .. } => self.io = new,
            Action::SetCongestion { new, .. } => self.congestion = new,
            Action::SetWays { new, .. } => self.ways = new,
            Action::SetPools { new, .. } => self.pools = new,
            Action::Scale { name, new, .. } => self.set_member_count(&name, new),
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

    /// Whether everything that an action needs is there, and nothing that it must not meet.
    pub fn allows(&self, action: &Action) -> bool {
        match action {
            Action::CreateGroup { name, spec } => {
                !self.groups.contains_key(name) && has_place(&self.groups, name, spec)
            }
            Action::ChangeGroup { name, old, new } => {
                self.groups.get(name) == Some(old) && has_place(&self.groups, name, new)
            }
            Action::RemoveGroup { name, .. } => {
                let is_it = |group: &Option<String>| group.as_deref() == Some(name.as_str());
                let mut instances = self.instances.values();
                self.groups.contains_key(name)
                    && !self.groups.values().any(|group| is_it(&group.group))
                    && !instances.any(|spec| is_it(&spec.resources.group))
            }
            Action::CreateSwitch { name, .. } => !self.switches.contains_key(name),
            Action::UpdateSwitch { name, old, .. } => self.switches.get(name) == Some(old),
            Action::RemoveSwitch { name, .. } => {
                let is_used = |to: &Destination| to.switch() == Some(name.as_str());
                self.switches.contains_key(name) && !self.wires.values().any(is_used)
            }
            Action::CreateUplink { name, spec } => {
                let has_it = |other: &UplinkSpec| {
                    other.interface == spec.interface && other.netns == spec.netns
                };
                !self.uplinks.contains_key(name) && !self.uplinks.values().any(has_it)
            }
            Action::RemoveUplink { name, .. } => {
                let is_it = |port: &PortRef| *port == PortRef::Uplink(name.clone());
                self.uplinks.contains_key(name) && !self.is_wired(is_it)
            }
            Action::CreateInstance { name, spec } => {
                !self.instances.contains_key(name) && self.has_group(&spec.resources)
            }
            Action::RemoveInstance { name, .. } | Action::ReplaceInstance { name, .. } => {
                let is_its = |port: &PortRef| port.owner() == Some(name.as_str());
                let is_left = !self.is_wired(is_its) && !self.shares_flows(name);
                self.instances.contains_key(name) && is_left
            }
            Action::Resize { name, new, .. } => {
                self.instances.contains_key(name) && self.has_group(new)
            }
            Action::UpgradeInstance { name, old, .. } => self.instances.get(name) == Some(&**old),
            Action::Reconfigure { name, .. }
            | Action::SetRestart { name, .. }
            | Action::SetWake { name, .. }
            | Action::SetHealth { name, .. } => self.instances.contains_key(name),
            Action::SetOrder { name, old, .. } => self
                .instances
                .get(name)
                .is_some_and(|spec| spec.order() == *old),
            Action::SetIo { name, old, .. } => {
                self.instances.get(name).is_some_and(|spec| spec.io == *old)
            }
            Action::SetIoSettings { old, .. } => self.io == *old,
            Action::SetCongestion { old, .. } => self.congestion == *old,
            Action::SetWays { old, .. } => self.ways == *old,
            Action::SetPools { old, .. } => self.pools == *old,
            Action::Scale { name, old, new } => {
                let mut names = member_names(name, *old.max(new));
                self.member_count(name) == *old && names.all(|it| self.instances.contains_key(&it))
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

    /// The action without what it cannot have: classifier entries for ports that do not exist drop
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

    /// Whether the group is there that these resources are of.
    fn has_group(&self, resources: &Resources) -> bool {
        let group = resources.group.as_ref();
        group.is_none_or(|group| self.groups.contains_key(group))
    }

    /// Whether such a port is at either end of a wire.
    fn is_wired(&self, which: impl Fn(&PortRef) -> bool) -> bool {
        self.wires
            .iter()
            .any(|(from, to)| which(from) || to.targets().any(&which))
    }
}
