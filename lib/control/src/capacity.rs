//! What a host has, and how much of it its deployment has promised: what an engine that schedules for many hosts needs to know.

use crate::host::{Host, PROGRAM_BYTES_MIN, rings_bytes};
use crate::model::Deployment;
use crate::pool::pools;
use crate::validate::pools::PLATFORM_PORTS_MAX;
use crate::validate::shares::Limits;

/// How much of something there is, and how much is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// What there is.
    pub total: u64,
    /// What is promised; with `overcommit: true` it can be more.
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
        let shells = u64::from(spec.size.most());
        let each = rings_bytes(spec.ring, spec.ports as usize, 1) + PROGRAM_BYTES_MIN;
        memory = memory.saturating_add(shells.saturating_mul(each));
        ports += shells * u64::from(spec.ports);
        instances += shells;
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
