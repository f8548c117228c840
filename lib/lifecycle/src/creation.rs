//! Creation and end of the instances of a plan.

use crate::errors::failed;
use crate::limits::put_in_force;
use crate::pausing;
use crate::placing::Placings;
use crate::running::Running;
use crate::runtime::{PlannedInstance, Prepared, Site};
use crate::services::Services;
use crate::workload::Remains;
use nfluid_control::group::Groups;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stopwatch::Lap;
use std::sync::Arc;

/// Collects the inputs for creating an instance in `groups`. The instance gets its core from `placings`.
fn planned(
    services: &dyn Services,
    (name, spec): (&str, &InstanceSpec),
    groups: &Arc<Groups>,
    placings: &mut Placings,
) -> PlannedInstance {
    PlannedInstance {
        name: name.to_owned(),
        spec: spec.clone(),
        site: Site {
            groups: Arc::clone(groups),
            core: placings.core_for(name, spec),
        },
        peers: services.link_peers(name, spec),
    }
}

/// Collects the inputs for creating the instances of a plan, after which the groups will be `groups`.
pub fn planned_instances(
    services: &dyn Services,
    coming: &[(&str, &InstanceSpec)],
    groups: Groups,
) -> Vec<PlannedInstance> {
    let mut placings = services.instances().placings(coming, &groups);
    let groups = Arc::new(groups);
    let coming = coming.iter();
    let planned = coming.map(|one| planned(services, *one, &groups, &mut placings));
    planned.collect()
}

/// Creates an instance now, in the groups that exist.
///
/// # Errors
/// Nothing is left of the instance.
pub fn start(
    services: &dyn Services,
    name: &str,
    spec: &InstanceSpec,
) -> anyhow::Result<Box<dyn Prepared>> {
    let groups = Arc::new(services.groups().clone());
    let mut placings = services.instances().placings(&[(name, spec)], &groups);
    let coming = planned(services, (name, spec), &groups, &mut placings);
    services.runtime(spec)?.start(coming)
}

/// Adds an instance that was created to the table. Returns the steps of its creation.
///
/// # Errors
/// The instance was removed again.
pub fn take_up(
    services: &mut dyn Services,
    name: &str,
    spec: &InstanceSpec,
    mut prepared: Box<dyn Prepared>,
) -> anyhow::Result<Vec<Lap>> {
    let laps = prepared.take_laps();
    let core = prepared.core();
    let workload = prepared.keep()?;
    // An instance in no group has its cap from the start. One in a group gets it when the group has its limits.
    let capped = match spec.resources.group {
        None => Ok(()),
        Some(_) => workload.cap(services.groups(), &spec.resources),
    };
    let instances = services.instances_mut();
    let now = instances.now();
    instances.insert(name, Running::new(spec.clone(), workload, core, now));
    let served = capped.and_then(|()| {
        if spec.io.has_threads() {
            services.assign_io(name, spec.io)?;
        }
        Ok(())
    });
    if let Err(why) = served {
        drop(end(services, name)?);
        return Err(why);
    }
    Ok(laps)
}

/// Ends an instance. Dropping the result removes what is left of it. `None`: there is no such instance.
///
/// # Errors
/// The instance cannot be ended, and runs as before.
pub fn end(services: &mut dyn Services, name: &str) -> anyhow::Result<Option<Box<dyn Remains>>> {
    services.instances().check_removable(name)?;
    pausing::end(services, name);
    // From here on, frames for the instance wait for another instance, or have no destination.
    services.dismiss(name);
    let Some(running) = services.instances().get(name) else {
        return Ok(None);
    };
    let has_threads = running.spec.io.has_threads();
    stop(services, name)?;
    if has_threads {
        services.release(name);
    }
    services.forget_wires(name);
    let running = services.instances_mut().remove(name);
    Ok(running.map(|running| running.workload.take_out(running.spec)))
}

/// Ends the process of an instance whose pause was ended for that.
///
/// # Errors
/// The process runs, and the instance is paused again if it was.
pub(crate) fn stop(services: &mut dyn Services, name: &str) -> anyhow::Result<()> {
    let running = services.instances_mut().find_mut(name)?;
    running
        .workload
        .stop()
        .map(|()| running.is_ending = false)
        .inspect_err(|_| pausing::restore(services, name))
}

/// Takes over an instance of an earlier daemon.
///
/// # Errors
/// The instance is not taken over.
pub fn adopt(services: &mut dyn Services, name: &str, spec: &InstanceSpec) -> anyhow::Result<u64> {
    let runtime = services.runtime(spec).map_err(anyhow::Error::from)?;
    let adopted = runtime.adopt(name, spec)?;
    let record = adopted.workload.record();
    let (core, io) = (record.core, record.io);
    let spec = InstanceSpec {
        io,
        ..record.made_of(spec)
    };
    let instances = services.instances_mut();
    let now = instances.now();
    let resources = spec.resources.clone();
    instances.insert(name, Running::new(spec, adopted.workload, core, now));
    let in_force = put_in_force(services, name, &resources)
        .map_err(failed)
        .and_then(|()| pausing::adopt(services, name));
    if let Err(why) = in_force {
        services.forget_wires(name);
        services.instances_mut().remove(name);
        return Err(why.into());
    }
    if adopted.lost > 0
        && let Some(running) = services.instances().get(name)
    {
        // Senders that put frames behind the lost ones have rung, and the instance found nothing in its ring.
        running.workload.ring();
    }
    Ok(adopted.lost)
}
