//! Pause and resumption of instances, and the treatment of frames for a paused instance.

use crate::errors::{failed, one_of_several, refused};
use crate::services::{Services, report};
use nfluid_api::types::{EventKind, InstanceState, PausedTraffic};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};

/// Freezes an instance until [`unpause`], also beyond the daemon's end.
///
/// # Errors
/// The instance does not run, is paused already, or its frames cannot be treated as asked. The instance is as before.
pub fn pause(
    services: &mut dyn Services,
    name: &str,
    traffic: PausedTraffic,
) -> Result<(), PlatformError> {
    services.instances().check_settled(name)?;
    if services.is_one_of_several(name) {
        return Err(one_of_several(name, "paused"));
    }
    let running = services.instances().find(name)?;
    if running.is_paused() {
        let remedy = format!("'nfluid unpause {name}' first, to treat frames otherwise");
        return Err(refused(
            format!("instance {name} is paused already"),
            &remedy,
        ));
    }
    if !running.has_process() {
        let remedy = format!("'nfluid restart {name}' starts it");
        return Err(refused(format!("instance {name} does not run"), &remedy));
    }
    if traffic == PausedTraffic::Bypass {
        services.check_bypass(name)?;
    }
    if let Err(why) = freeze(services, name, traffic) {
        if let Err(error) = thaw(services, name) {
            tracing::warn!(instance = name, %error, "thawing what was not paused; it stays paused");
            return keep_paused(services, name, traffic).and(Err(why));
        }
        forget_pause(services, name);
        restore_traffic(services, name, traffic);
        return Err(why);
    }
    let message = format!("paused, traffic: {traffic}");
    report(services, EventKind::Changed, name, message);
    Ok(())
}

/// Resumes a paused instance on request.
///
/// # Errors
/// The instance is not paused, cannot be thawed, or may belong to another host by now.
pub fn unpause(services: &mut dyn Services, name: &str) -> Result<(), PlatformError> {
    services.instances().check_settled(name)?;
    resume(services, name)
}

/// Resumes a paused instance.
///
/// # Errors
/// The instance is not paused, or cannot be thawed.
pub fn resume(services: &mut dyn Services, name: &str) -> Result<(), PlatformError> {
    let Some(traffic) = services.instances().find(name)?.record().paused else {
        return Err(refused(
            format!("instance {name} is not paused"),
            "'nfluid get instances' shows how instances are",
        ));
    };
    // Recorded first: a later daemon thaws a frozen instance that is not recorded as paused. Once the instance runs,
    // it may occupy this core for a while.
    forget_pause(services, name);
    if let Err(why) = thaw(services, name) {
        return keep_paused(services, name, traffic).and(Err(why));
    }
    restore_traffic(services, name, traffic);
    report(
        services,
        EventKind::Changed,
        name,
        "goes on after its pause",
    );
    Ok(())
}

/// Undoes a pause, if there is one, before the instance is ended or after it has ended. An instance that cannot be
/// thawed now is thawed before it is started again; if its process cannot be ended either, the instance is paused again.
pub fn end(services: &mut dyn Services, name: &str) {
    let running = services.instances().get(name);
    if let Some(traffic) = running.and_then(|running| running.record().paused) {
        if let Err(error) = thaw(services, name) {
            tracing::warn!(instance = name, %error, "thawing");
            if let Some(running) = services.instances_mut().get_mut(name) {
                running.still_frozen = Some(traffic);
            }
        }
        forget_pause(services, name);
        restore_traffic(services, name, traffic);
    }
}

/// The process of an instance whose pause was ended could not be ended: if the instance is frozen still, it is paused
/// again.
pub(crate) fn restore(services: &mut dyn Services, name: &str) {
    let running = services.instances_mut().get_mut(name);
    let running = running.filter(|running| running.has_process());
    if let Some(traffic) = running.and_then(|running| running.still_frozen.take())
        && let Err(error) = keep_paused(services, name, traffic)
    {
        tracing::warn!(instance = name, %error, "keeping it paused");
    }
}

/// Takes over an instance as an earlier daemon has left it: paused, or frozen if that daemon was killed between the
/// two steps. In the second case the pause was not confirmed to a client.
///
/// # Errors
/// The instance is not frozen, or its frames cannot be treated as asked.
pub fn adopt(services: &mut dyn Services, name: &str) -> Result<(), PlatformError> {
    let Some(traffic) = services.instances().find(name)?.record().paused else {
        return thaw(services, name);
    };
    // With a bypass: the wires are made later, and lead past the instance from the start.
    stop_traffic(services, name, traffic)?;
    begin_freeze(services, name)?;
    await_frozen(services, name)
}

