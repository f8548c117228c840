//! The capacity of a host, and how much of it the deployment has promised. Engines that schedule for many hosts ask for it.

use crate::guards::with_guards;
use crate::host::{Catalogue, Host};
use crate::model::Deployment;
use crate::pool::pools;
use crate::tier::Tier;
use crate::validate::pools::PLATFORM_PORTS_MAX;
use crate::validate::shares::Limits;
use nfluid_api::types;
use std::collections::BTreeMap;

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

impl Amount {
    fn for_engines(self) -> types::Amount {
        types::Amount::new(self.total, self.used)
    }
}

impl Capacity {
    /// Returns the capacity as the API has it, for a host that runs these tiers and has these network functions and labels.
    pub fn for_engines(
        self,
        tiers: impl IntoIterator<Item = Tier>,
        catalogue: &dyn Catalogue,
        labels: &BTreeMap<String, String>,
    ) -> types::Capacity {
        types::Capacity {
            cpus: self.cpus,
            share_per_mille: self.share.for_engines(),
            memory_bytes: self.memory.for_engines(),
            ports: self.ports.for_engines(),
            instances: self.instances.for_engines(),
            tiers: tiers.into_iter().map(|tier| tier.to_string()).collect(),
            nfs: catalogue.names(),
            architecture: std::env::consts::ARCH.to_owned(),
            labels: labels.clone(),
        }
    }
}

/// Returns what instances and groups at the top level must get together on a host with `cpus` CPUs so that guarantees hold, in
/// hundredths of a percent of a core: all that is promised, as weights divide it. Without a guarantee, nothing.
pub fn guaranteed(deployment: &Deployment, cpus: usize) -> u64 {
    let mut instances = deployment.instances.iter();
    let mut groups = deployment.groups.iter();
    let has_guarantees = instances.any(|(_, it)| it.guarantee.is_some())
        || groups.any(|(_, it)| it.guarantee.is_some());
    if has_guarantees {
        promised(deployment, cpus)
    } else {
        0
    }
}

/// Returns what instances and groups at the top level are promised together, in hundredths of a percent of a core.
fn promised(deployment: &Deployment, cpus: usize) -> u64 {
    let instances = deployment.instances.iter().map(|(_, instance)| {
        Limits::of_instance(instance).promised_at_top(cpus) * u64::from(instance.members())
    });
    let groups = deployment.groups.iter();
    let groups = groups.map(|(_, group)| Limits::of_group(group).promised_at_top(cpus));
    instances.chain(groups).sum()
}

/// Returns the capacity of a host with this deployment.
pub fn capacity(deployment: &Deployment, host: &dyn Host) -> Capacity {
    let deployment = &*with_guards(deployment);
    let cpus = host.cpus();
    let cores = cpus.len();
    let (mut memory, mut ports, mut instances) = (0u64, 0u64, 0u64);
    for (_, instance) in deployment.instances.iter() {
        let members = u64::from(instance.members());
        if instance.tier.capabilities().has_process {
            let of_flavor = deployment.flavor(&instance.flavor);
            let limit = instance.memory.or(of_flavor.map(|flavor| flavor.memory));
            memory = memory.saturating_add(limit.unwrap_or_default().0.saturating_mul(members));
            instances += members;
        }
        ports += instance.queues() as u64 * members;
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
        share: amount(
            cores as u64 * 1000,
            promised(deployment, cores).div_ceil(10),
        ),
        memory: amount(host.memory_bytes(), memory),
        ports: amount(PLATFORM_PORTS_MAX, ports),
        // Each has a number among those of ports' memories.
        instances: amount(PLATFORM_PORTS_MAX, instances),
        cpus,
    }
}
