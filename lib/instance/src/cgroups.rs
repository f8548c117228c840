//! The cgroups of instances and groups of tenants: `g-GROUP/g-GROUP/i-INSTANCE` below the platform's own.

use crate::limits::{cap_of, portion};
use nfluid_control::group::{Group, Groups, path, weight};
use nfluid_lifecycle::machine;
use nfluid_sandbox::cgroup::{Cgroup, CgroupError, CgroupRoot};

/// Returns the name of the cgroup of group `name`: the prefix separates it from those of instances.
pub fn directory_name(name: &str) -> String {
    format!("g-{name}")
}

/// Returns the name of the cgroup of instance `name`: the prefix separates it from the daemon's own.
pub fn cgroup_name(name: &str) -> String {
    format!("i-{name}")
}

/// Depth to which the platform's cgroups are searched: cgroups below that are not the platform's.
const DEPTH_MAX: u32 = 8;

/// Returns the cgroup in which the instances of `group` are, and creates it if necessary. Without a group: the
/// platform's cgroup.
///
/// # Errors
/// The kernel refuses to create a cgroup.
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

/// Creates a new cgroup for an instance. A cgroup that a dead daemon left there is removed.
///
/// # Errors
/// The kernel refuses to create a cgroup.
pub fn new_cgroup(place: &CgroupRoot, instance: &str) -> Result<Cgroup, CgroupError> {
    let name = cgroup_name(instance);
    place.create(&name).or_else(|_| {
        place.remove_leftover(&name)?;
        place.create(&name)
    })
}

/// Returns every directory of instances, the platform's own first: the path of its groups' names, and the directory.
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

/// Returns the cgroup of this name that the process is in, also if a daemon was killed in the middle of a move.
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

/// Sets the weight and the cap of a group. A cap above the cap of an enclosing group is lowered to that.
pub fn limit(root: &CgroupRoot, groups: &Groups, name: &str, group: &Group) -> anyhow::Result<()> {
    let share = weight(group.share, group.guarantee, machine::cpu_count());
    root.set_weight(portion(share)?)?;
    root.set_cap(cap_of(groups, Some(name), group.cap)?)?;
    Ok(())
}

/// Removes the cgroups of groups that do not exist, or that exist elsewhere.
pub fn remove_empty(platform: &CgroupRoot, groups: &Groups) {
    for (names, place) in places(platform).into_iter().rev() {
        let Some(name) = names.last() else { continue };
        let is_its_place = groups.contains_key(name) && path(groups, Some(name)) == names;
        if !is_its_place && let Err(error) = place.remove_empty() {
            tracing::warn!(group = name, %error, "removing a leftover");
        }
    }
}
