//! I/O models: the host must be able to run them, and their settings must have an effect.

use super::Background;
use super::shares::check_cpus;
use crate::host::Host;
use crate::io::{Io, IoIdle, IoModel};
use crate::model::{Deployment, Instance, Port};
use crate::report::Report;
use std::collections::BTreeSet;

pub fn check(
    deployment: &Deployment,
    background: Background<'_>,
    host: &dyn Host,
    report: &mut Report<'_>,
) {
    if report.is_spoilt("io") {
        return;
    }
    let cpus: BTreeSet<u32> = host.cpus().into_iter().collect();
    let io = deployment.io();
    check_cpus(&io.settings.cores, &cpus, "io.cores", report);
    let was_so = |present: &Deployment| present.io == deployment.io;
    // Settings that were valid before, and are now unused, are no error of the next document.
    if !background.present.is_some_and(was_so) {
        check_use(deployment, &io, report);
    }
    if io.model == IoModel::Split && cpus.len() < 2 {
        no_core_for_split("io", report);
    }
    let workers = io.settings.worker_cores(&cpus);
    for (name, instance) in deployment.instances.iter() {
        let path = format!("instances.{name}");
        check_instance(&path, instance, io.model, &cpus, report);
        if uses_split(deployment, &io) {
            check_workers_alone(&path, instance, &workers, report);
        }
    }
}

fn no_core_for_split(path: &str, report: &mut Report<'_>) {
    report.error(
        path,
        "'split' needs a core for its worker beside those of the instances; this host has one",
        "use 'merge' or 'inline'",
    );
}

/// Reports settings without any effect: their author expected one.
fn check_use(deployment: &Deployment, io: &Io, report: &mut Report<'_>) {
    if !io.settings.cores.is_empty() && !uses_split(deployment, io) {
        report.error(
            "io.cores",
            format!(
                "'cores' are those of split workers, and the model is '{}'",
                io.model
            ),
            "write 'model: split', or remove 'cores'",
        );
    }
    if uses(deployment, io, IoModel::has_threads) {
        return;
    }
    for (key, is_there) in [
        ("idle", io.settings.idle != IoIdle::default()),
        ("cap", io.settings.cap.is_some()),
    ] {
        if is_there {
            report.error(
                &format!("io.{key}"),
                format!("'{key}' has no effect with the model 'inline', which has no I/O threads"),
                "choose another model, or remove it",
            );
        }
    }
}

/// Returns true if an instance has such a model, or would have it if the instance named none.
fn uses(deployment: &Deployment, io: &Io, which: impl Fn(IoModel) -> bool) -> bool {
    let mut named = deployment.instances.iter().filter_map(|(_, i)| i.io);
    which(io.model) || named.any(which)
}

fn uses_split(deployment: &Deployment, io: &Io) -> bool {
    uses(deployment, io, |model| model == IoModel::Split)
}

fn check_instance(
    path: &str,
    instance: &Instance,
    default: IoModel,
    cpus: &BTreeSet<u32>,
    report: &mut Report<'_>,
) {
    let has_queues = |port: &Port| port.queues.unwrap_or(1) > 1;
    match instance.io.unwrap_or(default) {
        IoModel::Merge if instance.ports.iter().any(|(_, port)| has_queues(port)) => report.error(
            &format!("{path}.io"),
            "an instance whose ports have queues has a thread for each queue: 'merge' cannot follow several cores",
            "give the instance 'io: mix', 'io: split' or 'io: inline', or remove 'queues'",
        ),
        model if model.has_threads() && instance.members() > 1 => report.error(
            &format!("{path}.replicas"),
            format!("its flows cannot be moved from one member to another while I/O threads ('{model}') handle its frames"),
            "give the instance 'io: inline', or remove 'replicas'",
        ),
        // The deployment's own model is reported only once.
        IoModel::Split if cpus.len() < 2 && instance.io.is_some() => {
            no_core_for_split(&format!("{path}.io"), report);
        }
        _ => {}
    }
}

fn check_workers_alone(path: &str, instance: &Instance, workers: &[u32], report: &mut Report<'_>) {
    let mut listed = instance.cpus.iter().enumerate();
    if let Some((i, cpu)) = listed.find(|(_, cpu)| workers.contains(cpu)) {
        report.warning(
            &format!("{path}.cpus[{i}]"),
            format!("CPU {cpu} belongs to a split worker: the worker and the instance would delay each other"),
            "take it out of 'cpus', or name another in 'io.cores'",
        );
    }
}
