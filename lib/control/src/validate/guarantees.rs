//! Guarantees: weights and groups must provide the guaranteed shares.

use super::shares::Limits;
use crate::group::weight;
use crate::model::{Deployment, Instance};
use crate::placement::Placement;
use crate::quantity::Share;
use crate::report::Report;
use nfluid_api::types::Cause;
use std::collections::{BTreeMap, BTreeSet};

/// An instance or a group that competes with its neighbours for CPU time.
struct Contender<'a> {
    /// Name of the group; `None` for an instance.
    group: Option<&'a str>,
    path: String,
    limits: Limits<'a>,
    /// Number of CPUs that it can use at the same time.
    cpus: usize,
}

/// The contenders in each group; under `None`: at the top level.
type Places<'a> = BTreeMap<Option<&'a str>, Vec<Contender<'a>>>;

/// Checks the remainder for each contender when all want the CPU at once: a group is divided by weights.
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
            // A group in a cycle, which another check refuses, is visited only once.
            if let Some(group) = it.group
                && visited.insert(group)
            {
                to_do.push((Some(group), left));
            }
        }
    }
}

/// Tolerance for rounding in divisions: a millionth.
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
        report.error_because(Cause::NoRoom, &path, message, remedy);
    }
}

/// Returns the number of CPUs that an instance can use at the same time: if it is placed on cores, one for each of its
/// threads.
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
