//! Leftovers: those of an instance that was taken out, and those of an earlier daemon.

use super::Process;
use crate::cgroups;
use crate::maker::Maker;
use crate::making::shell::is_shell;
use crate::making::{Left, Making};
use nfluid_control::group::{Groups, path};
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::running::Running;
use nfluid_lifecycle::workload::Remains;
use std::collections::{BTreeMap, BTreeSet};

/// An instance that was taken out. Dropping it removes what is left of it.
pub(super) struct Leaving(Making);

impl Leaving {
    pub(super) fn of(process: Process, spec: InstanceSpec) -> Self {
        let Process {
            maker,
            name,
            memory,
            cgroup,
            process,
            record,
            ..
        } = process;
        let left = Left {
            memory,
            cgroup,
            process,
        };
        Leaving(Making::of(&maker, &name, spec, left, record))
    }
}

impl Remains for Leaving {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn keep_doorbell(&mut self) {
        self.0.keep_doorbell();
    }
}

/// Removes cgroups, processes, ports, pins and records of instances that no daemon has adopted. `adopted` are the
/// instances of this daemon, `groups` the groups of tenants.
pub fn remove_leftovers(maker: &Maker, adopted: &BTreeMap<String, Running>, groups: &Groups) {
    remove_left_cgroups(maker, adopted, groups);
    let numbers = adopted.values().flat_map(Running::port_numbers);
    let in_use: BTreeSet<u32> = numbers.collect();
    let paths = &maker.paths;
    let (mut pools, mut ports) = (Vec::new(), Vec::new());
    for name in nfluid_records::names(&paths.records()) {
        if adopted.contains_key(&name) {
            continue;
        }
        if let Ok(record) = nfluid_records::load::<Record>(&paths.record(&name))
            && let Some(end) = record.first_port.checked_add(record.ports)
            && end <= nfluid_switch::abi::PORTS_MAX
            && record.pool < nfluid_switch::abi::PORTS_MAX
        {
            pools.push(record.pool);
            ports.extend((record.first_port..end).filter(|port| !in_use.contains(port)));
        }
        let _ = std::fs::remove_dir_all(paths.instance_pins(&name));
        let _ = std::fs::remove_file(paths.record(&name));
    }
    remove_left_shells(maker);
    if let Some(folder) = paths.log("").parent() {
        maker.logs.adopt_former(folder);
    }
    // Addresses of these instances in a switch would lead to the next owner of their numbers.
    if let Err(error) = maker.switch.remove_ids(&pools, &ports) {
        tracing::warn!(%error, "removing the ports of leftovers");
    }
    let pools = adopted.values().map(|running| running.record().pool);
    maker.groups.keep_only(&maker.switch, &pools.collect());
}

/// Removes files of shells, whose records are gone or belong to instances by now.
fn remove_left_shells(maker: &Maker) {
    let paths = &maker.paths;
    let pins = paths.instance_pins("");
    for folder in [
        &pins,
        &paths.doorbell(""),
        &paths.log(""),
        &paths.control(""),
    ] {
        let folder = if folder.is_dir() {
            Some(folder.as_path())
        } else {
            folder.parent()
        };
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_shell) {
                let path = entry.path();
                let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
            }
        }
    }
}

/// Removes cgroups of instances and groups that do not exist, or that exist elsewhere.
fn remove_left_cgroups(maker: &Maker, adopted: &BTreeMap<String, Running>, groups: &Groups) {
    let own_name = |(name, running): (&String, &Running)| {
        let record = running.record().cgroup.clone();
        record.unwrap_or_else(|| cgroups::cgroup_name(name))
    };
    let used: BTreeMap<String, &Running> = adopted
        .iter()
        .map(|entry| (own_name(entry), entry.1))
        .collect();
    for (names, place) in cgroups::places(&maker.cgroups) {
        let inside = place.names().unwrap_or_default();
        for name in inside.iter().filter(|name| name.starts_with("i-")) {
            let is_its_place = used.get(name).is_some_and(|running| {
                path(groups, running.spec.resources.group.as_deref()) == names
            });
            if !is_its_place && let Err(error) = place.remove_leftover(name) {
                tracing::warn!(cgroup = name, %error, "removing a leftover");
            }
        }
    }
    cgroups::remove_empty(&maker.cgroups, groups);
}
