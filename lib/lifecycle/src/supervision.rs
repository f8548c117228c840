//! Supervision of instances: the ports of an instance that has ended are taken back at once, and the instance is started again
//! as its policy says.

use crate::errors::failed;
use crate::pausing;
use crate::services::{Services, report};
use nfluid_api::types::{EventKind, InstanceState};
use nfluid_control::apply::PlatformError;
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::{Decision, Exit};
use std::ops::Bound;
use std::time::Instant;

/// Instances that [`look_at_some`] looks at: all of thousands would hold up everybody else for milliseconds.
const LOOKED_AT: usize = 256;

/// When the next instance is to be started again.
pub fn due_at(services: &dyn Services) -> Option<Millis> {
    let instances = services.instances();
    let ended = instances.ended.iter();
    let due = ended.filter_map(|name| instances.get(name)?.supervisor.due_at());
    due.min()
}

/// Takes note of those among these instances that have ended, and decides what becomes of each.
pub fn note_exits(services: &mut dyn Services, names: &[String]) {
    for name in names {
        let instances = services.instances();
        // An instance that is upgraded gives its ports away and ends as it should. One that moves may be another host's.
        if instances.check_settled(name).is_err() {
            continue;
        }
        let running = instances.get(name);
        if let Some(exited) = running.and_then(|running| running.workload.exit()) {
            note_exit(services, name, &exited.how, exited.exit);
        }
    }
}

/// The same for some instances in turn: the end of a process that the kernel did not report is found later.
pub fn look_at_some(services: &mut dyn Services) {
    let instances = services.instances();
    let behind = Bound::Excluded(instances.looked_at.as_str());
    let all = instances.table();
    let names = all.range::<str, _>((behind, Bound::Unbounded));
    let names = names.map(|(name, _)| name.clone());
    let names: Vec<String> = names.take(LOOKED_AT).collect();
    note_exits(services, &names);
    // After the last instance comes the first.
    let last = names.into_iter().nth(LOOKED_AT - 1);
    services.instances_mut().looked_at = last.unwrap_or_default();
}

/// Takes back the ports of an instance that has ended, or could not be started, and asks its restart policy.
pub fn note_exit(services: &mut dyn Services, name: &str, how: &str, exit: Exit) {
    let instances = services.instances_mut();
    let time = instances.now();
    let Some(running) = instances.get_mut(name) else {
        return;
    };
    running.workload.note_end();
    running.last_exit = Some(how.to_owned());
    instances.ended.insert(name.to_owned());
    // Its successor would be born standing still.
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

/// Starts the instances again whose time has come.
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
                note_exit(services, &name, &how, Exit::Failure);
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
    // A pause that could not be undone would have the new process stand still.
    running.workload.thaw()?;
    running.workload.start(&spec, peers.clone())?;
    running.load = crate::running::Load::default();
    running.state = InstanceState::Running;
    running.since = Instant::now();
    running.supervisor.started(now);
    instances.note_doorbells(name, &peers);
    instances.ended.remove(name);
    // The doorbells that the instance and its thread ring may be others than its predecessor's.
    if spec.io.has_threads()
        && let Err(why) = services.entrust(name, spec.io)
    {
        tracing::warn!(instance = name, "giving it to an I/O thread: {why:#}");
    }
    Ok(())
}

/// An operator's restart: the process is killed, past failures are forgiven.
///
/// # Errors
/// The process cannot be ended, and runs; or none could be started, and the restart policy decides what becomes of the
/// instance.
pub fn restart(services: &mut dyn Services, name: &str) -> Result<(), PlatformError> {
    services.instances().check_settled(name)?;
    pausing::end(services, name);
    let running = services.instances_mut().find_mut(name)?;
    running.supervisor.forgive();
    running.workload.stop().map_err(failed)?;
    let started = running.workload.reclaim().and_then(|lost| {
        let message = format!("restarted on request; {lost} frames lost in its rings");
        report(services, EventKind::Restarting, name, message);
        start_again(services, name)
    });
    let started = started.map_err(failed);
    if let Err(why) = &started {
        // Its policy decides when that is tried again.
        let how = format!("could not be started: {why}");
        note_exit(services, name, &how, Exit::Failure);
    }
    started
}
