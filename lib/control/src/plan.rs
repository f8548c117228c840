//! The difference of two inventories as an ordered list of actions.
//!
//! The order keeps every step possible and traffic unharmed: what is to vanish is disconnected
//! first, interfaces are let go before they are taken again, fast paths that stay find their order before others come between them, everything new exists before frames
//! are sent to it, frames are sent elsewhere before their receiver is removed. A port that only
//! changes its destination is switched over in one step.

use crate::action::Action;
use crate::group::{Groups, path};
use crate::inventory::Inventory;
use crate::members::member_names;
use crate::model::{PortRef, Program};
use crate::spec::InstanceSpec;
use crate::wiring::Destination;
use std::collections::{BTreeMap, BTreeSet};

/// Actions that lead from `current` to `desired`; empty when there is no difference.
pub fn plan(current: &Inventory, desired: &Inventory) -> Vec<Action> {
    let rebuilt = Rebuilt::find(current, desired);
    let mut actions = Vec::new();
    let wires = wire_steps(current, desired, &rebuilt);
    let scaled = scale_steps(current, desired, &rebuilt);
    actions.extend(scaled.fewer);
    actions.extend(wires.disconnect);
    remove_uplinks(current, desired, &mut actions);
    remove_fast_paths(current, desired, &mut actions);
    order_fast_paths(current, desired, &rebuilt, &mut actions);
    make_groups(current, desired, &mut actions);
    make_switches(current, desired, &mut actions);
    make_uplinks(current, desired, &mut actions);
    set_io_settings(current, desired, &mut actions);
    set_congestion(current, desired, &mut actions);
    set_pools(current, desired, &mut actions);
    make_instances(current, desired, &rebuilt, &mut actions);
    actions.extend(wires.connect);
    actions.extend(scaled.more);
    remove_instances(current, desired, &mut actions);
    remove_switches(current, desired, &mut actions);
    remove_groups(current, desired, &mut actions);
    set_ways(current, desired, &mut actions);
    actions
}

/// Objects of the present that another takes the place of, or that go before others come.
struct Rebuilt<'a> {
    instances: BTreeSet<&'a str>,
    uplinks: BTreeSet<&'a str>,
}

impl<'a> Rebuilt<'a> {
    fn find(current: &'a Inventory, desired: &Inventory) -> Self {
        Rebuilt {
            instances: current
                .instances
                .iter()
                .filter(|(name, old)| {
                    desired
                        .instances
                        .get(*name)
                        .is_some_and(|new| needs_replacing(old, new) && !is_handed_over(old, new))
                })
                .map(|(name, _)| name.as_str())
                .collect(),
            uplinks: current
                .uplinks
                .iter()
                .filter(|(name, old)| desired.uplinks.get(*name) != Some(*old))
                .map(|(name, _)| name.as_str())
                .collect(),
        }
    }

    fn contains(&self, port: &PortRef) -> bool {
        match port {
            PortRef::Uplink(name) => self.uplinks.contains(name.as_str()),
            PortRef::Instance { instance, .. } => self.instances.contains(instance.as_str()),
        }
    }
}

/// Whether the change from `old` to `new` cannot be made while the instance runs.
pub fn needs_replacing(old: &InstanceSpec, new: &InstanceSpec) -> bool {
    let takes_new_configuration =
        matches!(new.program, Program::BuiltIn { .. }) && new.stack.is_none();
    old.program != new.program
        || old.tier != new.tier
        || !is_at_the_same_interfaces(old, new)
        || old.stack != new.stack
        || old.ports != new.ports
        || old.flavor != new.flavor
        || old.ring != new.ring
        || old.trust != new.trust
        || (old.config != new.config && !takes_new_configuration)
}

/// Fast paths change their order there while packets pass.
fn is_at_the_same_interfaces(old: &InstanceSpec, new: &InstanceSpec) -> bool {
    match (&old.attach, &new.attach) {
        (Some(old), Some(new)) => old.is_at(new),
        (old, new) => old.is_none() && new.is_none(),
    }
}

/// Whether `new` can be put in the place of `old` on the same ports, which `old` hands over while frames pass: both are
/// built-in NFs, with a queue and memory for each port of their own.
pub fn is_handed_over(old: &InstanceSpec, new: &InstanceSpec) -> bool {
    let hands_over = |spec: &InstanceSpec| {
        let built_in = matches!(spec.program, Program::BuiltIn { .. });
        let capable = spec.tier.capabilities().hands_over;
        capable
            && built_in
            && spec.stack.is_none()
            && spec.trust.is_none()
            && spec.ports.iter().all(|port| port.queues == 1)
    };
    hands_over(old)
        && hands_over(new)
        && old.tier == new.tier
        && old.ports == new.ports
        && old.ring == new.ring
}

struct ScaleSteps {
    /// Before anything of theirs is taken away.
    fewer: Vec<Action>,
    /// When all members are there, and their frames have a way.
    more: Vec<Action>,
}

