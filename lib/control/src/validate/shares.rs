//! CPU: shares, caps and pinning, compared with the host's cores and with each other.

use super::guarantees;
use crate::group::{Group, Groups};
use crate::host::Host;
use crate::model::{Deployment, Instance};
use crate::portion::Portion;
use crate::quantity::Share;
use crate::report::Report;
use nfluid_api::types::Cause;
use std::collections::{BTreeMap, BTreeSet};

pub fn check(deployment: &Deployment, host: &dyn Host, report: &mut Report<'_>) {
    let host_cpus: BTreeSet<u32> = host.cpus().into_iter().collect();
    let cpus = host_cpus.len();
    let groups = deployment.group_table();
    let mut promises = Promises::default();
    for (name, instance) in deployment.instances.iter() {
        let path = format!("instances.{name}");
        let limits = Limits::of_instance(instance);
        limits.check(&path, &groups, cpus, report);
        let usable = usable_cpus(&instance.cpus, &host_cpus, &path, report);
        if let Some(usable) = usable {
            for _ in 0..instance.members() {
                promises.add_instance(&groups, limits, usable.clone(), path.clone(), cpus);
            }
        }
    }
    for (name, group) in deployment.groups.iter() {
        let path = format!("groups.{name}");
        let limits = Limits::of_group(group);
        limits.check(&path, &groups, cpus, report);
        promises.add_group(name, limits, &host_cpus, path, cpus);
    }
    if !deployment.overcommit {
        check_sums(&promises.by_cpus, report);
    }
    guarantees::check(deployment, cpus, report);
}

/// The CPU limits of an instance or a group.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The group that it is a member of.
    pub group: Option<&'a str>,
    pub share: Option<Portion>,
    pub cap: Option<Portion>,
    pub guarantee: Option<Portion>,
}

impl<'a> Limits<'a> {
    pub fn of_instance(instance: &'a Instance) -> Self {
        Limits {
            group: instance.group.as_deref(),
            share: instance.share,
            cap: instance.cap,
            guarantee: instance.guarantee,
        }
    }

    pub fn of_group(group: &'a Group) -> Self {
        Limits {
            group: group.group.as_deref(),
            share: group.share,
            cap: group.cap,
            guarantee: group.guarantee,
        }
    }

    /// Returns the share that is promised at the top level, in hundredths of a percent of a core; 0 for a member of a
    /// group.
    pub fn promised_at_top(&self, cpus: usize) -> u64 {
        match self.group {
            Some(_) => 0,
            None => self.promised(cpus),
        }
    }

    /// Returns the share or the guarantee, whichever is larger.
    fn promised(&self, cpus: usize) -> u64 {
        let most = self.share.max_by_cores(self.guarantee, cpus);
        most.map_or(0, |portion| portion.hundredths(cpus))
    }

    fn check(&self, path: &str, groups: &Groups, cpus: usize, report: &mut Report<'_>) {
        let Some(cap) = self.cap else { return };
        let is_below = |other: Portion| cap.hundredths(cpus) < other.hundredths(cpus);
        let cap_path = format!("{path}.cap");
        // Within a group a share is a proportion, which cannot be compared with a cap.
        if let (Some(share), None) = (self.share, self.group)
            && is_below(share)
        {
            report.error(
                &cap_path,
                format!("a cap of {cap} is below the share of {share}"),
                "raise the cap, lower the share, or remove the cap",
            );
        } else if let Some(guarantee) = self.guarantee
            && is_below(guarantee)
        {
            report.error(
                &cap_path,
                format!("a cap of {cap} is below the guarantee of {guarantee}"),
                "raise the cap, or lower the guarantee",
            );
        }
        for outer in crate::group::path(groups, self.group) {
            let outer_cap = groups.get(outer).and_then(|group| group.cap);
            if let Some(outer_cap) = outer_cap
                && outer_cap.hundredths(cpus) < cap.hundredths(cpus)
            {
                report.error(
                    &cap_path,
                    format!("a cap of {cap} is above the {outer_cap} that all of group '{outer}' get at most"),
                    "lower it, raise the group's cap, or remove it",
                );
            }
        }
    }
}

/// Returns the larger of two portions that may be absent.
trait MaxByCores {
    fn max_by_cores(self, other: Self, cpus: usize) -> Self;
}

