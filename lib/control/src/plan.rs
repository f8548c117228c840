//! The difference of two inventories as an ordered list of actions.
//!
//! The order keeps every step possible and traffic unharmed. Uplinks let in no frames meanwhile that anything in the way
//! would not take, before or after. Objects that will be removed are disconnected first.
//! Interfaces are released before other objects take them. Fast paths that stay get their order before new ones come
//! between them. A new object exists before frames are sent to it, and frames get another destination before their
//! receiver is removed. A port that only changes its destination is switched over in one step: first new ways are led on, then
//! frames are led into them, and what is on the old way still arrives before that is taken down.

use crate::action::Action;
use crate::diff::Diff;
use crate::frames::levels_between;
use crate::group::path;
use crate::inventory::Inventory;
use crate::levels::Levels;
use crate::members::member_names;
use crate::model::{PortRef, Program};
use crate::setting::{PlatformSetting, changed, settings};
use crate::spec::{InstanceSpec, UplinkSpec};
use crate::wiring::Destination;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Actions that lead from `current` to `desired`; empty when there is no difference.
pub fn plan(current: &Inventory, desired: &Inventory) -> Vec<Action> {
    let desired = &with_present_memory(current, desired);
    let rebuilt = Rebuilt::find(current, desired);
    let mut actions = Vec::new();
    let wires = wire_steps(current, desired, &rebuilt);
    let scaled = scale_steps(current, desired, &rebuilt);
    let between = levels_between(current, desired);
    change_levels(&current.levels, &between, &mut actions);
    actions.extend(scaled.fewer);
    actions.extend(wires.disconnect);
    remove_uplinks(current, desired, &mut actions);
    remove_fast_paths(current, desired, &mut actions);
    order_fast_paths(current, desired, &rebuilt, &mut actions);
    make_groups(current, desired, &mut actions);
    make_switches(current, desired, &mut actions);
    make_uplinks(current, desired, &mut actions);
    let mut set = |setting| set_platform(current, desired, setting, &mut actions);
    set(PlatformSetting::Io(desired.io.clone()));
    set(PlatformSetting::Congestion(desired.congestion.clone()));
    set(PlatformSetting::Pools(desired.pools.clone()));
    make_instances(current, desired, &rebuilt, &mut actions);
    actions.extend(wires.connect);
    actions.extend(wires.change);
    actions.extend(wires.close);
    actions.extend(wires.drain);
    actions.extend(wires.leave);
    actions.extend(scaled.more);
    remove_instances(current, desired, &mut actions);
    remove_switches(current, desired, &mut actions);
    remove_groups(current, desired, &mut actions);
    let ways = PlatformSetting::Ways(desired.ways.clone());
    set_platform(current, desired, ways, &mut actions);
    change_levels(&between, &desired.levels, &mut actions);
    actions
}

/// The desired objects, with the memory for long frames that they keep.
fn with_present_memory<'a>(current: &Inventory, desired: &'a Inventory) -> Cow<'a, Inventory> {
    if desired.uplinks.is_empty() {
        return Cow::Borrowed(desired);
    }
    let mut kept = desired.clone();
    kept.keep_memory(current, |old, new| {
        !needs_replacing(old, new) || is_handed_over(old, new)
    });
    Cow::Owned(kept)
}

/// Present objects that are replaced, or that are removed before others are created.
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
                .filter(|(name, old)| !desired.uplinks.get(*name).is_some_and(|new| old.is_as(new)))
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

/// Returns true if the change from `old` to `new` cannot be made while the instance runs.
pub fn needs_replacing(old: &InstanceSpec, new: &InstanceSpec) -> bool {
    let takes_new_configuration =
        new.is_hosted() && new.stack.is_none() && !new.tier.capabilities().boots_kernel;
    old.program != new.program
        || old.makes_processes() != new.makes_processes()
        || old.tier != new.tier
        || !is_at_the_same_interfaces(old, new)
        || old.stack != new.stack
        || old.access != new.access
        || !old.has_ports_for(new)
        || old.frames != new.frames
        || old.flavor != new.flavor
        || old.ring != new.ring
        || old.trust != new.trust
        || old.owner != new.owner
        || (old.config != new.config && !takes_new_configuration)
}