fn scale_steps(current: &Inventory, desired: &Inventory, rebuilt: &Rebuilt<'_>) -> ScaleSteps {
    let mut steps = ScaleSteps {
        fewer: Vec::new(),
        more: Vec::new(),
    };
    let names: BTreeSet<&String> = current
        .members
        .keys()
        .chain(desired.members.keys())
        .collect();
    for name in names {
        let (before, wanted) = (current.member_count(name), desired.member_count(name));
        // Ports that are made anew have no members, and members that have gone no flows.
        let is_there = |member: &String| {
            current.instances.contains_key(member) && !rebuilt.instances.contains(member.as_str())
        };
        let stay = member_names(name, before).all(|member| is_there(&member));
        let between = if stay {
            wanted.clamp(1, before.max(1))
        } else {
            1
        };
        let scale = |old, new| Action::Scale {
            name: name.clone(),
            old,
            new,
        };
        if between < before {
            steps.fewer.push(scale(before, between));
        }
        if between < wanted {
            steps.more.push(scale(between, wanted));
        }
    }
    steps
}

struct WireSteps {
    disconnect: Vec<Action>,
    connect: Vec<Action>,
}

fn wire_steps(current: &Inventory, desired: &Inventory, rebuilt: &Rebuilt<'_>) -> WireSteps {
    let mut steps = WireSteps {
        disconnect: Vec::new(),
        connect: Vec::new(),
    };
    let ports: BTreeSet<&PortRef> = current.wires.keys().chain(desired.wires.keys()).collect();
    for port in ports {
        let mut old = current.wires.get(port);
        let new = desired.wires.get(port);
        let disturbed = |to: &Destination| rebuilt.contains(port) || leads_to(to, rebuilt);
        if old.is_some_and(disturbed) {
            steps.disconnect.push(Action::Wire {
                port: port.clone(),
                old: old.take().cloned(),
                new: None,
            });
        }
        if old != new {
            steps.connect.push(Action::Wire {
                port: port.clone(),
                old: old.cloned(),
                new: new.cloned(),
            });
        }
    }
    steps
}

fn leads_to(destination: &Destination, rebuilt: &Rebuilt<'_>) -> bool {
    destination.targets().any(|target| rebuilt.contains(target))
}

fn remove_uplinks(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let gone = current
        .uplinks
        .iter()
        .filter(|(name, old)| desired.uplinks.get(*name) != Some(*old));
    actions.extend(gone.map(|(name, spec)| Action::RemoveUplink {
        name: name.clone(),
        spec: spec.clone(),
    }));
}

fn make_uplinks(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let fresh = desired
        .uplinks
        .iter()
        .filter(|(name, new)| current.uplinks.get(*name) != Some(*new));
    actions.extend(fresh.map(|(name, spec)| Action::CreateUplink {
        name: name.clone(),
        spec: spec.clone(),
    }));
}

fn make_switches(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    for (name, new) in &desired.switches {
        let name = name.clone();
        match current.switches.get(&name) {
            None => actions.push(Action::CreateSwitch { name, spec: *new }),
            Some(old) if old != new => actions.push(Action::UpdateSwitch {
                name,
                old: *old,
                new: *new,
            }),
            Some(_) => {}
        }
    }
}

fn remove_switches(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let gone = missing(&current.switches, &desired.switches);
    actions.extend(gone.map(|(name, spec)| Action::RemoveSwitch {
        name: name.clone(),
        spec: *spec,
    }));
}

fn set_io_settings(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    if current.io != desired.io {
        actions.push(Action::SetIoSettings {
            old: current.io.clone(),
            new: desired.io.clone(),
        });
    }
}

fn set_congestion(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    if current.congestion != desired.congestion {
        actions.push(Action::SetCongestion {
            old: current.congestion.clone(),
            new: desired.congestion.clone(),
        });
    }
}

fn set_ways(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    if current.ways != desired.ways {
        actions.push(Action::SetWays {
            old: current.ways.clone(),
            new: desired.ways.clone(),
        });
    }
}

fn set_pools(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    if current.pools != desired.pools {
        actions.push(Action::SetPools {
            old: current.pools.clone(),
            new: desired.pools.clone(),
        });
    }
}

/// New instances before changed ones: a failure is likeliest there, and least harmful.
fn make_instances(
    current: &Inventory,
    desired: &Inventory,
    rebuilt: &Rebuilt<'_>,
    actions: &mut Vec<Action>,
) {
    let mut fresh: Vec<_> = missing(&desired.instances, &current.instances).collect();
    // Who is behind another on an interface comes after it: what the other would stop does not get past it.
    fresh.sort_by_key(|(_, spec)| spec.order());
    actions.extend(
        fresh
            .into_iter()
            .map(|(name, spec)| Action::CreateInstance {
                name: name.clone(),
                spec: Box::new(spec.clone()),
            }),
    );
    for (name, new) in &desired.instances {
        match current.instances.get(name) {
            Some(old) if rebuilt.instances.contains(name.as_str()) => {
                actions.push(Action::ReplaceInstance {
                    name: name.clone(),
                    old: Box::new(old.clone()),
                    new: Box::new(new.clone()),
                });
            }
            Some(old) if needs_replacing(old, new) => {
                // What changes while it runs does so afterwards.
                let upgraded = InstanceSpec {
                    resources: old.resources.clone(),
                    restart: old.restart,
                    wake: old.wake,
                    health: old.health.clone(),
                    io: old.io,
                    ..new.clone()
                };
                actions.push(Action::UpgradeInstance {
                    name: name.clone(),
                    old: Box::new(old.clone()),
                    new: Box::new(upgraded.clone()),
                });
                change_instance(name, &upgraded, new, actions);
            }
            Some(old) => change_instance(name, old, new, actions),
            None => {}
        }
    }
}

