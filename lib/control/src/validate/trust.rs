//! Trust groups: the memory that the members share must be large enough for all of them.

use crate::host::{SHARED_SLOTS_MAX, slots};
use crate::model::{Deployment, Instance};
use crate::report::Report;
use std::collections::BTreeMap;

/// The users of a group's slots: key path in the document, and number of slots.
#[derive(Default)]
struct Members {
    instances: Vec<(String, u64)>,
    pools: Vec<(String, u64)>,
}

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let mut groups: BTreeMap<&str, Members> = BTreeMap::new();
    for (name, instance) in deployment.instances.iter() {
        if let Some(trust) = &instance.trust {
            let member = (
                format!("instances.{name}.trust"),
                need(deployment, instance),
            );
            groups.entry(trust).or_default().instances.push(member);
        }
    }
    for (name, pool) in deployment.pool.iter() {
        if let Some(trust) = &pool.trust {
            let ring = deployment
                .flavor(&pool.flavor)
                .map_or(0, |flavor| flavor.ring);
            let each = slots(ring, pool.ports as usize);
            let shells = (
                format!("pool.{name}.trust"),
                each * u64::from(pool.size.most()),
            );
            groups.entry(trust).or_default().pools.push(shells);
        }
    }
    for (trust, Members { instances, pools }) in groups {
        let all: u64 = instances.iter().chain(&pools).map(|(_, slots)| slots).sum();
        let Some((path, _)) = instances.first().or(pools.first()) else {
            continue;
        };
        if all > SHARED_SLOTS_MAX {
            let beside = if pools.is_empty() {
                ""
            } else {
                " and the shells of its pools"
            };
            report.error(
                path,
                format!(
                    "the {} instances of trust group '{trust}'{beside} need {all} slots for frames together, a group has at most {SHARED_SLOTS_MAX}",
                    instances.len()
                ),
                "give them a flavor with smaller rings, or make several groups of them",
            );
        } else if instances.len() == 1 && pools.is_empty() {
            report.warning(
                path,
                format!("trust group '{trust}' has no other member"),
                "give the trusted instances the same 'trust', or remove it",
            );
        }
    }
}

fn need(deployment: &Deployment, instance: &Instance) -> u64 {
    let ring = deployment
        .flavor(&instance.flavor)
        .map_or(0, |flavor| flavor.ring);
    slots(ring, instance.queues())
}
