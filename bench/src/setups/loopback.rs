//! Processes of instances whose two ports are joined. There is no generator whose CPU time or scheduling
//! would be part of the result: some processes, and who runs the switch for them.

use crate::io_model::Model;
use crate::peer::Peer;
use crate::roles::Role;
use crate::roles::work::Outcome;
use nfluid_ring::clock::monotonic_ns;
use nfluid_switch::Destination;
use nfluid_testbed::interrupt;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use std::time::Duration;

/// Slots of each ring.
pub const RING: u32 = 256;
/// The port on which the processes send; they receive on the other.
const OUT: usize = 1;
/// Frames that go round: they lie in RX slots until an I/O thread has copied them to others.
pub const FRAMES: u32 = RING / 2;
/// I/O threads begin so much before the processes, and end so much after them.
const AHEAD: Duration = Duration::from_millis(2);
/// Processes that share a core begin so much before the time that counts, and end so much after it: who is told
/// first, or ends last, has the core alone meanwhile.
const SHARED: Margins = Margins {
    before: Duration::from_millis(20),
    after: Duration::from_millis(30),
};
/// Both together.
pub const AROUND: Duration = SHARED.before.saturating_add(SHARED.after);
/// A process that runs alone warms its caches up first.
const ALONE: Margins = Margins {
    before: Duration::from_millis(3),
    after: Duration::ZERO,
};
const NONE: Margins = Margins {
    before: Duration::ZERO,
    after: Duration::ZERO,
};

/// Times that processes run before and after the time that counts.
#[derive(Clone, Copy)]
struct Margins {
    before: Duration,
    after: Duration,
}

/// Processes, and that of their I/O threads.
pub struct Loopback {
    processes: Vec<Peer>,
    io: Option<Peer>,
    /// The instances of the processes; they live as long as the processes.
    instances: Vec<ScratchInstance>,
}

/// Result of a run.
pub struct Run {
    /// Of the processes that took part, in their order.
    pub processes: Vec<Outcome>,
    /// CPU time of the I/O threads in seconds.
    pub io_cpu_seconds: f64,
}

impl Loopback {
    /// Starts each role in an instance of its own, all served by `model`.
    ///
    /// # Errors
    /// When an instance cannot be made or a process not be started.
    pub fn start(scratch: &mut Scratch, model: Model, roles: &[Role]) -> anyhow::Result<Self> {
        Loopback::with_ports(2, scratch, model, roles)
    }

    /// The same with more ports, which lead nowhere yet.
    ///
    /// # Errors
    /// As for [`Loopback::start`].
    pub fn with_ports(
        ports: u32,
        scratch: &mut Scratch,
        model: Model,
        roles: &[Role],
    ) -> anyhow::Result<Self> {
        let mut processes = Vec::with_capacity(roles.len());
        let mut instances = Vec::with_capacity(roles.len());
        for role in roles {
            let instance = scratch.instance(ports, RING, RING)?;
            // No bell for the peer: it is the sender itself, which is rung when its frames are consumed.
            for (from, to) in [(0, 1), (1, 0)] {
                let link = Destination::Link(instance.id(to));
                scratch.switch.connect(instance.id(from), link)?;
            }
            processes.push(Peer::start(&instance, role)?);
            instances.push(instance);
        }
        let io = model.start(scratch, &instances.iter().collect::<Vec<_>>())?;
        Ok(Loopback {
            processes,
            io,
            instances,
        })
    }

    /// The processes in their order, then that of the I/O threads, if there is one.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().chain(&self.io).map(Peer::pid)
    }

    /// Returns the instances of the processes.
    pub fn instances(&self) -> &[ScratchInstance] {
        &self.instances
    }

    /// Number of the port on which a process sends.
    pub fn port(&self, process: usize) -> u32 {
        self.instances[process].id(OUT)
    }

    /// Runs all of them.
    ///
    /// # Errors
    /// When one of them fails; when interrupted.
    pub fn run(&mut self, seconds: f64) -> anyhow::Result<Run> {
        self.run_some(seconds, NONE, |_| true)
    }

    /// Runs all of them, and counts what they do in the same `seconds`, in which all of them run.
    ///
    /// # Errors
    /// As for [`Loopback::run`].
    pub fn run_sharing(&mut self, seconds: f64) -> anyhow::Result<Run> {
        self.run_some(seconds, SHARED, |_| true)
    }

    /// As [`Loopback::run_sharing`], of a model without I/O threads; what they have done is said by [`Loopback::end`]. They run
    /// for [`AROUND`] longer than they count.
    ///
    /// # Errors
    /// When one of them has ended.
    pub fn begin_sharing(&mut self, seconds: f64) -> anyhow::Result<()> {
        let from_ns = monotonic_ns() + SHARED.before.as_nanos() as u64;
        let mut processes = self.processes.iter_mut();
        processes.try_for_each(|process| process.start_span(seconds, from_ns, SHARED.after))
    }

    /// Waits for the end of what [`Loopback::begin_sharing`] has begun.
    ///
    /// # Errors
    /// As for [`Loopback::run`].
    pub fn end(&mut self) -> anyhow::Result<Vec<Outcome>> {
        self.processes.iter_mut().map(Peer::outcome).collect()
    }

    /// Runs one of them, and its I/O thread; it has warmed up when it begins to count.
    ///
    /// # Errors
    /// As for [`Loopback::run`].
    pub fn run_alone(&mut self, seconds: f64, process: usize) -> anyhow::Result<Run> {
        self.run_some(seconds, ALONE, |index| index == process)
    }

    fn run_some(
        &mut self,
        seconds: f64,
        margins: Margins,
        takes_part: impl Fn(usize) -> bool,
    ) -> anyhow::Result<Run> {
        interrupt::check()?;
        if let Some(io) = &mut self.io {
            let around = margins.before + margins.after + 2 * AHEAD;
            io.start_run(seconds + around.as_secs_f64(), None)?;
            std::thread::sleep(AHEAD);
        }
        let some = self.processes.iter_mut().enumerate();
        let mut some: Vec<_> = some.filter(|(index, _)| takes_part(*index)).collect();
        let from_ns = monotonic_ns() + margins.before.as_nanos() as u64;
        for (_, process) in &mut some {
            process.start_span(seconds, from_ns, margins.after)?;
        }
        let processes = some.iter_mut().map(|(_, process)| process.outcome());
        let processes = processes.collect::<anyhow::Result<_>>()?;
        let io = self.io.as_mut().map(Peer::outcome).transpose()?;
        Ok(Run {
            processes,
            io_cpu_seconds: io.map_or(0.0, |io| io.cpu_seconds),
        })
    }
}

impl Run {
    /// CPU time of the processes and the I/O threads in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let processes = self.processes.iter();
        processes.map(|outcome| outcome.cpu_seconds).sum::<f64>() + self.io_cpu_seconds
    }
}
