//! An instance that is a process in a sandbox, with its ports, cgroup and record.

mod adoption;
mod remains;
mod succession;
mod workload;

pub use adoption::adopt;
pub use remains::remove_leftovers;

use crate::maker::Maker;
use nfluid_control::quantity::Micros;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::workload::Port;
use nfluid_ring::Level;
use nfluid_sandbox::Instance;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_switch::{InstanceMemory, Maps};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use succession::Successor;

/// An instance that is a process in a sandbox.
pub struct Process {
    maker: Arc<Maker>,
    name: String,
    /// Its ports; their maps are pinned.
    memory: InstanceMemory,
    ports: Vec<Port>,
    /// The cgroup that is charged.
    cgroup: Cgroup,
    /// Its memory limit in bytes.
    memory_limit: u64,
    /// Its process. `None` between an end and a restart.
    process: Option<Instance>,
    /// The doorbell by which it wakes its I/O thread, while it has one.
    io_doorbell: Option<OwnedFd>,
    record: Record,
    control: PathBuf,
    /// The CPUs that its threads were pinned to; empty: all. `None` after an adoption: unknown.
    pinned: Option<Vec<u32>>,
    /// The time slice that its threads were given.
    slice: Option<Micros>,
    /// The process with a network stack of its own, and the frames that this stack may send.
    lets_in: Option<(u32, Level)>,
    /// The process that is taking over from the present one.
    successor: Option<Successor>,
    /// Processes of it that the kernel has killed for lack of memory, before the present one.
    known_oom_kills: u64,
}

/// Parts of an instance whose process runs.
pub struct Parts {
    /// Its ports.
    pub memory: InstanceMemory,
    /// Its cgroup.
    pub cgroup: Cgroup,
    /// Its memory limit in bytes.
    pub memory_limit: u64,
    /// Its process.
    pub process: Instance,
    /// The doorbell by which it wakes its I/O thread, if it has one.
    pub io_doorbell: Option<OwnedFd>,
    /// Its record.
    pub record: Record,
    /// The CPUs that its threads were pinned to; empty: all. `None`: unknown.
    pub pinned: Option<Vec<u32>>,
    /// The time slice that its threads were given.
    pub slice: Option<Micros>,
}

impl Process {
    /// Creates an instance whose process runs. [`Maker::exits`] reports the end of the process.
    pub fn new(maker: &Arc<Maker>, name: &str, parts: Parts) -> Self {
        maker.exits.add(name, &parts.process);
        let ports = parts.memory.ports.iter().map(|part| Port {
            number: part.spec.id,
            name: part.spec.name.clone(),
            queue: part.spec.queue.0,
            queues: part.spec.queue.1,
        });
        Process {
            name: name.to_owned(),
            ports: ports.collect(),
            control: maker.paths.control(name),
            memory: parts.memory,
            cgroup: parts.cgroup,
            memory_limit: parts.memory_limit,
            process: Some(parts.process),
            io_doorbell: parts.io_doorbell,
            record: parts.record,
            pinned: parts.pinned,
            slice: parts.slice,
            lets_in: None,
            successor: None,
            known_oom_kills: 0,
            maker: Arc::clone(maker),
        }
    }

    /// Returns how many processes in its cgroup the kernel has killed, as the memory limit was reached.
    fn oom_kills(&self) -> u64 {
        let stats = self.cgroup.stats().unwrap_or_default();
        stats.oom_kills.unwrap_or(0)
    }

    /// Opens the maps of its ports, which the daemon does not keep open.
    fn maps(&self) -> anyhow::Result<Maps> {
        let pins = self.maker.paths.instance_pins(&self.name);
        Ok(Maps::open(&pins, self.memory.ports.len())?)
    }

    /// Returns the instance whose doorbell each queue rings.
    fn peers_by_queue(&self) -> Vec<Option<&str>> {
        let mut port = 0;
        let peer = |(index, queue): (usize, &Port)| {
            if index > 0 && queue.queue == 0 {
                port += 1;
            }
            self.record.doorbells.get(port)?.as_deref()
        };
        self.ports.iter().enumerate().map(peer).collect()
    }
}
