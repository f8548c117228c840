//! Pools: the host must have room for all shells beside the instances, and their images.

use super::{access, instances::check_image};
use crate::host::Host;
use crate::model::{BUILT_IN_FLAVORS, Deployment};
use crate::pool::pools;
use crate::report::{Report, did_you_mean};

/// Maximum number of ports of a platform.
pub const PLATFORM_PORTS_MAX: u64 = 32_767;

/// Reports pools whose flavor or image does not exist, and pools that are too large.
pub fn check(deployment: &Deployment, host: &dyn Host, report: &mut Report<'_>) {
    if deployment.pool.is_empty() {
        return;
    }
    for (name, pool) in deployment.pool.iter() {
        if deployment.flavor(&pool.flavor).is_none() {
            let built_in = BUILT_IN_FLAVORS.iter().map(|(name, _)| *name);
            let known = deployment.flavors.names().chain(built_in);
            report.error(
                &format!("pool.{name}.flavor"),
                format!("there is no flavor '{}'", pool.flavor.escape_debug()),
                did_you_mean(&pool.flavor, known, "there are"),
            );
        }
        if let Some(pooled) = &pool.image {
            let path = format!("pool.{name}");
            check_image(&pooled.image, host, &path, report);
            access::check(&pooled.access, true, &path, report);
        }
    }
    let pools = pools(deployment);
    let bytes = pools.values().map(|spec| spec.needs().bytes);
    let (bytes, host_bytes) = (bytes.fold(0, u64::saturating_add), host.memory_bytes());
    if bytes > host_bytes {
        report.error(
            "pool",
            format!(
                "the shells of all pools need {} MiB for their rings and programs, the host has {} MiB",
                bytes >> 20,
                host_bytes >> 20
            ),
            "make 'size' or 'most' smaller, or choose a flavor with smaller rings",
        );
    }
    let ports: u64 = pools.values().map(|spec| spec.needs().ports).sum();
    let instances = deployment.instances.iter();
    let used: u64 = instances
        .map(|(_, instance)| instance.queues() as u64)
        .sum();
    let used = used + deployment.uplinks.len() as u64;
    if ports + used > PLATFORM_PORTS_MAX {
        report.error(
            "pool",
            format!(
                "the shells of all pools have {ports} ports, instances and uplinks {used}: more than the {PLATFORM_PORTS_MAX} that a platform has"
            ),
            "make 'size' or 'most' smaller",
        );
    }
}
