//! Upgrades in place: a successor is started on the ports of a running instance, and takes over the ports and the
//! state.

use crate::errors::failed;
use crate::limits::put_in_force;
use crate::services::{Services, lock, report};
use crate::succession::Succession;
use crate::supervision::{note_exits, start_again};
use nfluid_api::types::{EventKind, UpgradeReport};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::plan::is_handed_over;
use nfluid_control::spec::InstanceSpec;
use nfluid_protocol::answer::HandedOver;
use std::sync::Mutex;
use std::time::Instant;

/// Returns the specification of a running instance that can hand its ports over.
///
/// # Errors
/// The instance cannot.
pub fn spec_to_upgrade(services: &dyn Services, name: &str) -> Result<InstanceSpec, PlatformError> {
    let running = services.instances().find(name)?;
    if is_handed_over(&running.spec, &running.spec) {
        return Ok(running.spec.clone());
    }
    let message = format!(
        "instance {name} cannot hand its ports over: only built-in NFs with one queue per port and no trust group do"
    );
    let remedy = format!("'nfluid restart {name}' starts the installed version; its state is lost");
    Err(PlatformError::new(PlatformErrorKind::Unsupported, message).with_remedy(remedy))
}

/// Starts a successor of an instance as `new` says, and hands it the ports and the state. The host is not locked
/// during the handover. Other operations on the instance are refused meanwhile.
///
/// # Errors
/// The running process goes on.
pub fn succeed<C: Services>(
    host: &Mutex<C>,
    name: &str,
    new: &InstanceSpec,
) -> Result<UpgradeReport, PlatformError> {
    let begun = Instant::now();
    let Some(succession) = begin(&mut *lock(host), name, new)? else {
        return Ok(UpgradeReport::default());
    };
    let answer = succession.hand_over();
    let host = &mut *lock(host);
    host.instances_mut().upgrading.remove(name);
    let report_of = match answer {
        Ok(answer) => install(host, name, new, &*succession, &answer),
        Err(why) => give_up(host, name, why),
    };
    let mut upgraded = report_of.map_err(failed)?;
    upgraded.took_us = begun.elapsed().as_micros() as u64;
    let message = format!(
        "upgraded in place; its ports were silent for {} us; {} entries of state taken over, {} left out",
        upgraded.silent_us, upgraded.state_taken, upgraded.state_left_out
    );
    report(host, EventKind::Replaced, name, message);
    Ok(upgraded)
}

/// Starts the new process of an upgrade, without ports. Returns `None` if the instance had no running process; the
/// new process, made as `new` says, then owns the ports from the start.
fn begin(
    services: &mut dyn Services,
    name: &str,
    new: &InstanceSpec,
) -> Result<Option<Box<dyn Succession>>, PlatformError> {
    services.instances().check_settled(name)?;
    services.instances().check_awake(name)?;
    if !services.instances().find(name)?.has_process() {
        let instances = services.instances_mut();
        let changed = instances.change_spec(name, |spec| *spec = new.clone());
        changed.map_err(failed)?;
        start_again(services, name).map_err(failed)?;
        return Ok(None);
    }
    let peers = services.link_peers(name, new);
    let instances = services.instances_mut();
    let running = instances.find_mut(name)?;
    let begun = running.workload.begin_succession(new, peers);
    let succession = begun.map_err(failed)?;
    instances.note_doorbells(name, succession.doorbells());
    instances.upgrading.insert(name.to_owned());
    Ok(Some(succession))
}

/// Ends a successor that does not have the ports.
fn give_up(
    services: &mut dyn Services,
    name: &str,
    why: anyhow::Error,
) -> anyhow::Result<UpgradeReport> {
    let running = services.instances_mut().find_mut(name)?;
    running.workload.abandon_succession()?;
    // An end of the instance during the upgrade was not reported.
    note_exits(services, &[name.to_owned()]);
    Err(why.context("the running one goes on"))
}

/// The successor has the ports: makes it the process of the instance.
fn install(
    services: &mut dyn Services,
    name: &str,
    new: &InstanceSpec,
    succession: &dyn Succession,
    answer: &HandedOver,
) -> anyhow::Result<UpgradeReport> {
    let instances = services.instances_mut();
    let now = instances.now();
    // The doorbell of a peer that was removed meanwhile has no reader.
    let given = succession.doorbells().iter().cloned();
    let doorbells =
        given.map(|doorbell| doorbell.filter(|peer| instances.holds_doorbell(name, peer)));
    let doorbells = doorbells.collect();
    let running = instances.find_mut(name)?;
    running.spec = new.clone();
    running.since = Instant::now();
    running.moved_at = now;
    running.workload.complete_succession(new, doorbells)?;
    if new.io.has_threads()
        && let Err(why) = services.assign_io(name, new.io)
    {
        tracing::warn!(instance = name, "giving it to an I/O thread: {why:#}");
    }
    put_in_force(services, name, &new.resources)?;
    services.choose_doorbells_of_peers(name);
    Ok(UpgradeReport {
        took_us: 0,
        silent_us: answer.silent_us,
        settle_us: answer.settle_us,
        export_us: answer.export_us,
        import_us: answer.import_us,
        state_taken: answer.taken,
        state_left_out: answer.left_out,
    })
}
