//! Differences between two deployments, in the terms of the user's document.

use crate::model::{Deployment, Instance, PortRef};
use crate::plan::needs_replacing;
use crate::pool::pools;
use crate::spec::{InstanceSpec, UplinkSpec};
use crate::table::Table;
use nfluid_api::types::{Change, Kind, Verb};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Maximum length of a value that is shown.
const VALUE_CHARS_MAX: usize = 40;

/// Returns a change for each object that differs, in the order in which objects depend on each other.
pub fn changes(old: &Deployment, new: &Deployment) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(
        Kind::Group,
        &old.groups,
        &new.groups,
        &mut changes,
        |old, new| (Verb::Changed, differences(old, new)),
    );
    compare(
        Kind::Flavor,
        &old.flavors,
        &new.flavors,
        &mut changes,
        |old, new| (Verb::Changed, differences(old, new)),
    );
    compare(
        Kind::Uplink,
        &old.uplinks,
        &new.uplinks,
        &mut changes,
        |a, b| {
            let replaced = UplinkSpec::resolve(old, a) != UplinkSpec::resolve(new, b);
            let verb = if replaced {
                Verb::Replaced
            } else {
                Verb::Changed
            };
            (verb, differences(a, b))
        },
    );
    compare(
        Kind::Switch,
        &old.switches,
        &new.switches,
        &mut changes,
        |a, b| (Verb::Changed, differences(a, b)),
    );
    compare(
        Kind::SecurityGroup,
        &old.security_groups,
        &new.security_groups,
        &mut changes,
        |a, b| (Verb::Changed, differences(a, b)),
    );
    io_changes(old, new, &mut changes);
    congestion_changes(old, new, &mut changes);
    pool_changes(old, new, &mut changes);
    instance_changes(old, new, &mut changes);
    link_changes(old, new, &mut changes);
    let reordered = reordered_chains(old, new);
    let mut named = BTreeSet::new();
    compare(
        Kind::Chain,
        &old.chains,
        &new.chains,
        &mut changes,
        |a, b| (Verb::Changed, differences(a, b)),
    );
    named.extend(
        changes
            .iter()
            .filter(|change| change.kind == Kind::Chain)
            .map(|change| change.name.clone()),
    );
    compare(
        Kind::Template,
        &old.templates,
        &new.templates,
        &mut changes,
        |a, b| (Verb::Changed, differences(a, b)),
    );
    for name in reordered.difference(&named) {
        changes.push(Change {
            verb: Verb::Changed,
            kind: Kind::Chain,
            name: name.clone(),
            details: vec!["precedence".into()],
        });
    }
    changes
}

fn change(verb: Verb, kind: Kind, name: impl Into<String>) -> Change {
    Change {
        verb,
        kind,
        name: name.into(),
        details: Vec::new(),
    }
}

fn compare<T: PartialEq>(
    kind: Kind,
    old: &Table<T>,
    new: &Table<T>,
    changes: &mut Vec<Change>,
    describe: impl Fn(&T, &T) -> (Verb, Vec<String>),
) {
    for (name, value) in new.iter() {
        match old.get(name) {
            None => changes.push(change(Verb::Created, kind, name)),
            Some(before) if before != value => {
                let (verb, details) = describe(before, value);
                changes.push(Change {
                    details,
                    ..change(verb, kind, name)
                });
            }
            Some(_) => {}
        }
    }
    let gone = old.names().filter(|name| !new.contains(name));
    changes.extend(gone.map(|name| change(Verb::Removed, kind, name)));
}

/// Adds the changes of the I/O threads. A change of the model is reported at the instances that it changes.
fn io_changes(old: &Deployment, new: &Deployment, changes: &mut Vec<Change>) {
    let (before, now) = (old.io().settings, new.io().settings);
    if before != now {
        changes.push(Change {
            details: differences(&before, &now),
            ..change(Verb::Changed, Kind::Platform, "io")
        });
    }
}

fn congestion_changes(old: &Deployment, new: &Deployment, changes: &mut Vec<Change>) {
    let (before, now) = (old.congestion(), new.congestion());
    if before != now {
        changes.push(Change {
            details: differences(&before, &now),
            ..change(Verb::Changed, Kind::Platform, "congestion")
        });
    }
}

/// Adds the changes of pools, including those of a pool's flavor.
fn pool_changes(old: &Deployment, new: &Deployment, changes: &mut Vec<Change>) {
    let table = |deployment| {
        let mut table = Table::new();
        for (name, pool) in pools(deployment) {
            table.insert(name, pool);
        }
        table
    };
    compare(Kind::Pool, &table(old), &table(new), changes, |old, new| {
        (Verb::Changed, differences(old, new))
    });
}

