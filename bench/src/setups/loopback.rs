//! Processes of instances whose two ports are joined. No generator affects the result by its CPU time or scheduling:
//! there are only the processes, and the threads that run the switch for them.

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
/// The port on which the processes send; they receive on the other port.
const OUT: usize = 1;
/// Circulating frames: they occupy RX slots until an I/O thread has copied them to other slots.
pub const FRAMES: u32 = RING / 2;
/// Time by which I/O threads begin before the processes, and end after them.
const AHEAD: Duration = Duration::from_millis(2);
/// Time by which processes on a shared core begin before the measured time, and end after it: the first to start, or
/// the last to end, has the core alone meanwhile.
const SHARED: Margins = Margins {
    before: Duration::from_millis(20),
    after: Duration::from_millis(30),
};
/// Sum of both margins.
pub const AROUND: Duration = SHARED.before.saturating_add(SHARED.after);
/// Margins of a process that runs alone, which first warms its caches up.
const ALONE: Margins = Margins {
    before: Duration::from_millis(3),
    after: Duration::ZERO,
};
const NONE: Margins = Margins {
    before: Duration::ZERO,
    after: Duration::ZERO,
};

/// Times that processes run before and after the measured time.
#[derive(Clone, Copy)]
struct Margins {
    before: Duration,
    after: Duration,
}

/// Processes, and the process of their I/O threads.
pub struct Loopback {
    processes: Vec<Peer>,
    io: Option<Peer>,
    /// The instances of the processes; they live as long as the processes.
    instances: Vec<ScratchInstance>,
}

/// Result of a run.
pub struct Run {
    /// Outcomes of the processes that took part, in order.
    pub processes: Vec<Outcome>,
    /// CPU time of the I/O threads in seconds.
    pub io_cpu_seconds: f64,
}

impl Loopback {
    /// Starts each role in its own instance, all served by `model`.
    ///
    /// # Errors
    /// When an instance cannot be made or a process cannot be started.
    pub fn start(scratch: &mut Scratch, model: Model, roles: &[Role]) -> anyhow::Result<Self> {
        Loopback::with_ports(2, scratch, model, roles)
    }

    /// As [`Loopback::start`], with further ports, which are not connected yet.
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
            // No doorbell for the peer: the peer is the sender itself, which is rung when its frames are consumed.
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

    /// Returns the processes in order, then that of the I/O threads, if there is one.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().chain(&self.io).map(Peer::pid)
    }

    /// Returns the instances of the processes.
    pub fn instances(&self) -> &[ScratchInstance] {
        &self.instances
    }

    /// Returns the number of the port on which a process sends.
    pub fn port(&self, process: usize) -> u32 {
        self.instances[process].id(OUT)
    }

    /// Runs all processes.
    ///
    /// # Errors
    /// When a process fails; when interrupted.
    pub fn run(&mut self, seconds: f64) -> anyhow::Result<Run> {
        self.run_some(seconds, NONE, |_| true)
    }

    /// Runs all processes, and measures them over the same `seconds`, in which all of them run.
    ///
    /// # Errors
    /// As for [`Loopback::run`].
    pub fn run_sharing(&mut self, seconds: f64) -> anyhow::Result<Run> {
        self.run_some(seconds, SHARED, |_| true)
    }

    /// As [`Loopback::run_sharing`], for a model without I/O threads; [`Loopback::end`] returns the outcomes. The
    /// processes run for [`AROUND`] longer than the measured time.
    ///
    /// # Errors
    /// When a process has ended.
    pub fn begin_sharing(&mut self, seconds: f64) -> anyhow::Result<()> {
        let from_ns = monotonic_ns() + SHARED.before.as_nanos() as u64;
        let mut processes = self.processes.iter_mut();
        processes.try_for_each(|process| process.start_span(seconds, from_ns, SHARED.after))
    }

    /// Waits for the end of the run that [`Loopback::begin_sharing`] has begun.
    ///
    /// # Errors
    /// As for [`Loopback::run`].
    pub fn end(&mut self) -> anyhow::Result<Vec<Outcome>> {
        self.processes.iter_mut().map(Peer::outcome).collect()
    }

    /// Runs one process and its I/O thread; it has warmed up when the measured time begins.
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
    /// Returns the CPU time of the processes and the I/O threads in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let processes = self.processes.iter();
        processes.map(|outcome| outcome.cpu_seconds).sum::<f64>() + self.io_cpu_seconds
    }
}
