//! Congestion signals: the host must have the cores that are named.

use crate::host::Host;
use crate::model::Deployment;
use crate::report::Report;
use std::collections::BTreeSet;

pub fn check(deployment: &Deployment, host: &dyn Host, report: &mut Report<'_>) {
    let Some(congestion) = &deployment.congestion else {
        return;
    };
    let cpus: BTreeSet<u32> = host.cpus().into_iter().collect();
    for core in congestion.cores.keys().filter(|core| !cpus.contains(core)) {
        let names: Vec<String> = cpus.iter().map(u32::to_string).collect();
        report.error(
            &format!("congestion.cores.{core}"),
            format!("the host has no CPU {core}"),
            format!("it has {}", names.join(", ")),
        );
    }
}