impl MaxByCores for Option<Portion> {
    fn max_by_cores(self, other: Self, cpus: usize) -> Self {
        let both = self.into_iter().chain(other);
        both.max_by_key(|portion| portion.hundredths(cpus))
    }
}

/// Returns the CPUs that an instance can use; `None` if the instance names a CPU that does not exist.
fn usable_cpus(
    pinned: &[u32],
    host_cpus: &BTreeSet<u32>,
    path: &str,
    report: &mut Report<'_>,
) -> Option<BTreeSet<u32>> {
    if pinned.is_empty() {
        return Some(host_cpus.clone());
    }
    check_cpus(pinned, host_cpus, &format!("{path}.cpus"), report)
        .then(|| pinned.iter().copied().collect())
}

/// Reports CPUs of the list at `path` that the host does not have. Returns true if the host has all of them.
pub fn check_cpus(
    named: &[u32],
    host_cpus: &BTreeSet<u32>,
    path: &str,
    report: &mut Report<'_>,
) -> bool {
    let mut all_exist = true;
    for (i, cpu) in named.iter().enumerate() {
        if !host_cpus.contains(cpu) {
            let names: Vec<String> = host_cpus.iter().map(u32::to_string).collect();
            report.error_because(
                Cause::NoRoom,
                &format!("{path}[{i}]"),
                format!("the host has no CPU {cpu}"),
                format!("it has {}", names.join(", ")),
            );
            all_exist = false;
        }
    }
    all_exist
}

/// The promises at the top level: to instances and groups that are in no group.
#[derive(Default)]
struct Promises {
    by_cpus: BTreeMap<BTreeSet<u32>, Promise>,
    /// The CPUs of a group at the top level: the union of its members' CPUs.
    groups: BTreeMap<String, BTreeSet<u32>>,
}

impl Promises {
    fn add_instance(
        &mut self,
        groups: &Groups,
        limits: Limits<'_>,
        usable: BTreeSet<u32>,
        path: String,
        cpus: usize,
    ) {
        match crate::group::path(groups, limits.group).first() {
            Some(outermost) => {
                let of_group = self.groups.entry((*outermost).to_owned()).or_default();
                of_group.extend(usable);
            }
            None => self.add(usable, limits, path, cpus),
        }
    }

    fn add_group(
        &mut self,
        name: &str,
        limits: Limits<'_>,
        host_cpus: &BTreeSet<u32>,
        path: String,
        cpus: usize,
    ) {
        if limits.group.is_none() {
            let usable = self.groups.remove(name);
            self.add(
                usable.unwrap_or_else(|| host_cpus.clone()),
                limits,
                path,
                cpus,
            );
        }
    }

    fn add(&mut self, usable: BTreeSet<u32>, limits: Limits<'_>, path: String, cpus: usize) {
        let hundredths = limits.promised(cpus);
        if hundredths > 0 {
            let key = if limits.share.is_some() {
                "share"
            } else {
                "guarantee"
            };
            let promise = self.by_cpus.entry(usable).or_default();
            promise.hundredths += hundredths;
            promise.last_path = format!("{path}.{key}");
        }
    }
}

/// The sum of the promises to all objects with the same set of CPUs.
#[derive(Default)]
struct Promise {
    hundredths: u64,
    last_path: String,
}

/// Checks for each set of CPUs that the sum of the promises within the set is at most the set's capacity.
fn check_sums(promised: &BTreeMap<BTreeSet<u32>, Promise>, report: &mut Report<'_>) {
    for (cpus, own) in promised {
        let within = promised.iter().filter(|(other, _)| other.is_subset(cpus));
        let hundredths: u64 = within.map(|(_, promise)| promise.hundredths).sum();
        let available = cpus.len() as u64 * u64::from(Share::FULL.hundredths());
        if hundredths > available {
            report.error_because(
                Cause::NoRoom,
                &own.last_path,
                format!(
                    "the shares add up to {}%, more than the {}% of {} CPU{}",
                    hundredths as f64 / 100.0,
                    available / 100,
                    cpus.len(),
                    if cpus.len() == 1 { "" } else { "s" }
                ),
                "lower shares, or accept that they are only proportions with 'overcommit: true'",
            );
        }
    }
}
