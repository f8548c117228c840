//! Set-ups of the kernel between namespaces: a source, one or more forwarders, a sink.

mod hop;

use super::resources::Resources;
use super::veth::{self, Ends, GENERATOR_CORE};
use super::way::{Round, Way};
use crate::host::cpu;
use crate::peer::Peer;
use anyhow::Context;
pub use hop::{Forwarder, GROUP_RULES};
use hop::{Hop, Position};
use nfluid_testbed::command::output;
use nfluid_testbed::program::need;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};

const FORWARDING_CORE: usize = 0;

/// CPUs of the forwarders.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In soft interrupts on the generator's core.
    OneCore,
    /// In a kernel thread (threaded NAPI), on the other core.
    TwoCores,
    /// The first half of the hops on the generator's core, the rest on the other core: in soft interrupts there (RPS),
    /// or for XDP in a thread.
    Halves,
}

/// The namespaces and their processes. A process is declared before its namespace, so that it ends first.
struct Kernel {
    forwarder: Forwarder,
    placement: Placement,
    _programs: Vec<Peer>,
    ends: Ends,
    /// The kernel threads that forward, if any.
    threads: Vec<u32>,
    hops: Vec<Hop>,
    /// CPU time at the beginning of the idle time.
    idle_since: f64,
}

pub fn bridge_one_core(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Bridge, Placement::OneCore, 1)
}

pub fn bridge_two_cores(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Bridge, Placement::TwoCores, 1)
}

pub fn hybrid_one_core(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Hybrid, Placement::OneCore, 1)
}

pub fn hybrid_two_cores(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Hybrid, Placement::TwoCores, 1)
}

pub fn nftables_one_core(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Nftables, Placement::OneCore, 1)
}

pub fn nftables_two_cores(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Nftables, Placement::TwoCores, 1)
}

pub fn xdp_one_core(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Xdp, Placement::OneCore, 1)
}

pub fn xdp_two_cores(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    start(resources, Forwarder::Xdp, Placement::TwoCores, 1)
}

/// Starts a chain of this many hops.
pub fn start(
    resources: &mut Resources,
    forwarder: Forwarder,
    placement: Placement,
    count: usize,
) -> anyhow::Result<Box<dyn Way>> {
    need(&[("bridge", "iproute2"), ("nft", "nftables")])?;
    let object = veth::programs(resources)?;
    let hops = (0..count).map(|_| Hop::new());
    let hops = hops.collect::<anyhow::Result<Vec<_>>>()?;
    let ends = hop::join(resources, &hops)?;
    let mut programs = Vec::new();
    for (index, hop) in hops.iter().enumerate() {
        let position = Position {
            is_first: index == 0,
            is_last: index + 1 == count,
        };
        programs.extend(hop.forward(forwarder, &resources.directory, &object, position)?);
    }
    if forwarder == Forwarder::Xdp {
        programs.push(hop::drop_at(&ends, &object)?);
    }
    let threads = match placement {
        Placement::OneCore => Vec::new(),
        Placement::TwoCores => own_threads(&hops[0])?,
        Placement::Halves => second_half(forwarder, &hops[count / 2])?,
    };
    Ok(Box::new(Kernel {
        forwarder,
        placement,
        _programs: programs,
        ends,
        threads,
        hops,
        idle_since: 0.0,
    }))
}

/// Moves forwarding from this hop on to the other core; returns the kernel threads that forward, if any.
fn second_half(forwarder: Forwarder, hop: &Hop) -> anyhow::Result<Vec<u32>> {
    if forwarder == Forwarder::Xdp {
        return own_threads(hop);
    }
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", hop.entry);
    write_within(hop, &path, &format!("{:x}", 1 << FORWARDING_CORE))?;
    Ok(Vec::new())
}

fn write_within(hop: &Hop, path: &str, value: &str) -> anyhow::Result<()> {
    let line = format!("echo {value} > {path}");
    output(hop.namespace.command("sh").args(["-c", &line]))?;
    Ok(())
}

/// Gives the interface's NAPI a thread, on that core and with the benchmark's priority.
fn own_threads(hop: &Hop) -> anyhow::Result<Vec<u32>> {
    let interface = &hop.entry;
    write_within(hop, &format!("/sys/class/net/{interface}/threaded"), "1")?;
    let threads = cpu::kernel_threads(&format!("napi/{interface}-"));
    anyhow::ensure!(
        !threads.is_empty(),
        "the kernel made no thread for {interface}"
    );
    let mut core = CpuSet::new();
    core.set(FORWARDING_CORE);
    let nice = getpriority_process(None).context("the own priority")?;
    for thread in &threads {
        let thread = Pid::from_raw(thread.cast_signed());
        sched_setaffinity(thread, &core).context("pinning a NAPI thread")?;
        setpriority_process(thread, nice).context("the priority of a NAPI thread")?;
    }
    Ok(threads)
}

impl Kernel {
    /// Returns the CPU time of the forwarders, in seconds.
    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let threads = self.threads.iter();
        let threads: anyhow::Result<f64> =
            threads.map(|thread| cpu::process_seconds(*thread)).sum();
        Ok(match self.placement {
            Placement::TwoCores => threads?,
            Placement::OneCore | Placement::Halves => cpu::softirq_seconds()? + threads?,
        })
    }
}

impl Way for Kernel {
    fn conditions(&self) -> String {
        let place = match self.placement {
            Placement::OneCore => {
                "all in soft interrupts on the generator's core; CPU time: soft interrupts of all \
                 cores by /proc/stat, to 10 ms, whoever causes them"
            }
            Placement::TwoCores => {
                "threaded NAPI on core 0, generator on core 1; CPU time: the NAPI thread's"
            }
            Placement::Halves => {
                "the first half in soft interrupts on the generator's core, the rest on core 0, by RPS \
                 or, XDP's, in a NAPI thread; CPU time: that thread's and soft interrupts of all cores \
                 by /proc/stat, to 10 ms, whoever causes them"
            }
        };
        format!(
            "{}; {} veth pairs; live XDP frames, one flow, no socket; {place}; the sink's part included",
            self.forwarder.name(),
            self.hops.len() + 1
        )
    }

    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round> {
        let (cpu, own) = (
            self.cpu_seconds()?,
            cpu::softirq_seconds_of(GENERATOR_CORE)?,
        );
        let (frames, outcome) = self.ends.send(len, seconds)?;
        let forwarding_seconds = self.cpu_seconds()? - cpu;
        let own = cpu::softirq_seconds_of(GENERATOR_CORE)? - own;
        let traffic_seconds = match self.placement {
            // The CPU time of soft interrupts is charged to the generator.
            Placement::OneCore => (outcome.cpu_seconds - forwarding_seconds).max(0.0),
            Placement::Halves => (outcome.cpu_seconds - own).max(0.0),
            Placement::TwoCores => outcome.cpu_seconds,
        };
        Ok(Round {
            frames,
            seconds: outcome.seconds,
            forwarding_seconds,
            traffic_seconds,
        })
    }

    fn alone_us(&mut self, len: usize, seconds: f64) -> anyhow::Result<Option<f64>> {
        if self.forwarder == Forwarder::Xdp {
            // The frames end in an XDP program at the sink and reach no socket.
            return Ok(None);
        }
        self.ends.alone_us(len, seconds)
    }

    fn idle_begin(&mut self, _seconds: f64) -> anyhow::Result<()> {
        self.idle_since = self.cpu_seconds()?;
        Ok(())
    }

    fn idle_end(&mut self) -> anyhow::Result<f64> {
        Ok(self.cpu_seconds()? - self.idle_since)
    }
}
