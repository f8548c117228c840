//! Trust groups: whether what their members share can be as large as they need it.

use super::instances::queues;
use crate::host::{SHARED_SLOTS_MAX, slots};
use crate::model::{Deployment, Instance};
use crate::report::Report;
use std::collections::BTreeMap;

pub fn check(deployment: &Deployment, report: &mut Report<'_>) {
    let mut groups: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for (name, instance) in deployment.instances.iter() {
        if let Some(trust) = &instance.trust {
            let member = (name, need(deployment, instance));
            groups.entry(trust).or_default().push(member);
        }
    }
    for (trust, members) in groups {
        let path = format!("instances.{}.trust", members[0].0);
        let all: u64 = members.iter().map(|(_, slots)| slots).sum();
        if all > SHARED_SLOTS_MAX {
            report.error(
                &path,
                format!(
                    "the {} instances of trust group '{trust}' need {all} slots for frames together, a group has at most {SHARED_SLOTS_MAX}",
                    members.len()
                ),
                "give them a flavor with smaller rings, or make several groups of them",
            );
        } else if members.len() == 1 {
            report.warning(
                &path,
                format!("nobody else is in trust group '{trust}'"),
                "give those that it trusts the same 'trust', or leave it out",
            );
        }
    }
}

fn need(deployment: &Deployment, instance: &Instance) -> u64 {
    let ring = deployment
        .flavor(&instance.flavor)
        .map_or(0, |flavor| flavor.ring);
    slots(ring, queues(instance))
}
