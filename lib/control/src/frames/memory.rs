//! Slots for long frames.
//!
//! A port has them beside the slots of its ring, for frames of more than 2,032 bytes. Each slot has 2 KiB, and a frame takes
//! up to 32 of them, next to each other. They are the memory of the receiver: a frame is written there once, by the call
//! that sends it.
//!
//! All ports of a domain have as many. An instance may pass on all frames that its port holds before the next instance
//! runs, so a port with fewer slots than the port before it loses frames of every large burst. Measured with the demo's
//! chain and four TCP streams, both cores busy: 1024 slots between instances lose 5 to 8 % of the frames, 4096 slots
//! lose 0.1 to 0.2 %, at no more CPU time per bit.

use super::domain::{Domain, PORTS_MAX, taken};
use super::{Frames, LONG_MAX, LONG_MIN, SLOT_MTU_MAX, affordable, floor};
use crate::inventory::Inventory;
use crate::model::SuperFrames;
use crate::pool::{PoolSpec, Purpose};
use crate::spec::{InstanceSpec, UplinkSpec};
use std::collections::HashSet;

/// Slots of all domains together: 512 MiB.
const ALL: u32 = 1 << 18;
/// Slots of one domain: 64 MiB.
const OF_DOMAIN: u32 = 1 << 15;
/// Slots of a port for jumbo frames, where super-frames have none.
const JUMBO: u32 = 1024;

/// Divides the memory among the domains, and refuses long frames to all if there are too many.
pub(super) fn divide(domains: &mut [Domain]) {
    let entitled = |domain: &&mut Domain| domain.slots > 0;
    let count = domains.iter_mut().filter(entitled).count();
    let of_domain = OF_DOMAIN.min(ALL / count.max(1) as u32);
    for domain in domains.iter_mut().filter(entitled) {
        domain.slots = floor((of_domain / domain.ports.max(1) as u32).min(LONG_MAX));
        if domain.slots < LONG_MIN {
            domain.slots = 0;
            domain.frames = Frames::Plain;
            domain.why = format!(
                "the memory for long frames, {} MiB, is too little for {count} groups of uplinks and what is connected to them",
                ALL / 512
            );
        }
    }
}

/// Gives all ports their slots.
pub(super) fn assign(inventory: &mut Inventory, domains: &[Domain]) {
    let (outside, slots) = outside(inventory, domains);
    for spec in inventory.instances.values_mut() {
        for port in spec.ports.iter_mut().filter(|port| port.mtu > SLOT_MTU_MAX) {
            port.long = JUMBO;
        }
    }
    for name in outside {
        if let Some(spec) = inventory.instances.get_mut(&name) {
            give(spec, slots);
        }
    }
    let of_shell = of_shell(inventory);
    for pool in inventory.pools.values_mut().filter(can_take) {
        let most = affordable(pool.memory.0, pool.ports.into()).min(of_shell);
        pool.long = if most < LONG_MIN { 0 } else { most };
    }
    for domain in domains {
        let mut longest = 0;
        for name in &domain.instances {
            let Some(spec) = inventory.instances.get_mut(name) else {
                continue;
            };
            if domain.slots > 0 && !taken(name, spec).0.is_plain() {
                give(spec, domain.slots);
            }
            longest = spec
                .ports
                .iter()
                .map(|port| port.mtu)
                .fold(longest, u16::max);
        }
        let jumbo = if longest > SLOT_MTU_MAX { JUMBO } else { 0 };
        for name in &domain.uplinks {
            if let Some(spec) = inventory.uplinks.get_mut(name) {
                spec.long = domain.slots.max(jumbo);
            }
        }
    }
}

/// Instances that no uplink leads to yet, and the slots of each of their ports: an instance that is restored, or has come
/// from another host, is wired when it exists. They have memory if there are few of them, and an uplink to be wired to.
fn outside(inventory: &Inventory, domains: &[Domain]) -> (Vec<String>, u32) {
    const NONE: (Vec<String>, u32) = (Vec::new(), 0);
    if !can_come(inventory) {
        return NONE;
    }
    let inside: HashSet<&String> = domains.iter().flat_map(|it| &it.instances).collect();
    let takes = |(name, spec): &(&String, &InstanceSpec)| {
        !spec.ports.is_empty() && !taken(name, spec).0.is_plain() && !inside.contains(name)
    };
    let found: Vec<_> = inventory.instances.iter().filter(takes).collect();
    let ports: u64 = found.iter().map(|(_, spec)| u64::from(spec.queues())).sum();
    if ports > PORTS_MAX as u64 {
        return NONE;
    }
    let names = found.into_iter().map(|(name, _)| name.clone()).collect();
    (names, floor(OF_DOMAIN / ports.max(1) as u32).min(LONG_MAX))
}

/// Super-frames may come in by an uplink.
fn can_come(inventory: &Inventory) -> bool {
    let takes = |spec: &UplinkSpec| spec.super_frames == SuperFrames::Auto;
    inventory.uplinks.values().any(takes)
}

/// The shells of a pool can become instances that take other than plain frames.
fn can_take(pool: &&mut PoolSpec) -> bool {
    let takes = pool.purpose.is_built_in() || pool.purpose == Purpose::Images;
    takes && pool.trust.is_none()
}

/// Most slots of each port of a shell; 0 if there are too many shells, or no uplink that they could be wired to.
fn of_shell(inventory: &Inventory) -> u32 {
    let ports = |pool: &PoolSpec| u64::from(pool.ports) * u64::from(pool.size.most());
    let ports: u64 = inventory.pools.values().map(ports).sum();
    let each = floor((u64::from(OF_DOMAIN) / ports.max(1)) as u32).min(LONG_MAX);
    if can_come(inventory) { each } else { 0 }
}

/// Gives an instance its slots for super-frames.
fn give(spec: &mut InstanceSpec, share: u32) {
    let most = affordable(spec.resources.memory.0, spec.queues().into()).min(share);
    for port in &mut spec.ports {
        port.long = most;
    }
}