/// Fast paths change their order there while packets pass.
fn is_at_the_same_interfaces(old: &InstanceSpec, new: &InstanceSpec) -> bool {
    match (&old.attach, &new.attach) {
        (Some(old), Some(new)) => old.is_at(new),
        (old, new) => old.is_none() && new.is_none(),
    }
}

/// Returns true if `new` can take over the ports of `old` while frames pass: both are built-in NFs, with one queue
/// per port, and with memory of their own. Their tiers may differ.
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
        && old.has_ports_for(new)
        && old.frames == new.frames
        && old.ring == new.ring
}

struct ScaleSteps {
    /// Done before any object of these members is removed.
    fewer: Vec<Action>,
    /// Done when all members exist, and their frames have a destination.
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
        // Ports that are created again have no members, and members that are gone have no flows.
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

#[derive(Default)]
struct WireSteps {
    /// Ports of objects that are made anew.
    disconnect: Vec<Action>,
    /// Ports that have no destination.
    connect: Vec<Action>,
    /// Ports that get another destination.
    change: Vec<Action>,
    /// Uplinks that have none afterwards.
    close: Vec<Action>,
    /// The wait for frames in the instances of `leave`.
    drain: Option<Action>,
    /// Ports of instances that have no destination afterwards.
    leave: Vec<Action>,
}

impl WireSteps {
    /// Where frames are led elsewhere, those on the old way still arrive.
    fn add_drain(&mut self) {
        let ports = self.leave.iter().filter_map(|action| match action {
            Action::Wire { port, .. } => port.owner(),
            _ => None,
        });
        let instances: BTreeSet<&str> = ports.collect();
        if !instances.is_empty() && !self.change.is_empty() {
            let instances = instances.into_iter().map(str::to_owned).collect();
            self.drain = Some(Action::Drain { instances });
        }
    }
}

fn wire_steps(current: &Inventory, desired: &Inventory, rebuilt: &Rebuilt<'_>) -> WireSteps {
    let mut steps = WireSteps::default();
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
            let steps = match (old, new) {
                (None, _) => &mut steps.connect,
                (_, Some(_)) => &mut steps.change,
                (_, None) if port.owner().is_none() => &mut steps.close,
                (_, None) => &mut steps.leave,
            };
            steps.push(Action::Wire {
                port: port.clone(),
                old: old.cloned(),
                new: new.cloned(),
            });
        }
    }
    steps.add_drain();
    steps
}

fn leads_to(destination: &Destination, rebuilt: &Rebuilt<'_>) -> bool {
    destination.targets().any(|target| rebuilt.contains(target))
}

/// The changes that lead from one table to the other, by name.
fn diffs<T: Clone + PartialEq>(
    current: &BTreeMap<String, T>,
    desired: &BTreeMap<String, T>,
) -> Vec<Diff<T>> {
    let mut names: BTreeSet<&String> = current.keys().chain(desired.keys()).collect();
    names.retain(|name| current.get(*name) != desired.get(*name));
    let diff = |name: &String| Diff {
        name: name.clone(),
        old: current.get(name).cloned(),
        new: desired.get(name).cloned(),
    };
    names.into_iter().map(diff).collect()
}

/// The uplinks that do not stay as they are. A changed one is removed, and made again.
fn changed_uplinks(
    current: &Inventory,
    desired: &Inventory,
) -> impl Iterator<Item = Diff<UplinkSpec>> {
    let changed = diffs(&current.uplinks, &desired.uplinks).into_iter();
    changed.filter(|diff| match (&diff.old, &diff.new) {
        (Some(old), Some(new)) => !old.is_as(new),
        _ => true,
    })
}

fn remove_uplinks(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let gone = changed_uplinks(current, desired);
    let gone = gone.filter_map(|diff| Some(Diff::remove(diff.name, diff.old?)));
    actions.extend(gone.map(Action::Uplink));
}

