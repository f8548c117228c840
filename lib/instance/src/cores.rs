//! The cores that an instance runs on, and its load there.

use crate::machine;
use nfluid_control::balance::window;
use nfluid_control::placement::Placement;
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_sandbox::{Instance, InstanceError};
use std::time::{Duration, Instant};

/// What a new figure counts in the mean.
const NEW: f64 = 0.4;

/// How an instance's load is measured.
#[derive(Default)]
pub struct Load {
    /// CPU time and waiting time of its threads, and when.
    seen: Option<(Duration, Instant)>,
    /// The mean, as a part of a core.
    pub mean: Option<f64>,
}

impl Load {
    /// Looks again at what the instance has run and waited for.
    pub fn measure(&mut self, process: &Instance) {
        let Some(used) = process.cpu_and_wait_time() else {
            self.seen = None;
            return;
        };
        let now = Instant::now();
        if let Some((before, then)) = self.seen.replace((used, now)) {
            let passed = now.duration_since(then).as_secs_f64().max(1e-3);
            let load = used.saturating_sub(before).as_secs_f64() / passed;
            let mean = self.mean.get_or_insert(load);
            *mean += NEW * (load - *mean);
        }
    }
}

/// The CPUs that an instance may run on.
pub fn usable(resources: &Resources) -> Vec<u32> {
    match resources.cpus.as_slice() {
        [] => machine::cpus(),
        some => some.to_vec(),
    }
}

/// The CPUs that an instance is pinned to which is on `core`; nothing: it may be anywhere.
pub fn pinned_to(spec: &InstanceSpec, core: Option<u32>) -> Vec<u32> {
    let resources = &spec.resources;
    match core {
        Some(core) if resources.placement != Placement::Free => {
            window(&usable(resources), core, width(spec))
        }
        _ => resources.cpus.clone(),
    }
}

/// Puts a process on these CPUs, of which there is one at least.
///
/// # Errors
/// It is gone, or none of them is there.
pub fn pin(process: &Instance, cpus: &[u32]) -> Result<(), InstanceError> {
    let cpus: Vec<usize> = cpus.iter().map(|cpu| *cpu as usize).collect();
    process.pin(&cpus)
}

/// On how many cores an instance is at a time, that is put on cores: it has a thread for each queue of a port.
pub fn width(spec: &InstanceSpec) -> usize {
    let queues = spec.ports.iter().map(|port| usize::from(port.queues));
    queues.max().unwrap_or(1)
}
