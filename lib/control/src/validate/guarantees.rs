//! Guarantees: whether weights and groups give what was guaranteed.

use super::shares::Limits;
use crate::group::weight;
use crate::model::{Deployment, Instance};
use crate::placement::Placement;
use crate::quantity::Share;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};

/// What competes with others in one place: an instance or a group.
struct Contender<'a> {
    /// Its name, if it is a group.
    group: Option<&'a str>,
    path: String,
    limits: Limits<'a>,
    /// CPUs that it can be on at a time.
    cpus: usize,
}

/// Those who compete with each other, by the group that they are in; under nothing: at the top.
type Places<'a> = BTreeMap<Option<&'a str>, Vec<Contender<'a>>>;

/// Checks what is left for each when all want the CPU at once: a place is divided by weights.
pub fn check(deployment: &Deployment, cpus: usize, report: &mut Report<'_>) {
    let places = places(deployment, cpus);
    let all = cpus as f64 * f64::from(Share::FULL.hundredths());
    let mut visited = BTreeSet::new();
    let mut to_do = vec![(None, all)];
    while let Some((place, available)) = to_do.pop() {
        let contenders = places.get(&place).map_or(&[][..], Vec::as_slice);
        let weigh = |it: &Contender<'_>| weight(it.limits.share, it.limits.guarantee, cpus) as f64;
        let sum: f64 = contenders.iter().map(weigh).sum();
        for it in contenders {
            let capped = it
                .limits
                .cap
                .map_or(f64::INFINITY, |cap| cap.hundredths(cpus) as f64);
            let own = it.cpus as f64 * f64::from(Share::FULL.hundredths());
            let left = (available * weigh(it) / sum).min(capped).min(own);
            check_one(it, left, cpus, deployment.overcommit, report);
            // A cycle, which is refused elsewhere, must not keep this going.
            if let Some(group) = it.group
                && visited.insert(group)
            {
                to_do.push((Some(group), left));
            }
        }
    }
}

/// A millionth is lost in divisions.
const ROUNDING: f64 = 1.000_001;

fn check_one(
    it: &Contender<'_>,
    left: f64,
    cpus: usize,
    overcommit: bool,
    report: &mut Report<'_>,
) {
    let Some(guarantee) = it.limits.guarantee else {
        return;
    };
    if guarantee.hundredths(cpus) as f64 <= left * ROUNDING {
        return;
    }
    let path = format!("{}.guarantee", it.path);
    let message = format!(
        "a guarantee of {guarantee} does not hold: when all want the CPU, {:.2}% of a core is left here",
        left / 100.0
    );
    let remedy = "lower guarantees or the shares beside it, raise what its group is guaranteed, or give it more 'cpus'";
    if overcommit {
        report.warning(&path, message, remedy);
    } else {
        let remedy = format!("{remedy}; or accept that it does not hold with 'overcommit: true'");
        report.error(&path, message, remedy);
    }
}

/// CPUs that an instance can be on at a time: one for each of its threads, where it is put on cores.
fn cpus_of(deployment: &Deployment, instance: &Instance, cpus: usize) -> usize {
    let usable = instance.usable_cpus(cpus);
    let placement = instance.placement.or(deployment.placement);
    if placement.unwrap_or_default() == Placement::Free {
        return usable;
    }
    let queues = instance.ports.iter().filter_map(|(_, port)| port.queues);
    usable.min(usize::from(queues.max().unwrap_or(1)))
}

fn places(deployment: &Deployment, cpus: usize) -> Places<'_> {
    let mut places = Places::new();
    let groups = deployment.groups.iter().map(|(name, group)| Contender {
        group: Some(name),
        path: format!("groups.{name}"),
        limits: Limits::of_group(group),
        cpus,
    });
    let instances = deployment.instances.iter();
    let instances = instances.flat_map(|(name, instance)| {
        (0..instance.members()).map(move |_| Contender {
            group: None,
            path: format!("instances.{name}"),
            limits: Limits::of_instance(instance),
            cpus: cpus_of(deployment, instance, cpus),
        })
    });
    for contender in groups.chain(instances) {
        let place = places.entry(contender.limits.group).or_default();
        place.push(contender);
    }
    places
}
