//! Groups of tenants as nested cgroups: `g-GROUP/g-GROUP/i-INSTANCE` below the platform's own.

use super::Host;
use anyhow::Context;
use nfluid_api::types::{EventKind, GroupStats, GroupStatus, Kind};
use nfluid_control::action::Action;
use nfluid_control::group::{Group, Groups, path};
use nfluid_control::spec::Resources;
use nfluid_instance::cgroups;
use nfluid_instance::machine;
use nfluid_instance::running::{Running, cap_of};
use nfluid_sandbox::cgroup::CgroupRoot;
use std::collections::BTreeMap;

impl Host {
    /// Makes a group, with nothing in it.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn make_group(&mut self, name: &str, spec: &Group) -> anyhow::Result<()> {
        let mut groups = self.tenants.clone();
        groups.insert(name.to_owned(), spec.clone());
        let root = cgroups::place(&self.maker.cgroups, &groups, Some(name))?;
        if let Err(why) = cgroups::limit(&root, &groups, name, spec) {
            let _empty = root.remove_empty();
            return Err(why.context(format!("limiting group {name}")));
        }
        self.tenants = groups;
        Ok(())
    }

    /// Changes a group, and where it is.
    ///
    /// # Errors
    /// It is as before.
    pub(super) fn change_tenant(&mut self, name: &str, new: &Group) -> anyhow::Result<()> {
        let before = self.tenants.clone();
        let mut groups = before.clone();
        let old = groups.insert(name.to_owned(), new.clone());
        let old = old.with_context(|| format!("there is no group {name}"))?;
        let is_moved = old.group != new.group;
        let changed = if is_moved {
            self.move_group(name, &groups)
        } else {
            self.limit_within(name, &groups)
        };
        if let Err(why) = changed {
            let undone = if is_moved {
                self.move_group(name, &before)
            } else {
                self.limit_within(name, &before)
            };
            if let Err(again) = undone {
                tracing::warn!(group = name, "some of the new limits stay: {again:#}");
            }
            return Err(why);
        }
        self.tenants = groups;
        self.weigh_io();
        if is_moved {
            self.remove_empty_groups();
        }
        Ok(())
    }

    /// Removes a group that nothing is in. Its cgroup goes when the plan is carried out: what is left of instances that the
    /// plan has ended is taken down then.
    pub(super) fn remove_tenant(&mut self, name: &str) {
        self.tenants.remove(name);
        self.groups_change = true;
    }

    /// The groups that are in `name`, itself first, outer ones before those in them.
    fn groups_in(groups: &Groups, name: &str) -> Vec<String> {
        let mut inside: Vec<&String> = groups
            .keys()
            .filter(|other| path(groups, Some(other)).contains(&name))
            .collect();
        inside.sort_by_key(|other| path(groups, Some(other)).len());
        inside.into_iter().cloned().collect()
    }

    /// The instances that are in these groups.
    fn instances_in(&self, inside: &[String]) -> Vec<String> {
        let is_inside = |running: &Running| {
            let group = running.spec.resources.group.as_ref();
            group.is_some_and(|group| inside.contains(group))
        };
        let all = self.instances.iter();
        all.filter(|(_, running)| is_inside(running))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Puts in force what limits a group and all in it. On cgroup v1 no cap may be above one around it, at no moment: all
    /// inside are lifted first.
    fn limit_within(&self, name: &str, groups: &Groups) -> anyhow::Result<()> {
        let inside = Self::groups_in(groups, name);
        let roots: Vec<CgroupRoot> = inside
            .iter()
            .map(|group| cgroups::place(&self.maker.cgroups, groups, Some(group)))
            .collect::<Result<_, _>>()?;
        let instances = self.instances_in(&inside);
        let running = || instances.iter().filter_map(|name| self.instances.get(name));
        for one in running() {
            one.cgroup.set_cap(None)?;
        }
        for root in roots.iter().rev() {
            root.set_cap(None)?;
        }
        for (root, group) in roots.iter().zip(&inside) {
            if let Some(spec) = groups.get(group) {
                cgroups::limit(root, groups, group, spec)
                    .with_context(|| format!("limiting group {group}"))?;
            }
        }
        for one in running() {
            let resources = &one.spec.resources;
            let cap = cap_of(groups, resources.group.as_deref(), resources.cap)?;
            one.cgroup.set_cap(cap)?;
        }
        Ok(())
    }

    /// Moves a group and all that is in it to where it is by `groups`.
    fn move_group(&mut self, name: &str, groups: &Groups) -> anyhow::Result<()> {
        let inside = Self::groups_in(groups, name);
        for group in &inside {
            let root = cgroups::place(&self.maker.cgroups, groups, Some(group))?;
            if let Some(spec) = groups.get(group) {
                cgroups::limit(&root, groups, group, spec)
                    .with_context(|| format!("limiting group {group}"))?;
            }
        }
        for instance in self.instances_in(&inside) {
            let Some(running) = self.instances.get_mut(&instance) else {
                continue;
            };
            let resources = running.spec.resources.clone();
            let place = cgroups::place(&self.maker.cgroups, groups, resources.group.as_deref())?;
            let there = place.open(running.cgroup.name());
            // One that is there already was not moved yet when another failed.
            if there.is_ok_and(|there| there.directory() == running.cgroup.directory()) {
                continue;
            }
            running.relocate(&instance, &place, groups, &resources)?;
            self.note_move(&instance);
        }
        Ok(())
    }

    /// Writes down what an instance has used before it was moved. What is lost by a crash in between is a figure.
    fn note_move(&self, name: &str) {
        let path = self.settings.paths.record(name);
        if let Some(running) = self.instances.get(name)
            && let Err(error) = nfluid_records::save(&running.record, &path)
        {
            tracing::warn!(instance = name, %error, "writing down what it used");
        }
    }

    /// Changes what a running instance may use, the group that it is in, and where it runs.
    ///
    /// # Errors
    /// It is as before.
    pub(super) fn resize_instance(&mut self, name: &str, new: &Resources) -> anyhow::Result<()> {
        self.check_settled(name)?;
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let old = running.spec.resources.clone();
        let changed = self
            .put_in_force(name, new)
            .and_then(|()| self.change_spec(name, |spec| spec.resources = new.clone()));
        if let Err(why) = changed {
            if let Err(again) = self.put_in_force(name, &old) {
                tracing::warn!(instance = name, "some of the new limits stay: {again:#}");
            }
            return Err(why);
        }
        self.weigh_io();
        Ok(())
    }

    pub(super) fn put_in_force(&mut self, name: &str, resources: &Resources) -> anyhow::Result<()> {
        let place = cgroups::place(
            &self.maker.cgroups,
            &self.tenants,
            resources.group.as_deref(),
        )?;
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        let there = place.open(running.cgroup.name());
        if there.is_ok_and(|there| there.directory() == running.cgroup.directory()) {
            nfluid_instance::running::set_resources(&running.cgroup, &self.tenants, resources)?;
        } else {
            running.relocate(name, &place, &self.tenants, resources)?;
        }
        running.slice(resources)?;
        self.put_on_cores(name, resources)
    }

    /// Takes over the groups that are to be there, as far as that can be done; the others are left out.
    pub(super) fn adopt_tenants(&mut self, desired: &Groups) {
        let mut names: Vec<&String> = desired.keys().collect();
        names.sort_by_key(|name| path(desired, Some(name)).len());
        for name in names {
            let Some(spec) = desired.get(name) else {
                continue;
            };
            if !nfluid_control::group::has_place(&self.tenants, name, spec) {
                continue;
            }
            if let Err(why) = self.make_group(name, spec) {
                let message = format!("not taken over: {why:#}");
                self.event(EventKind::Warning, Some((Kind::Group, name)), message);
            }
        }
    }

    /// Removes cgroups of instances that are not there, or not there, and of groups that are not.
    pub(super) fn remove_left_cgroups(&self) {
        let adopted = self.instances.values();
        let used: BTreeMap<&str, &Running> = adopted
            .map(|running| (running.cgroup.name(), running))
            .collect();
        for (names, place) in cgroups::places(&self.maker.cgroups) {
            let inside = place.names().unwrap_or_default();
            for name in inside.iter().filter(|name| name.starts_with("i-")) {
                let is_its_place = used.get(name.as_str()).is_some_and(|running| {
                    path(&self.tenants, running.spec.resources.group.as_deref()) == names
                });
                if !is_its_place && let Err(error) = place.remove_leftover(name) {
                    tracing::warn!(cgroup = name, %error, "removing a leftover");
                }
            }
        }
        self.remove_empty_groups();
    }

    /// Removes the cgroups of groups that are not there, or not there any more.
    pub(super) fn remove_empty_groups(&self) {
        for (names, place) in cgroups::places(&self.maker.cgroups).into_iter().rev() {
            let Some(name) = names.last() else { continue };
            let is_its_place =
                self.tenants.contains_key(name) && path(&self.tenants, Some(name)) == names;
            if !is_its_place && let Err(error) = place.remove_empty() {
                tracing::warn!(group = name, %error, "removing a leftover");
            }
        }
    }

    /// All groups.
    pub fn group_statuses(&self) -> Vec<GroupStatus> {
        let cpus = machine::cpu_count();
        let status = |(name, spec): (&String, &Group)| {
            let percent = |portion: Option<nfluid_control::portion::Portion>| {
                portion.map(|portion| portion.percent(cpus))
            };
            let groups = self.tenants.iter();
            let groups = groups.filter(|(_, other)| other.group.as_ref() == Some(name));
            GroupStatus {
                name: name.clone(),
                group: spec.group.clone(),
                share_percent: percent(spec.share),
                cap_percent: percent(spec.cap),
                guarantee_percent: percent(spec.guarantee),
                groups: groups.map(|(name, _)| name.clone()).collect(),
                instances: self.instances_in(std::slice::from_ref(name)),
            }
        };
        self.tenants.iter().map(status).collect()
    }

    /// What the groups have used. `own_io` has, by instance, what the I/O thread has used that makes no other's calls: the
    /// threads are one process, in a cgroup of its own.
    pub(super) fn group_stats(&self, own_io: &BTreeMap<&str, u64>) -> Vec<GroupStats> {
        let cpus = machine::cpu_count();
        let stats = |(name, spec): (&String, &Group)| {
            let root = cgroups::place(&self.maker.cgroups, &self.tenants, Some(name)).ok();
            let used = root.and_then(|root| root.stats().ok()).unwrap_or_default();
            GroupStats {
                name: name.clone(),
                cpu_ns: used.cpu_usage_ns.unwrap_or(0),
                io_cpu_ns: self.io_of_group(name, own_io),
                share_percent: spec.share.map(|share| share.percent(cpus)),
                throttled_ns: used.throttled_ns,
            }
        };
        self.tenants.iter().map(stats).collect()
    }

    /// What I/O threads have used for the instances of a group and of those in it.
    fn io_of_group(&self, name: &str, own_io: &BTreeMap<&str, u64>) -> Option<u64> {
        let is_inside = |instance: &str| {
            let running = self.instances.get(instance);
            let group = running.and_then(|running| running.spec.resources.group.as_deref());
            path(&self.tenants, group).contains(&name)
        };
        let used = own_io.iter().filter(|(instance, _)| is_inside(instance));
        let all: Vec<u64> = used.map(|(_, ns)| *ns).collect();
        (!all.is_empty()).then(|| all.iter().sum())
    }
}

/// Whether groups are made, changed or removed.
pub fn is_about_groups(actions: &[Action]) -> bool {
    let is_one = |action: &Action| {
        matches!(
            action,
            Action::CreateGroup { .. } | Action::ChangeGroup { .. } | Action::RemoveGroup { .. }
        )
    };
    actions.iter().any(is_one)
}

/// The groups as they will be when the plan in progress is carried out.
pub fn planned(present: &Groups, actions: &[Action]) -> Groups {
    let mut planned = present.clone();
    for action in actions {
        match action {
            Action::CreateGroup { name, spec } => drop(planned.insert(name.clone(), spec.clone())),
            Action::ChangeGroup { name, new, .. } => {
                drop(planned.insert(name.clone(), new.clone()))
            }
            _ => {}
        }
    }
    planned
}
