//! Groups of tenants: references must exist, and nesting must be finite.

use crate::group::DEPTH_MAX;
use crate::model::Deployment;
use crate::report::{Report, did_you_mean};

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let groups = deployment.groups.iter();
    let groups = groups.map(|(name, group)| (format!("groups.{name}.group"), &group.group));
    let instances = deployment.instances.iter();
    let instances =
        instances.map(|(name, instance)| (format!("instances.{name}.group"), &instance.group));
    let pools = deployment.pool.iter();
    let pools = pools.map(|(name, pool)| (format!("pool.{name}.group"), &pool.group));
    for (path, parent) in groups.chain(instances).chain(pools) {
        if let Some(parent) = parent
            && !deployment.groups.contains(parent)
        {
            let remedy = did_you_mean(parent, deployment.groups.names(), "the groups are");
            report.error(&path, format!("there is no group '{parent}'"), remedy);
        }
    }
    for name in deployment.groups.names() {
        check_depth(deployment, name, report);
    }
}

fn check_depth(deployment: &Deployment, name: &str, report: &mut Report<'_>) {
    let path = format!("groups.{name}.group");
    let mut chain = vec![name];
    while let Some(parent) = chain
        .last()
        .and_then(|last| deployment.groups.get(last)?.group.as_deref())
    {
        if parent == name {
            chain.push(parent);
            let message = format!("the group is within itself: {}", chain.join(" in "));
            report.error(&path, message, "take 'group' from one of them");
            return;
        }
        if chain.contains(&parent) {
            // This group only leads into a cycle. The cycle is reported at its own members.
            return;
        }
        chain.push(parent);
    }
    if chain.len() > DEPTH_MAX {
        let message = format!("{} groups are nested", chain.len());
        report.error(&path, message, format!("at most {DEPTH_MAX} can be"));
    }
}
