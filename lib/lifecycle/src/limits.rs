//! Limits of instances that run.

use crate::services::Services;
use nfluid_control::spec::Resources;

/// Changes the limits, the group and the CPUs of a running instance.
///
/// # Errors
/// The instance is as before.
pub fn resize(services: &mut dyn Services, name: &str, new: &Resources) -> anyhow::Result<()> {
    services.instances().check_settled(name)?;
    let old = services.instances().find(name)?.spec.resources.clone();
    let changed = put_in_force(services, name, new).and_then(|()| {
        let instances = services.instances_mut();
        instances.change_spec(name, |spec| spec.resources = new.clone())
    });
    if let Err(why) = changed {
        if let Err(again) = put_in_force(services, name, &old) {
            tracing::warn!(instance = name, "some of the new limits stay: {again:#}");
        }
        return Err(why);
    }
    services.set_io_weights();
    Ok(())
}

/// Puts the limits of an instance in force.
///
/// # Errors
/// Some may be in force.
pub fn put_in_force(
    services: &mut dyn Services,
    name: &str,
    resources: &Resources,
) -> anyhow::Result<()> {
    let groups = services.groups().clone();
    let instances = services.instances_mut();
    let running = instances.find_mut(name)?;
    running.workload.limit(&groups, resources)?;
    instances.put_on_cores(name, resources, &groups)
}
