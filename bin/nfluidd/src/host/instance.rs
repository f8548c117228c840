//! A running instance, as the daemon knows it.

use super::record::Record;
use nfluid_api::types::InstanceState;
use nfluid_control::quantity::Millis;
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_control::supervise::Supervisor;
use nfluid_sandbox::cgroup::{Cgroup, Share};
use nfluid_sandbox::{Ended, Instance};
use nfluid_switch::{InstanceMemory, PortSpec};
use std::time::Instant;

/// TX slots of each port of an instance: what it makes itself per flush. What it forwards needs
/// none.
const TX_SLOTS: u32 = 64;

/// Processes and threads that an instance may have.
const PIDS_MAX: u32 = 256;

/// An instance of the platform.
pub struct Running {
    /// What it was made from.
    pub spec: InstanceSpec,
    /// Its maps and sockets.
    pub memory: InstanceMemory,
    /// Who pays.
    pub cgroup: Cgroup,
    /// Its process; absent between an end and a restart.
    pub process: Option<Instance>,
    /// Whether and when it is started again.
    pub supervisor: Supervisor,
    /// Where it is in its life.
    pub state: InstanceState,
    /// How it ended last.
    pub last_exit: Option<String>,
    /// When its process started, or was adopted.
    pub since: Instant,
    /// What is kept on disk about it.
    pub record: Record,
}

/// The cgroup of instance `name`: a prefix keeps it apart from the daemon's own.
pub fn cgroup_name(name: &str) -> String {
    format!("i-{name}")
}

/// The ports of an instance, every queue one of its own, with ids from `first_id`.
pub fn port_specs(spec: &InstanceSpec, first_id: u32) -> Vec<PortSpec> {
    let queues = spec
        .ports
        .iter()
        .flat_map(|port| (0..port.queues).map(move |queue| (port, queue)));
    (first_id..)
        .zip(queues)
        .map(|(id, (port, queue))| {
            let mut made = PortSpec::new(id, &port.name, port.mac.0, spec.ring);
            made.mtu = port.mtu;
            made.tx_slots = TX_SLOTS;
            made.queue = (queue, port.queues);
            // Its queues' threads share one pipe, which a link's sender rings once for all of them.
            made.kernel_bell = port.queues > 1;
            made
        })
        .collect()
}

impl Running {
    /// Process number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Instance::pid)
    }
}

/// Weight, cap and memory of an instance's cgroup.
pub fn set_resources(cgroup: &Cgroup, resources: &Resources) -> anyhow::Result<()> {
    let share = |share: nfluid_control::quantity::Share| {
        Share::from_per_mille(((share.percent() * 10.0).round() as u32).max(1))
    };
    // Without a promise: as little as there is, so that promises hold.
    let weight = resources
        .share
        .map_or_else(|| Share::from_per_mille(1), share)?;
    cgroup.set_weight(weight)?;
    cgroup.set_cap(resources.cap.map(share).transpose()?)?;
    cgroup.set_memory(resources.memory.0)?;
    cgroup.set_pids(PIDS_MAX)?;
    Ok(())
}

/// Milliseconds on the supervisor's clock.
pub fn supervisor_time(started: Instant) -> Millis {
    Millis(started.elapsed().as_millis() as u64)
}

/// Whether an end was one by success.
pub fn exit_of(ended: Ended) -> nfluid_control::supervise::Exit {
    match ended {
        Ended::Exited(0) => nfluid_control::supervise::Exit::Success,
        _ => nfluid_control::supervise::Exit::Failure,
    }
}
