//! The cgroups of instances and groups of tenants: `g-GROUP/g-GROUP/i-INSTANCE` below the platform's own.

use crate::machine;
use crate::running::{Running, cap_of, cgroup_name, portion, set_resources};
use nfluid_control::group::{Group, Groups, path, weight};
use nfluid_control::spec::Resources;
use nfluid_sandbox::cgroup::{Cgroup, CgroupError, CgroupRoot};

/// The cgroup of group `name`: a prefix keeps it apart from those of instances.
pub fn directory_name(name: &str) -> String {
    format!("g-{name}")
}

/// How deep the platform's cgroups are looked through: deeper is not ours.
const DEPTH_MAX: u32 = 8;

/// Where the cgroups of `group`'s instances are, made if need be; at the top without a group.
///
/// # Errors
/// The kernel refuses to make a cgroup.
pub fn place(
    platform: &CgroupRoot,
    groups: &Groups,
    group: Option<&str>,
) -> Result<CgroupRoot, CgroupError> {
    let mut place = platform.clone();
    for name in path(groups, group) {
        place = place.within(&directory_name(name))?;
    }
    Ok(place)
}

/// A cgroup for an instance, new: what a daemon that died has left there is removed.
///
/// # Errors
/// The kernel refuses.
pub fn new_cgroup(place: &CgroupRoot, instance: &str) -> Result<Cgroup, CgroupError> {
    let name = cgroup_name(instance);
    place.create(&name).or_else(|_| {
        place.remove_leftover(&name)?;
        place.create(&name)
    })
}

/// Every directory of instances, the platform's own first: the path of its groups' names, and itself.
pub fn places(platform: &CgroupRoot) -> Vec<(Vec<String>, CgroupRoot)> {
    let mut found = vec![(Vec::new(), platform.clone())];
    let mut looked_at = 0;
    while let Some((names, place)) = found.get(looked_at).cloned() {
        looked_at += 1;
        if names.len() as u32 >= DEPTH_MAX {
            continue;
        }
        let inside = place.names().unwrap_or_default();
        for name in inside.iter().filter_map(|name| name.strip_prefix("g-")) {
            if let Ok(within) = place.within(&directory_name(name)) {
                let mut names = names.clone();
                names.push(name.to_owned());
                found.push((names, within));
            }
        }
    }
    found
}

/// The cgroup of this name that the process is in, wherever a daemon that was killed in the middle of a move has left
/// it.
pub fn cgroup_of(platform: &CgroupRoot, name: &str, pid: u32) -> Option<Cgroup> {
    let mut all = places(platform).into_iter();
    all.find_map(|(_, place)| {
        let cgroup = place.open(name).ok()?;
        cgroup
            .processes()
            .is_ok_and(|pids| pids.contains(&pid))
            .then_some(cgroup)
    })
}

/// Weight and cap of a group. A cap that a group around it does not allow is as that one's.
pub fn limit(root: &CgroupRoot, groups: &Groups, name: &str, group: &Group) -> anyhow::Result<()> {
    let share = weight(group.share, group.guarantee, machine::cpu_count());
    root.set_weight(portion(share)?)?;
    root.set_cap(cap_of(groups, Some(name), group.cap)?)?;
    Ok(())
}

impl Running {
    /// Moves the instance to another place, with what limits it there, while it runs. What it has used before is
    /// remembered.
    ///
    /// # Errors
    /// It is where it was.
    pub fn relocate(
        &mut self,
        name: &str,
        place: &CgroupRoot,
        groups: &Groups,
        resources: &Resources,
    ) -> anyhow::Result<()> {
        let new = new_cgroup(place, name)?;
        let stands_still = self.record.paused.is_some();
        let moved = set_resources(&new, groups, resources)
            .and_then(|()| {
                // What is moved into a cgroup that is frozen stands still there.
                if stands_still {
                    new.freeze()?;
                }
                Ok(())
            })
            .and_then(|()| Ok(self.cgroup.move_all(&new)?));
        if let Err(why) = moved {
            if let Err(again) = new.move_all(&self.cgroup).and_then(|()| new.remove()) {
                tracing::warn!(instance = name, error = %again, "some of it stays in another group");
            }
            return Err(why.context(format!("moving instance {name}")));
        }
        self.record.cgroup = None;
        let old = std::mem::replace(&mut self.cgroup, new);
        let used = old.stats().unwrap_or_default();
        self.record.former_cpu_ns += used.cpu_usage_ns.unwrap_or(0);
        self.record.former_throttled_ns += used.throttled_ns.unwrap_or(0);
        if let Err(error) = old.remove() {
            tracing::warn!(instance = name, %error, "removing its former cgroup");
        }
        Ok(())
    }
}
