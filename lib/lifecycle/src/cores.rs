//! The cores that an instance runs on.

use crate::machine;
use nfluid_control::balance::window;
use nfluid_control::placement::Placement;
use nfluid_control::spec::{InstanceSpec, Resources};

/// Returns the CPUs that an instance may run on.
pub fn usable(resources: &Resources) -> Vec<u32> {
    match resources.cpus.as_slice() {
        [] => machine::cpus(),
        some => some.to_vec(),
    }
}

/// Returns the CPUs that an instance with placement on `core` is pinned to. Empty if the instance may run anywhere.
pub fn pinned_to(spec: &InstanceSpec, core: Option<u32>) -> Vec<u32> {
    let resources = &spec.resources;
    match core {
        Some(core) if resources.placement != Placement::Free => {
            window(&usable(resources), core, width(spec))
        }
        _ => resources.cpus.clone(),
    }
}

/// Returns the number of cores that an instance with placement occupies at a time: one thread for each queue of a
/// port.
pub fn width(spec: &InstanceSpec) -> usize {
    let queues = spec.ports.iter().map(|port| usize::from(port.queues));
    queues.max().unwrap_or(1)
}