fn instance_changes(old: &Deployment, new: &Deployment, changes: &mut Vec<Change>) {
    for (name, instance) in new.instances.iter() {
        let Some(before) = old.instances.get(name) else {
            changes.push(change(Verb::Created, Kind::Instance, name));
            continue;
        };
        if before == instance
            && old.flavor(&before.flavor) == new.flavor(&instance.flavor)
            && old.io == new.io
            && old.placement == new.placement
        {
            continue;
        }
        let old_spec = InstanceSpec::resolve(old, name, before);
        let new_spec = InstanceSpec::resolve(new, name, instance);
        let members = (before.members(), instance.members());
        if old_spec != new_spec || members.0 != members.1 {
            let verb = if needs_replacing(&old_spec, &new_spec) {
                Verb::Replaced
            } else {
                Verb::Changed
            };
            let mut details = differences(&old_spec, &new_spec);
            if old_spec.io != new_spec.io {
                details.push(format!("io: {} -> {}", old_spec.io, new_spec.io));
            }
            if members.0 != members.1 {
                details.push(format!("replicas: {} -> {}", members.0, members.1));
            }
            changes.push(Change {
                details,
                ..change(verb, Kind::Instance, name)
            });
        }
        port_changes(name, before, instance, changes);
    }
    let gone = old
        .instances
        .names()
        .filter(|name| !new.instances.contains(name));
    changes.extend(gone.map(|name| change(Verb::Removed, Kind::Instance, name)));
}

/// Adds a change for each port that stays but is attached elsewhere. Ports that are added or removed replace the
/// instance.
fn port_changes(name: &str, old: &Instance, new: &Instance, changes: &mut Vec<Change>) {
    for (port, spec) in new.ports.iter() {
        if let Some(before) = old.ports.get(port)
            && before.attachment != spec.attachment
        {
            changes.push(Change {
                details: differences(&before.attachment, &spec.attachment),
                ..change(
                    Verb::Changed,
                    Kind::Port,
                    PortRef::instance(name, port).to_string(),
                )
            });
        }
    }
}

fn link_changes(old: &Deployment, new: &Deployment, changes: &mut Vec<Change>) {
    let names = |deployment: &Deployment| -> BTreeSet<String> {
        deployment.links.iter().map(|link| link.name()).collect()
    };
    let (old, new) = (names(old), names(new));
    let fresh = new.difference(&old);
    changes.extend(fresh.map(|name| change(Verb::Created, Kind::Link, name)));
    let gone = old.difference(&new);
    changes.extend(gone.map(|name| change(Verb::Removed, Kind::Link, name)));
}

/// Returns the chains whose precedence at a classifier changes.
fn reordered_chains(old: &Deployment, new: &Deployment) -> BTreeSet<String> {
    let (old, new) = (classifiers(old), classifiers(new));
    let mut reordered = BTreeSet::new();
    for (port, new_order) in &new {
        let Some(old_order) = old.get(port) else {
            continue;
        };
        let before = common(old_order, new_order);
        let after = common(new_order, old_order);
        let moved = after.iter().zip(&before).filter(|(a, b)| a != b);
        reordered.extend(moved.map(|(name, _)| (*name).to_owned()));
    }
    reordered
}

/// Returns the names of `order` that are in `other` as well.
fn common<'a>(order: &[&'a str], other: &[&str]) -> Vec<&'a str> {
    let other: HashSet<&str> = other.iter().copied().collect();
    let both = order.iter().filter(|name| other.contains(*name));
    both.copied().collect()
}

/// Returns the chains that start or end at each port, in the order of their precedence.
fn classifiers(deployment: &Deployment) -> BTreeMap<&PortRef, Vec<&str>> {
    let mut orders: BTreeMap<&PortRef, Vec<&str>> = BTreeMap::new();
    for (name, chain) in deployment.chains.iter() {
        for end in [&chain.from, &chain.to] {
            orders.entry(end).or_default().push(name);
        }
    }
    orders
}

/// Returns the keys that differ, two levels deep: `share: 30% -> 50%`.
fn differences<T: Serialize>(old: &T, new: &T) -> Vec<String> {
    // The model always serializes into JSON; if it did not, no difference would be shown.
    let old = serde_json::to_value(old).unwrap_or_default();
    let new = serde_json::to_value(new).unwrap_or_default();
    let mut found = Vec::new();
    compare_values("", &old, &new, 2, &mut found);
    found
}

fn compare_values(path: &str, old: &Value, new: &Value, levels: u32, found: &mut Vec<String>) {
    if old == new {
        return;
    }
    let as_map = |value: &Value| match value {
        Value::Object(map) => Some(map.clone()),
        Value::Null => Some(serde_json::Map::new()),
        _ => None,
    };
    let is_map = old.is_object() || new.is_object();
    if let (true, Some(old), Some(new)) = (is_map && levels > 0, as_map(old), as_map(new)) {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let name = match path {
                "" | "resources" | "program" => key.clone(),
                _ => format!("{path}.{key}"),
            };
            let value = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
            let (old, new) = (value(&old), value(&new));
            compare_values(
                &name,
                &old.unwrap_or_default(),
                &new.unwrap_or_default(),
                levels - 1,
                found,
            );
        }
        return;
    }
    match (shown(old), shown(new)) {
        (Some(old), Some(new)) => found.push(format!("{path}: {old} -> {new}")),
        _ => found.push(path.to_owned()),
    }
}

/// Returns the value as a text, if that is short enough to be shown.
fn shown(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(shown).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(_) => return None,
    };
    let is_short = text.chars().count() <= VALUE_CHARS_MAX && !text.contains('\n');
    is_short.then_some(text)
}