fn change_instance(name: &str, old: &InstanceSpec, new: &InstanceSpec, actions: &mut Vec<Action>) {
    if old.resources != new.resources {
        actions.push(Action::Resize {
            name: name.into(),
            old: old.resources.clone(),
            new: new.resources.clone(),
        });
    }
    if old.config != new.config {
        actions.push(Action::Reconfigure {
            name: name.into(),
            old: old.config.clone(),
            new: new.config.clone(),
        });
    }
    if old.restart != new.restart {
        actions.push(Action::SetRestart {
            name: name.into(),
            old: old.restart,
            new: new.restart,
        });
    }
    if old.wake != new.wake {
        actions.push(Action::SetWake {
            name: name.into(),
            old: old.wake,
            new: new.wake,
        });
    }
    if old.health != new.health {
        actions.push(Action::SetHealth {
            name: name.into(),
            old: old.health.clone(),
            new: new.health.clone(),
        });
    }
    if old.io != new.io {
        actions.push(Action::SetIo {
            name: name.into(),
            old: old.io,
            new: new.io,
        });
    }
}

/// Before others may want their interfaces.
fn remove_fast_paths(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let gone = missing(&current.instances, &desired.instances);
    let mut gone: Vec<_> = gone.filter(|(_, spec)| spec.is_fast_path()).collect();
    // The last first: as when they are made.
    gone.sort_by_key(|(_, spec)| std::cmp::Reverse(spec.order()));
    actions.extend(gone.into_iter().map(removal));
}

/// One after the other, so that two of which both move up, or both down, never change places on the way.
fn order_fast_paths(
    current: &Inventory,
    desired: &Inventory,
    rebuilt: &Rebuilt<'_>,
    actions: &mut Vec<Action>,
) {
    let stay = current.instances.iter().filter_map(|(name, old)| {
        let new = desired.instances.get(name)?;
        let moves = !rebuilt.instances.contains(name.as_str()) && old.order() != new.order();
        moves.then(|| (name, old.order(), new.order()))
    });
    let (mut up, mut down): (Vec<_>, Vec<_>) = stay.partition(|(_, old, new)| new > old);
    up.sort_by_key(|(_, _, new)| std::cmp::Reverse(*new));
    down.sort_by_key(|(_, _, new)| *new);
    let steps = up.into_iter().chain(down);
    actions.extend(steps.map(|(name, old, new)| Action::SetOrder {
        name: name.clone(),
        old,
        new,
    }));
}

fn remove_instances(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let gone = missing(&current.instances, &desired.instances);
    let gone = gone.filter(|(_, spec)| !spec.is_fast_path());
    actions.extend(gone.map(removal));
}

fn removal((name, spec): (&String, &InstanceSpec)) -> Action {
    Action::RemoveInstance {
        name: name.clone(),
        spec: Box::new(spec.clone()),
    }
}

/// The names of groups, the outermost first.
fn outermost_first(groups: &Groups) -> Vec<&String> {
    let mut names: Vec<&String> = groups.keys().collect();
    names.sort_by_key(|name| path(groups, Some(name)).len());
    names
}

/// Makes and changes groups, so that the place of each is there, and none goes into itself, before it comes there.
fn make_groups(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    for name in outermost_first(&desired.groups) {
        let Some(new) = desired.groups.get(name) else {
            continue;
        };
        match current.groups.get(name) {
            None => actions.push(Action::CreateGroup {
                name: name.clone(),
                spec: new.clone(),
            }),
            Some(old) if old != new => actions.push(Action::ChangeGroup {
                name: name.clone(),
                old: old.clone(),
                new: new.clone(),
            }),
            Some(_) => {}
        }
    }
}

fn remove_groups(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    for name in outermost_first(&current.groups).into_iter().rev() {
        if let (Some(spec), false) = (current.groups.get(name), desired.groups.contains_key(name)) {
            actions.push(Action::RemoveGroup {
                name: name.clone(),
                spec: spec.clone(),
            });
        }
    }
}

/// The entries of `here` whose names are not in `there`.
fn missing<'a, T>(
    here: &'a BTreeMap<String, T>,
    there: &'a BTreeMap<String, T>,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    here.iter().filter(|(name, _)| !there.contains_key(*name))
}
