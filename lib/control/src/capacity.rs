//! The capacity of a host, and how much of it the deployment has promised. Engines that schedule for many hosts ask for it.

use crate::host::Host;
use crate::model::Deployment;
use crate::pool::pools;
use crate::validate::pools::PLATFORM_PORTS_MAX;
use crate::validate::shares::Limits;

/// An amount of a resource, and its promised part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The amount that the host has.
    pub total: u64,
    /// The amount that the deployment has promised; with `overcommit: true` it can be more.
    pub used: u64,
}

/// The capacity of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// CPU shares, in thousandths of a core: what instances and groups have as share or guarantee, whichever is more.
    pub share: Amount,
    /// Memory in bytes: the limits of instances, and what shells need.
    pub memory: Amount,
    /// Ports: those of instances (each queue is one), of uplinks and of shells.
    pub ports: Amount,
    /// Instances that have processes, each member counted, and shells.
    pub instances: Amount,
}

/// Returns the capacity of a host with this deployment.
pub fn capacity(deployment: &Deployment, host: &dyn Host) -> Capacity {
    let cpus = host.cpus();
    let cores = cpus.len();
    let mut hundredths = 0;
    let (mut memory, mut ports, mut instances) = (0u64, 0u64, 0u64);
    for (_, instance) in deployment.instances.iter() {
        let members = u64::from(instance.members());
        hundredths += Limits::of_instance(instance).promised_at_top(cores) * members;
        if instance.tier.capabilities().has_process {
            let of_flavor = deployment.flavor(&instance.flavor);
            let limit = instance.memory.or(of_flavor.map(|flavor| flavor.memory));
            memory = memory.saturating_add(limit.unwrap_or_default().0.saturating_mul(members));
            instances += members;
        }
        ports += instance.queues() as u64 * members;
    }
    for (_, group) in deployment.groups.iter() {
        hundredths += Limits::of_group(group).promised_at_top(cores);
    }
    ports += deployment.uplinks.len() as u64;
    for spec in pools(deployment).values() {
        let needs = spec.needs();
        memory = memory.saturating_add(needs.bytes);
        ports += needs.ports;
        instances += needs.shells;
    }
    let amount = |total, used| Amount { total, used };
    Capacity {
        share: amount(cores as u64 * 1000, hundredths.div_ceil(10)),
        memory: amount(host.memory_bytes(), memory),
        ports: amount(PLATFORM_PORTS_MAX, ports),
        // Each has a number among those of ports' memories.
        instances: amount(PLATFORM_PORTS_MAX, instances),
        cpus,
    }
}
