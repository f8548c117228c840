//! Trust groups: the pools that instances of one `trust` share. A group exists as long as it has members.

use crate::paths::Paths;
use anyhow::Context;
use nfluid_control::host::slots;
use nfluid_control::pool::Pools;
use nfluid_ring::layout::SHARED_SLOTS_MAX;
use nfluid_switch::abi::GROUPS_MAX;
use nfluid_switch::instance::slots_of;
use nfluid_switch::numbers::Ids;
use nfluid_switch::{Group, Handover, InstanceMemory, PortSpec, Switch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A new group has room for this many times its first members, so that later members can join without a change of
/// memory.
const ROOM: u32 = 2;

/// Documents are validated against the real size of the memory.
const _: () = assert!(nfluid_control::host::SHARED_SLOTS_MAX == SHARED_SLOTS_MAX as u64);

/// All groups of the platform.
pub struct Groups {
    paths: Paths,
    ids: Ids,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    groups: BTreeMap<String, Arc<Group>>,
    /// Slots of the members that the plan in progress creates, by group.
    planned: BTreeMap<String, u32>,
    /// Slots of the shells of all pools, by group.
    pooled: BTreeMap<String, u32>,
}

impl Groups {
    /// Creates an empty table of trust groups.
    pub fn new(paths: Paths) -> Self {
        Groups {
            paths,
            ids: Ids::new(1, GROUPS_MAX),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the members that the plan in progress is going to create: group and ports of each.
    pub fn plan(&self, members: impl Iterator<Item = (String, Vec<PortSpec>)>) {
        let mut known = self.known();
        known.planned.clear();
        for (name, ports) in members {
            *known.planned.entry(name).or_default() += slots_of(&ports);
        }
    }

    /// Records the planned shells, so that a group that is created later has room for them.
    pub fn plan_pools(&self, pools: &Pools) {
        let mut pooled = BTreeMap::new();
        for pool in pools.values() {
            if let Some(trust) = &pool.trust {
                let all = slots(pool.ring, pool.ports as usize) * u64::from(pool.size.most());
                let sum: &mut u32 = pooled.entry(trust.clone()).or_default();
                *sum = sum.saturating_add(u32::try_from(all).unwrap_or(u32::MAX));
            }
        }
        self.known().pooled = pooled;
    }

    /// Returns memory for a new member of group `name`. Creates the group if it does not exist.
    ///
    /// # Errors
    /// The group is full, there are too many groups, or the kernel refuses.
    pub fn member(
        &self,
        switch: &Switch,
        name: &str,
        pool: u32,
        ports: &[PortSpec],
    ) -> anyhow::Result<(InstanceMemory, Handover)> {
        let mut known = self.known();
        let group = match known.groups.get(name) {
            Some(group) => Arc::clone(group),
            None => {
                let noted = |slots: &BTreeMap<String, u32>| slots.get(name).copied().unwrap_or(0);
                let members = noted(&known.planned).max(slots_of(ports));
                let need = members.saturating_add(noted(&known.pooled));
                let need = need.min(SHARED_SLOTS_MAX);
                let group = self.make(switch, name, need)?;
                known.groups.insert(name.to_owned(), Arc::clone(&group));
                group
            }
        };
        InstanceMemory::allocate_in(&group, pool, ports).with_context(|| {
            format!("joining trust group '{name}' (to make it larger, end all of its instances and apply again)")
        })
    }

    fn make(&self, switch: &Switch, name: &str, need: u32) -> anyhow::Result<Arc<Group>> {
        let id = self
            .ids
            .take(1)
            .context("the platform has no room for more trust groups")?;
        let made = self.make_as(switch, name, need, id);
        if made.is_err() {
            self.ids.free(id);
        }
        made.with_context(|| format!("making trust group '{name}'"))
    }

    fn make_as(
        &self,
        switch: &Switch,
        name: &str,
        need: u32,
        id: u32,
    ) -> anyhow::Result<Arc<Group>> {
        let slots = need.saturating_mul(ROOM).min(SHARED_SLOTS_MAX).max(need);
        let mut group = Group::create(switch, id, slots)?;
        let pins = self.paths.group_pins(name);
        // Pins of a daemon that died in between.
        let _ = std::fs::remove_dir_all(&pins);
        if let Err(error) = group.pin(&pins) {
            switch.remove_group(&group)?;
            return Err(error.into());
        }
        Ok(Arc::new(group))
    }

    /// Adopts group `name` with number `id` from an earlier daemon.
    ///
    /// # Errors
    /// The group does not exist any more.
    pub fn adopt(&self, name: &str, id: u32) -> anyhow::Result<Arc<Group>> {
        let mut known = self.known();
        if let Some(group) = known.groups.get(name) {
            anyhow::ensure!(group.id() == id, "trust group '{name}' was made anew");
            return Ok(Arc::clone(group));
        }
        anyhow::ensure!(id != 0, "it was in no trust group");
        let group = Arc::new(Group::reopen(&self.paths.group_pins(name), id)?);
        self.ids.mark(id);
        known.groups.insert(name.to_owned(), Arc::clone(&group));
        Ok(group)
    }

    /// Called after the adoption of instances: only instances with these pools exist. Frees the slots of all others,
    /// and removes groups without members.
    pub fn keep_only(&self, switch: &Switch, pools: &BTreeSet<u32>) {
        for group in self.known().groups.values() {
            group.keep_only(pools);
        }
        self.end_unused(switch);
        let known = self.known();
        let pinned = std::fs::read_dir(self.paths.groups()).into_iter().flatten();
        for entry in pinned.flatten() {
            let name = entry.file_name();
            if !name
                .to_str()
                .is_some_and(|name| known.groups.contains_key(name))
            {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Removes the groups without members.
    pub fn end_unused(&self, switch: &Switch) {
        let mut known = self.known();
        known.groups.retain(|name, group| {
            if group.free_slots() < group.slots() {
                return true;
            }
            if let Err(error) = switch.remove_group(group) {
                tracing::warn!(group = name, %error, "its pool stays until its number is used again");
            }
            let _ = std::fs::remove_dir_all(self.paths.group_pins(name));
            self.ids.free(group.id());
            false
        });
    }
}
