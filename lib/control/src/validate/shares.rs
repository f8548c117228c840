//! CPU: shares, caps and pinning against the host's cores.

use crate::host::Host;
use crate::model::Deployment;
use crate::quantity::Share;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};

pub fn check(deployment: &Deployment, host: &dyn Host, report: &mut Report<'_>) {
    let host_cpus: BTreeSet<u32> = host.cpus().into_iter().collect();
    let mut promised: BTreeMap<BTreeSet<u32>, Promise> = BTreeMap::new();
    for (name, instance) in deployment.instances.iter() {
        let path = format!("instances.{name}");
        if let (Some(share), Some(cap)) = (instance.share, instance.cap)
            && cap < share
        {
            report.error(
                &format!("{path}.cap"),
                format!("a cap of {cap} is below the share of {share}"),
                "raise the cap, lower the share, or remove the cap",
            );
        }
        let cpus = usable_cpus(&instance.cpus, &host_cpus, &path, report);
        if let (Some(share), Some(cpus)) = (instance.share, cpus) {
            promised.entry(cpus).or_default().add(share, path);
        }
    }
    if !deployment.overcommit {
        check_sums(&promised, report);
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
    let mut all_exist = true;
    for (i, cpu) in pinned.iter().enumerate() {
        if !host_cpus.contains(cpu) {
            let names: Vec<String> = host_cpus.iter().map(u32::to_string).collect();
            report.error(
                &format!("{path}.cpus[{i}]"),
                format!("the host has no CPU {cpu}"),
                format!("it has {}", names.join(", ")),
            );
            all_exist = false;
        }
    }
    all_exist.then(|| pinned.iter().copied().collect())
}

/// What was promised to instances with one set of CPUs.
#[derive(Default)]
struct Promise {
    hundredths: u64,
    last_path: String,
}

impl Promise {
    fn add(&mut self, share: Share, path: String) {
        self.hundredths += u64::from(share.hundredths());
        self.last_path = path;
    }
}

/// For each set of CPUs: what is promised within it must not exceed it.
fn check_sums(promised: &BTreeMap<BTreeSet<u32>, Promise>, report: &mut Report<'_>) {
    for (cpus, own) in promised {
        let within = promised.iter().filter(|(other, _)| other.is_subset(cpus));
        let hundredths: u64 = within.map(|(_, promise)| promise.hundredths).sum();
        let available = cpus.len() as u64 * u64::from(Share::FULL.hundredths());
        if hundredths > available {
            report.error(
                &format!("{}.share", own.last_path),
                format!(
                    "the shares add up to {}%, more than the {}% of {} CPUs",
                    hundredths as f64 / 100.0,
                    available / 100,
                    cpus.len()
                ),
                "lower shares, or accept that they are only proportions with 'overcommit: true'",
            );
        }
    }
}