/// Records a frozen instance that cannot be thawed as paused, so that it can be resumed later.
fn keep_paused(
    services: &mut dyn Services,
    name: &str,
    traffic: PausedTraffic,
) -> Result<(), PlatformError> {
    let running = services.instances_mut().find_mut(name)?;
    running.state = InstanceState::Paused;
    running.workload.record_mut().paused = Some(traffic);
    if let Err(error) = running.workload.save_record() {
        tracing::warn!(instance = name, %error, "writing down that it stands still");
    }
    stop_traffic(services, name, traffic)
}

/// Records that there is no pause. If that fails, the next daemon pauses the instance again.
fn forget_pause(services: &mut dyn Services, name: &str) {
    if let Err(error) = note_pause(services, name, None) {
        tracing::warn!(instance = name, %error, "writing down that it goes on");
    }
}

/// Restores the traffic of an instance that runs again.
fn restore_traffic(services: &mut dyn Services, name: &str, traffic: PausedTraffic) {
    if let Some(running) = services.instances_mut().get_mut(name)
        && running.state == InstanceState::Paused
    {
        running.state = InstanceState::Running;
    }
    if let Err(error) = resume_traffic(services, name, traffic) {
        tracing::warn!(instance = name, %error, "sending frames to it again");
    }
}

/// Does all steps of a pause.
fn freeze(
    services: &mut dyn Services,
    name: &str,
    traffic: PausedTraffic,
) -> Result<(), PlatformError> {
    if traffic == PausedTraffic::Hold {
        // The record is written while the freeze takes effect.
        begin_freeze(services, name)?;
        note_pause(services, name, Some(traffic))?;
    } else {
        // The record is what undoes the change of ports and wires.
        note_pause(services, name, Some(traffic))?;
        stop_traffic(services, name, traffic)?;
        begin_freeze(services, name)?;
    }
    await_frozen(services, name)
}

fn begin_freeze(services: &dyn Services, name: &str) -> Result<(), PlatformError> {
    let running = services.instances().find(name)?;
    running.workload.begin_freeze().map_err(failed)
}

fn await_frozen(services: &mut dyn Services, name: &str) -> Result<(), PlatformError> {
    let running = services.instances_mut().find_mut(name)?;
    running.workload.await_frozen().map_err(failed)?;
    running.state = InstanceState::Paused;
    Ok(())
}

fn thaw(services: &dyn Services, name: &str) -> Result<(), PlatformError> {
    let running = services.instances().find(name)?;
    running.workload.thaw().map_err(failed)
}

/// Records that an instance is paused, or is not. The end of a pause takes effect even if the record cannot be
/// written.
fn note_pause(
    services: &mut dyn Services,
    name: &str,
    traffic: Option<PausedTraffic>,
) -> Result<(), PlatformError> {
    let running = services.instances_mut().find_mut(name)?;
    let before = std::mem::replace(&mut running.workload.record_mut().paused, traffic);
    running.workload.save_record().map_err(|error| {
        if traffic.is_some() {
            running.workload.record_mut().paused = before;
        }
        let message = format!("writing down the instance: {error}");
        PlatformError::new(PlatformErrorKind::Failed, message)
    })
}

fn stop_traffic(
    services: &mut dyn Services,
    name: &str,
    traffic: PausedTraffic,
) -> Result<(), PlatformError> {
    match traffic {
        PausedTraffic::Hold => Ok(()),
        PausedTraffic::Drop => {
            services
                .instances()
                .find(name)?
                .workload
                .set_ports_up(false);
            Ok(())
        }
        PausedTraffic::Bypass => services.begin_bypass(name),
    }
}

fn resume_traffic(
    services: &mut dyn Services,
    name: &str,
    traffic: PausedTraffic,
) -> Result<(), PlatformError> {
    match traffic {
        PausedTraffic::Hold => Ok(()),
        PausedTraffic::Drop => {
            let running = services.instances().get(name);
            // An ended instance gets its ports back with its next process.
            if let Some(running) = running.filter(|running| running.has_process()) {
                running.workload.set_ports_up(true);
            }
            Ok(())
        }
        PausedTraffic::Bypass => services.end_bypass(name),
    }
}
