//! CPU: shares, caps and pinning against the host's cores, and against each other.

use super::guarantees;
use crate::group::{Group, Groups};
use crate::host::Host;
use crate::model::{Deployment, Instance};
use crate::portion::Portion;
use crate::quantity::Share;
use crate::report::Report;
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

/// What an instance or a group may use.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The group that it is in.
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

    /// What it is promised if it is at the top, in hundredths of a percent of a core.
    pub fn promised_at_top(&self, cpus: usize) -> u64 {
        match self.group {
            Some(_) => 0,
            None => self.promised(cpus),
        }
    }

    /// What it is promised among those at the top.
    fn promised(&self, cpus: usize) -> u64 {
        let most = self.share.max_by_cores(self.guarantee, cpus);
        most.map_or(0, |portion| portion.hundredths(cpus))
    }

    fn check(&self, path: &str, groups: &Groups, cpus: usize, report: &mut Report<'_>) {
        let Some(cap) = self.cap else { return };
        let is_below = |other: Portion| cap.hundredths(cpus) < other.hundredths(cpus);
        let cap_path = format!("{path}.cap");
        // Within a group a share is a proportion, and a cap says nothing about it.
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

/// The larger of two that may be absent.
trait MaxByCores {
    fn max_by_cores(self, other: Self, cpus: usize) -> Self;
}

impl MaxByCores for Option<Portion> {
    fn max_by_cores(self, other: Self, cpus: usize) -> Self {
        let both = self.into_iter().chain(other);
        both.max_by_key(|portion| portion.hundredths(cpus))
    }
}

/// The CPUs that an instance may run on; `None` if it names one that does not exist.
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

/// Reports CPUs of the list at `path` that the host has not; whether it has all.
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
            report.error(
                &format!("{path}[{i}]"),
                format!("the host has no CPU {cpu}"),
                format!("it has {}", names.join(", ")),
            );
            all_exist = false;
        }
    }
    all_exist
}

/// What was promised at the top: to instances in no group, and to groups in no group.
#[derive(Default)]
struct Promises {
    by_cpus: BTreeMap<BTreeSet<u32>, Promise>,
    /// The CPUs of a group at the top: those of all who are in it.
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

/// What was promised to all who have one set of CPUs.
#[derive(Default)]
struct Promise {
    hundredths: u64,
    last_path: String,
}

/// For each set of CPUs: what is promised within it must not exceed it.
fn check_sums(promised: &BTreeMap<BTreeSet<u32>, Promise>, report: &mut Report<'_>) {
    for (cpus, own) in promised {
        let within = promised.iter().filter(|(other, _)| other.is_subset(cpus));
        let hundredths: u64 = within.map(|(_, promise)| promise.hundredths).sum();
        let available = cpus.len() as u64 * u64::from(Share::FULL.hundredths());
        if hundredths > available {
            report.error(
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