fn make_uplinks(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let fresh = changed_uplinks(current, desired);
    let fresh = fresh.filter_map(|diff| Some(Diff::create(diff.name, diff.new?)));
    actions.extend(fresh.map(Action::Uplink));
}

fn make_switches(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let all = diffs(&current.switches, &desired.switches).into_iter();
    actions.extend(all.filter(|diff| diff.new.is_some()).map(Action::Switch));
}

fn remove_switches(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let all = diffs(&current.switches, &desired.switches).into_iter();
    actions.extend(all.filter(|diff| diff.new.is_none()).map(Action::Switch));
}

/// Changes a setting of the platform, if it is not as it shall be.
fn set_platform(
    current: &Inventory,
    desired: &Inventory,
    setting: PlatformSetting,
    actions: &mut Vec<Action>,
) {
    let (old, new) = (setting.as_in(current), setting.as_in(desired));
    if old != new {
        actions.push(Action::Platform { old, new });
    }
}

/// Changes what uplinks let in.
fn change_levels(old: &Levels, new: &Levels, actions: &mut Vec<Action>) {
    if old != new {
        let [old, new] = [old, new].map(|levels| PlatformSetting::Levels(levels.clone()));
        actions.push(Action::Platform { old, new });
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
    // A fast path behind another one on an interface comes later: no packet that the first would stop passes the
    // second.
    fresh.sort_by_key(|(_, spec)| spec.order());
    let fresh = fresh.into_iter();
    actions.extend(fresh.map(|(name, spec)| Action::create_instance(name, spec.clone())));
    for (name, new) in &desired.instances {
        match current.instances.get(name) {
            Some(old) if rebuilt.instances.contains(name.as_str()) => {
                let (old, new) = (Box::new(old.clone()), Box::new(new.clone()));
                actions.push(Action::Instance(Diff::change(name, old, new)));
            }
            Some(old) if needs_replacing(old, new) => {
                // Settings that change while an instance runs change afterwards. The new configuration is in force
                // from the start.
                let mut upgraded = new.clone();
                for setting in settings(old) {
                    setting.put(&mut upgraded);
                }
                upgraded.config = new.config.clone();
                upgraded.keep_long(old);
                actions.push(Action::Upgrade {
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
    let changed = changed(old, new).into_iter();
    actions.extend(changed.map(|(old, new)| Action::Set {
        name: name.to_owned(),
        old,
        new,
    }));
}

/// Removed before other objects may want the interfaces.
fn remove_fast_paths(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let gone = missing(&current.instances, &desired.instances);
    let mut gone: Vec<_> = gone.filter(|(_, spec)| spec.is_fast_path()).collect();
    // The last first: as when they are made.
    gone.sort_by_key(|(_, spec)| std::cmp::Reverse(spec.order()));
    actions.extend(gone.into_iter().map(removal));
}

/// Fast paths move one after the other, so that two that both move up, or both down, never change places in between.
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
    actions.extend(steps.map(|(name, old, new)| Action::Order {
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
    Action::remove_instance(name, spec.clone())
}

/// Creates and changes groups in an order in which the parent of each exists, and no group is put into itself: outer
/// groups first.
fn make_groups(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let mut all = diffs(&current.groups, &desired.groups);
    all.retain(|diff| diff.new.is_some());
    all.sort_by_key(|diff| path(&desired.groups, Some(&diff.name)).len());
    actions.extend(all.into_iter().map(Action::Group));
}

/// Removes groups, inner ones first.
fn remove_groups(current: &Inventory, desired: &Inventory, actions: &mut Vec<Action>) {
    let mut all = diffs(&current.groups, &desired.groups);
    all.retain(|diff| diff.new.is_none());
    all.sort_by_key(|diff| path(&current.groups, Some(&diff.name)).len());
    actions.extend(all.into_iter().rev().map(Action::Group));
}

/// The entries of `here` whose names are not in `there`.
fn missing<'a, T>(
    here: &'a BTreeMap<String, T>,
    there: &'a BTreeMap<String, T>,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    here.iter().filter(|(name, _)| !there.contains_key(*name))
}
