//! Groups of tenants as nested cgroups: `g-GROUP/g-GROUP/i-INSTANCE` below the platform's own.

use crate::cgroups;
use crate::limits::portion;
use anyhow::Context;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::action::Action;
use nfluid_control::diff::Diff;
use nfluid_control::events::Events;
use nfluid_control::group::{Group, Groups, has_place, path};
use nfluid_lifecycle::running::Running;
use nfluid_lifecycle::table::Instances;
use nfluid_sandbox::cgroup::{CgroupRoot, CgroupStats, Share};

/// The groups of tenants of a host.
pub struct Tenants {
    platform: CgroupRoot,
    groups: Groups,
    /// Weight of the platform among the host's other cgroups and processes, absent: not known.
    weight: Option<Share>,
}

impl Tenants {
    /// Creates an empty set of groups below the platform's cgroup.
    pub fn new(platform: CgroupRoot) -> Self {
        Tenants {
            platform,
            groups: Groups::new(),
            weight: None,
        }
    }

    /// Gives the platform as a whole the weight of what all in it must get together, in hundredths of a percent of a core:
    /// with the kernel's default it would be one process among many, whatever it has guaranteed. A platform that
    /// guarantees little keeps the default.
    pub fn weigh(&mut self, guaranteed: u64) {
        let weight = portion(guaranteed).map(|share| share.max(Share::DEFAULT));
        let weighed = weight.and_then(|share| {
            if self.weight != Some(share) {
                self.platform.set_weight(share)?;
                self.weight = Some(share);
            }
            Ok(())
        });
        if let Err(error) = weighed {
            tracing::warn!(%error, "the platform keeps its weight among the host's other work: guarantees may not hold");
        }
    }

    /// Returns the groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Creates an empty group.
    ///
    /// # Errors
    /// The group was not created.
    pub fn make(&mut self, name: &str, spec: &Group) -> anyhow::Result<()> {
        let mut groups = self.groups.clone();
        groups.insert(name.to_owned(), spec.clone());
        let root = cgroups::place(&self.platform, &groups, Some(name))?;
        if let Err(why) = cgroups::limit(&root, &groups, name, spec) {
            let _empty = root.remove_empty();
            return Err(why.context(format!("limiting group {name}")));
        }
        self.groups = groups;
        Ok(())
    }

    /// Changes a group and its place.
    ///
    /// # Errors
    /// The group is as before.
    pub fn change(
        &mut self,
        instances: &mut Instances,
        name: &str,
        new: &Group,
    ) -> anyhow::Result<()> {
        let mut groups = self.groups.clone();
        let old = groups.insert(name.to_owned(), new.clone());
        let old = old.with_context(|| format!("there is no group {name}"))?;
        let is_moved = old.group != new.group;
        let mut put_in_force = |groups: &Groups| {
            if is_moved {
                self.relocate(instances, name, groups)
            } else {
                self.limit_within(instances, name, groups)
            }
        };
        if let Err(why) = put_in_force(&groups) {
            if let Err(again) = put_in_force(&self.groups) {
                tracing::warn!(group = name, "some of the new limits stay: {again:#}");
            }
            return Err(why);
        }
        self.groups = groups;
        if is_moved {
            self.remove_empty();
        }
        Ok(())
    }

    /// Removes an empty group. The cgroup stays until [`Tenants::remove_empty`], since leftovers of instances are
    /// taken down first.
    pub fn remove(&mut self, name: &str) {
        self.groups.remove(name);
    }

    /// Removes the cgroups of groups that do not exist, or that exist elsewhere.
    pub fn remove_empty(&self) {
        cgroups::remove_empty(&self.platform, &self.groups);
    }

    /// Adopts the desired groups, as far as possible. Groups that cannot be adopted are left out.
    pub fn adopt(&mut self, desired: &Groups, events: &dyn Events) {
        let mut names: Vec<&String> = desired.keys().collect();
        names.sort_by_key(|name| path(desired, Some(name)).len());
        for name in names {
            let Some(spec) = desired.get(name) else {
                continue;
            };
            if !has_place(&self.groups, name, spec) {
                continue;
            }
            if let Err(why) = self.make(name, spec) {
                let message = format!("not taken over: {why:#}");
                events.record(EventKind::Warning, Some((Kind::Group, name)), message);
            }
        }
    }

    /// Returns the resources that a group has used.
    pub fn usage(&self, name: &str) -> CgroupStats {
        let root = cgroups::place(&self.platform, &self.groups, Some(name)).ok();
        root.and_then(|root| root.stats().ok()).unwrap_or_default()
    }

    /// Applies the limits of a group and of everything in it. On cgroup v1 no cap may exceed an enclosing cap at any
    /// moment: all inner caps are lifted first.
    fn limit_within(
        &self,
        instances: &Instances,
        name: &str,
        groups: &Groups,
    ) -> anyhow::Result<()> {
        let inside = groups_in(groups, name);
        let roots: Vec<CgroupRoot> = inside
            .iter()
            .map(|group| cgroups::place(&self.platform, groups, Some(group)))
            .collect::<Result<_, _>>()?;
        let names = instances_in(instances, &inside);
        let running = || names.iter().filter_map(|name| instances.get(name));
        for one in running() {
            one.workload.lift_cap()?;
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
            one.workload.cap(groups, &one.spec.resources)?;
        }
        Ok(())
    }

    /// Moves a group, with everything in it, to its place in `groups`.
    fn relocate(
        &self,
        instances: &mut Instances,
        name: &str,
        groups: &Groups,
    ) -> anyhow::Result<()> {
        let inside = groups_in(groups, name);
        for group in &inside {
            let root = cgroups::place(&self.platform, groups, Some(group))?;
            if let Some(spec) = groups.get(group) {
                cgroups::limit(&root, groups, group, spec)
                    .with_context(|| format!("limiting group {group}"))?;
            }
        }
        for instance in instances_in(instances, &inside) {
            if let Some(running) = instances.get_mut(&instance) {
                // After a failure, an instance that was not moved yet is already in its old place, and stays.
                running.workload.relocate(groups, &running.spec.resources)?;
            }
        }
        Ok(())
    }
}

/// Returns `name` and the groups inside it, outer groups before inner ones.
fn groups_in(groups: &Groups, name: &str) -> Vec<String> {
    let mut inside: Vec<&String> = groups
        .keys()
        .filter(|other| path(groups, Some(other)).contains(&name))
        .collect();
    inside.sort_by_key(|other| path(groups, Some(other)).len());
    inside.into_iter().cloned().collect()
}

/// The instances that are in these groups.
pub fn instances_in(instances: &Instances, inside: &[String]) -> Vec<String> {
    let is_inside = |running: &Running| {
        let group = running.spec.resources.group.as_ref();
        group.is_some_and(|group| inside.contains(group))
    };
    let all = instances.iter();
    all.filter(|(_, running)| is_inside(running))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns true if groups are made, changed or removed.
pub fn is_about_groups(actions: &[Action]) -> bool {
    let is_one = |action: &Action| matches!(action, Action::Group(_));
    actions.iter().any(is_one)
}

/// The groups as they will be when the plan in progress is carried out.
pub fn planned(present: &Groups, actions: &[Action]) -> Groups {
    let mut planned = present.clone();
    for action in actions {
        if let Action::Group(Diff {
            name,
            new: Some(new),
            ..
        }) = action
        {
            planned.insert(name.clone(), new.clone());
        }
    }
    planned
}
