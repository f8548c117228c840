//! Supervision of instances: the ports of an ended instance are reclaimed at once, and the instance is started again
//! as its policy says.

use crate::creation::stop;
use crate::errors::failed;
use crate::pausing;
use crate::services::{Services, report};
use crate::workload::Exited;
use nfluid_api::types::{EventKind, InstanceState};
use nfluid_control::apply::PlatformError;
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::{Decision, Exit};
use std::ops::Bound;
use std::time::Instant;

/// Number of instances that [`check_some`] checks: checking all of thousands would delay other requests by
/// milliseconds.
const CHECKED_MAX: usize = 256;

/// Returns the time of the next restart.
pub fn due_at(services: &dyn Services) -> Option<Millis> {
    let instances = services.instances();
    let ended = instances.ended.iter();
    let due = ended.filter_map(|name| instances.get(name)?.supervisor.due_at());
    due.min()
}

/// Notes which of these instances have ended, and decides about each of them.
pub fn note_exits(services: &mut dyn Services, names: &[String]) {
    for name in names {
        let instances = services.instances();
        // An instance under upgrade hands its ports over and ends in order. An instance that moves may belong to
        // another host.
        if instances.check_settled(name).is_err() {
            continue;
        }
        let running = instances.get(name).filter(|running| !running.is_ending);
        if let Some(exited) = running.and_then(|running| running.workload.exit()) {
            note_exit(services, name, exited);
        }
    }
}

/// Checks some instances in turn: this finds the end of a process that the kernel did not report.
pub fn check_some(services: &mut dyn Services) {
    let instances = services.instances();
    let behind = Bound::Excluded(instances.last_checked.as_str());
    let all = instances.table();
    let names = all.range::<str, _>((behind, Bound::Unbounded));
    let names = names.map(|(name, _)| name.clone());
    let names: Vec<String> = names.take(CHECKED_MAX).collect();
    note_exits(services, &names);
    // After the last instance comes the first.
    let last = names.into_iter().nth(CHECKED_MAX - 1);
    services.instances_mut().last_checked = last.unwrap_or_default();
}

/// Reclaims the ports of an instance that has ended or could not be started, and asks its restart policy.
pub fn note_exit(services: &mut dyn Services, name: &str, exited: Exited) {
    let exit = exited.exit();
    let how = exited.how;
    let instances = services.instances_mut();
    let time = instances.now();
    let Some(running) = instances.get_mut(name) else {
        return;
    };
    running.workload.note_end();
    running.last_exit = Some(how.clone());
    running.exit = Some(exited.status);
    instances.ended.insert(name.to_owned());
    // The next process would start frozen.
    pausing::end(services, name);
    let Some(running) = services.instances_mut().get_mut(name) else {
        return;
    };
    let lost = match running.workload.reclaim() {
        Ok(frames) => format!("{frames} frames lost in its rings"),
        Err(error) => format!("reclaiming its ports failed: {error:#}"),
    };
    let decision = running.supervisor.ended(time, exit);
    running.state = match decision {
        Decision::RestartAt(_) => InstanceState::Waiting,
        Decision::Stop => InstanceState::Stopped,
        Decision::GiveUp { .. } => InstanceState::Failed,
    };
    let kind = match exit {
        Exit::Success => EventKind::Exited,
        Exit::Failure => EventKind::Crashed,
    };
    let message = match decision {
        Decision::RestartAt(at) => {
            format!("{how}; {lost}; again in {} ms", at.0.saturating_sub(time.0))
        }
        Decision::Stop => format!("{how}; {lost}; its policy asks for no restart"),
        Decision::GiveUp { restarts } => {
            format!("{how}; {lost}; given up after {restarts} restarts")
        }
    };
    report(services, kind, name, message);
    if matches!(decision, Decision::GiveUp { .. }) {
        report(services, EventKind::CrashLoop, name, "no more restarts");
    }
}

/// Starts the instances whose restart is due.
pub fn start_due(services: &mut dyn Services) {
    let instances = services.instances_mut();
    let now = instances.now();
    let mut ended = std::mem::take(&mut instances.ended);
    ended.retain(|name| instances.contains(name));
    let is_due = |name: &&String| {
        let running = instances.get(name);
        running.is_some_and(|running| running.supervisor.is_due(now))
    };
    let due: Vec<String> = ended.iter().filter(is_due).cloned().collect();
    instances.ended = ended;
    for name in due {
        match start_again(services, &name) {
            Ok(()) => report(services, EventKind::Started, &name, "runs again"),
            Err(error) => {
                let how = format!("could not be started: {error:#}");
                note_exit(services, &name, Exited::failed(how));
            }
        }
    }
}

/// Starts a process on the ports of an instance whose process has ended.
///
/// # Errors
/// No process was started.
pub fn start_again(services: &mut dyn Services, name: &str) -> anyhow::Result<()> {
    let spec = services.instances().find(name)?.spec.clone();
    let peers = services.link_peers(name, &spec);
    let instances = services.instances_mut();
    let now = instances.now();
    let running = instances.find_mut(name)?;
    if running.still_frozen.is_some() {
        // The new process would start frozen.
        running.workload.thaw()?;
        running.still_frozen = None;
    }
    running.workload.start(&spec, peers.clone())?;
    running.load = crate::running::Load::default();
    running.state = InstanceState::Running;
    running.since = Instant::now();
    running.supervisor.started(now);
    instances.note_doorbells(name, &peers);
    instances.ended.remove(name);
    // The instance and its thread may have to ring other doorbells than the previous process did.
    if spec.io.has_threads()
        && let Err(why) = services.assign_io(name, spec.io)
    {
        tracing::warn!(instance = name, "giving it to an I/O thread: {why:#}");
    }
    Ok(())
}

/// Restarts an instance on an operator's request: kills the process and forgets past failures.
///
/// # Errors
/// The process cannot be ended, and runs. Or no process could be started, and the restart policy decides about the
/// instance.
pub fn restart(services: &mut dyn Services, name: &str) -> Result<(), PlatformError> {
    services.instances().check_settled(name)?;
    pausing::end(services, name);
    services
        .instances_mut()
        .find_mut(name)?
        .supervisor
        .forgive();
    stop(services, name).map_err(failed)?;
    let running = services.instances_mut().find_mut(name)?;
    let started = running.workload.reclaim().and_then(|lost| {
        let message = format!("restarted on request; {lost} frames lost in its rings");
        report(services, EventKind::Restarting, name, message);
        start_again(services, name)
    });
    let started = started.map_err(failed);
    if let Err(why) = &started {
        // The restart policy decides about the next attempt.
        let how = format!("could not be started: {why}");
        note_exit(services, name, Exited::failed(how));
    }
    started
}
