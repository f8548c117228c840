//! The processes of an experiment: this program again, each pinned to its core, each with the ports
//! of its own instance or in its own network namespace. A role starts when its standard input gets a
//! line and answers on standard output with one line of JSON.

pub mod across;
mod alone;
mod around;
pub mod fan;
pub mod function;
mod hand_on;
pub mod hop;
pub mod hostile;
mod io;
mod looped;
mod oneway;
pub mod paced;
mod ping;
pub mod probe;
pub mod pump;
mod stall;
pub mod subscribers;
pub mod tcp;
mod transmit;
mod wake;
pub mod xdp;

use crate::experiments::models::Model;
use crate::experiments::subject::Subject;
use crate::statistics::Samples;
use anyhow::{Context, bail};
use fan::Fan;
use function::Manner;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Environment variable that carries a role to the process that plays it.
pub const ROLE_ENV: &str = "NFLUID_BENCH_ROLE";
/// The flow of frames that the kernel forwards.
pub const FLOW: u32 = 5;
/// What a role in a namespace says first.
pub const READY: &str = "ready";

/// What a process does while it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// It looks again: the core is its own.
    Spinning,
    /// It lets others on its core run, then looks again.
    Yielding,
    /// It sleeps until it is rung for.
    Sleeping,
}

/// The core of a process that may run on all.
pub const ANY_CORE: usize = usize::MAX;

/// What a process of an experiment does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Core to run on, or [`ANY_CORE`].
    pub core: usize,
    /// What to do.
    pub task: Task,
}

/// Tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Sends frames of `len` bytes in bursts of `batch` until told to stop; frames are prepared
    /// once, then only their length is written, as pkt-gen does.
    Send {
        len: usize,
        batch: usize,
        flows: u32,
        waits: Waits,
    },
    /// Receives in bursts; reads every byte of every frame, or leaves the payload alone.
    Receive {
        batch: usize,
        reads: bool,
        waits: Waits,
    },
    /// Runs an NF as its host does: batch after batch, asleep when nothing waits.
    Nf { subject: Subject },
    /// Runs an NF until standard input ends, as its host does or in another manner.
    Host { subject: Subject, manner: Manner },
    /// Sends the subject's traffic through many NFs, each linked to a port of its own both ways.
    Fan { subject: Subject, fan: Fan },
    /// Sends the subject's traffic through many NFs at rates that scripts give.
    Paced { subject: Subject, len: usize },
    /// Sends the subject's traffic on port 0 and receives on port 1 what comes out, with at most
    /// `window` frames under way, so that no ring on the way overflows.
    Around {
        subject: Subject,
        /// Hardware address to send to.
        to: [u8; 6],
        len: usize,
        batch: usize,
        window: u32,
        /// While nothing comes back.
        waits: Waits,
    },
    /// Sends one frame on port 0 and sleeps until it comes back on port 1.
    Ping { subject: Subject, to: [u8; 6] },
    /// Sends one stamped frame at a time to a sleeping receiver; reports what the call cost.
    Ring { pause_us: u64 },
    /// Sleeps until a frame comes; reports how old its stamp is.
    Sleep,
    /// An NF through which `frames` frames go round: its ports are joined.
    Circle {
        subject: Subject,
        len: usize,
        frames: u32,
    },
    /// The same, and one of many frames leaves on its third port, where frames come in as well.
    Outward {
        subject: Subject,
        len: usize,
        frames: u32,
    },
    /// Hands frames of `len` bytes to the switch, `batch` at a time; its ports are joined.
    Stream { len: usize, batch: u32 },
    /// Hands over one frame at a time and sleeps until it is consumed; its ports are joined.
    HandOver { pause_us: u64 },
    /// Hosts the I/O threads that serve other instances' ports.
    Io { model: Model },
    /// An NF that is told to be honest or hostile.
    Hostile,
    /// Signs frames and sends each on to `next`, until it is killed or its `parent` ends.
    Hop {
        next: [u8; 6],
        waits: Waits,
        parent: u32,
        /// Where it says that it has handed frames over, if an I/O thread serves it.
        listed: Option<hop::Listed>,
    },
    /// Sends stamped frames, consecutive ones to different NFs, and receives what has crossed them.
    Across {
        /// Of each port: the NFs that it sends to.
        targets: Vec<across::Targets>,
        load: across::Load,
        /// The interface that they leave by, if that is not a port; the last port is the wire's then.
        wire: Option<String>,
    },
    /// Hands on each byte of its standard input; it has no ports.
    HandOn,
    /// Sends frames of `len` bytes out of an interface by a compiled XDP program.
    Generate {
        object: PathBuf,
        interface: String,
        len: usize,
        /// To whom; absent: one flow to nobody in particular.
        to: Option<xdp::Addressees>,
    },
    /// Sends one frame of `len` bytes at a time out of the interface `from`, and waits for it at `to`, in the network
    /// namespace at `there`.
    Alone {
        from: String,
        to: String,
        there: PathBuf,
        len: usize,
    },
    /// Sends frames of `len` bytes in bursts of `batch` out of an interface, in its own context, from
    /// the TX slots of its port.
    Transmit {
        interface: String,
        len: usize,
        batch: usize,
    },
    /// Receives what TCP connections to a port of its namespace carry, plain ones and ones of several subflows.
    TcpSink { port: u16 },
    /// Sends to such a port without end.
    TcpSource {
        to: SocketAddrV4,
        /// By several subflows, if both ends have them.
        multipath: bool,
        /// Congestion control, of each subflow.
        control: String,
    },
    /// Attaches a compiled XDP program to an interface; `to` is where it redirects to.
    Attach {
        object: PathBuf,
        program: String,
        interface: String,
        to: Option<String>,
    },
}

/// What a role reports; programs in C leave out what they do not measure.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Frames received or accepted by the switch.
    pub frames: u64,
    /// Of traffic with a rate: frames that were due.
    pub offered: u64,
    /// Of an NF with an uplink: frames that came in by it, before and after what counts, too.
    pub came_in: u64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Of I/O threads: visits of ports that had frames.
    pub visits: u64,
    /// Folded payload, so that reading it cannot be optimised away.
    pub fold: u64,
    /// Mean of the times that the role measures, in microseconds.
    pub mean_us: f64,
    /// Median of them.
    pub median_us: f64,
    /// 99th percentile of them.
    pub p99_us: f64,
    /// Frames that were not back in time: lost, or late because a process did not get its core.
    pub lost: u64,
}

/// The role of this process, if it is one of an experiment.
pub fn from_env() -> Option<Role> {
    let text = std::env::var(ROLE_ENV).ok()?;
    match serde_json::from_str(&text) {
        Ok(role) => Some(role),
        Err(error) => {
            eprintln!("nfluid-bench: {ROLE_ENV}: {error}");
            None
        }
    }
}

impl Role {
    /// Plays the role until standard input ends.
    pub fn run(&self) -> ExitCode {
        match self.play() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("nfluid-bench: role {:?}: {error:#}", self.task);
                ExitCode::FAILURE
            }
        }
    }

    fn play(&self) -> anyhow::Result<()> {
        if let Task::Io { model } = &self.task {
            return io::serve_ports(model, self.core);
        }
        if self.core != ANY_CORE {
            let mut cpus = CpuSet::new();
            cpus.set(self.core);
            sched_setaffinity(None, &cpus).context("pinning to a core")?;
        }
        match &self.task {
            Task::Generate {
                object,
                interface,
                len,
                to,
            } => xdp::generate(object, interface, *len, *to),
            Task::Attach {
                object,
                program,
                interface,
                to,
            } => xdp::attach(object, program, interface, to.as_deref()),
            Task::Alone {
                from,
                to,
                there,
                len,
            } => alone::alone(from, to, there, *len),
            Task::HandOn => hand_on::hand_on(),
            Task::TcpSink { port } => tcp::sink(*port),
            Task::TcpSource {
                to,
                multipath,
                control,
            } => tcp::source(*to, *multipath, control),
            Task::Hop {
                next,
                waits,
                parent,
                listed,
            } => hop::run(*next, *waits, *parent, *listed),
            Task::Host { subject, manner } => function::host(subject, *manner),
            Task::Paced { subject, len } => paced::run(subject, *len),
            Task::Hostile => hostile::run(),
            task => {
                let mut attached = Attached::from_env()?;
                let mut work = task.prepare(&mut attached)?;
                serve(|span| Ok(run_for(&mut attached, &mut *work, span)))
            }
        }
    }
}

/// Says that the role has got what it needs.
fn say_ready() -> anyhow::Result<()> {
    println!("{READY}");
    Ok(std::io::stdout().flush()?)
}

/// Runs for as long as each line of standard input says, until it ends. A second word is the [`monotonic_ns`] at
/// which the time that counts begins, a third one how many nanoseconds the run goes on after it.
fn serve(mut run: impl FnMut(Span) -> anyhow::Result<Outcome>) -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let seconds: f64 = words
            .next()
            .unwrap_or("")
            .parse()
            .context("seconds to run")?;
        let mut span = Span::of(Duration::from_secs_f64(seconds));
        if let Some(from) = words.next() {
            span.from_ns = from.parse().context("when to begin to count")?;
            let after = words.next().unwrap_or("").parse();
            span.after = Duration::from_nanos(after.context("how long to go on")?);
        }
        let outcome = run(span)?;
        println!("{}", serde_json::to_string(&outcome)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Task {
    fn prepare(&self, attached: &mut Attached) -> anyhow::Result<Box<dyn Work>> {
        let work: Box<dyn Work> = match self {
            Task::Send {
                len,
                batch,
                flows,
                waits,
            } => Box::new(oneway::Sender::new(attached, *len, *batch, *flows, *waits)?),
            Task::Receive {
                batch,
                reads,
                waits,
            } => Box::new(oneway::Receiver::new(*batch, *reads, *waits)),
            Task::Nf { subject } => Box::new(function::Function::new(attached, subject)?),
            Task::Fan { subject, fan } => Box::new(fan::FanTraffic::new(attached, subject, *fan)?),
            Task::Around {
                subject,
                to,
                len,
                batch,
                window,
                waits,
            } => {
                let limits = around::Limits {
                    batch: *batch,
                    window: *window,
                    waits: *waits,
                };
                Box::new(around::Around::new(attached, subject, *to, *len, limits)?)
            }
            Task::Transmit {
                interface,
                len,
                batch,
            } => Box::new(transmit::Transmit::new(attached, interface, *len, *batch)?),
            Task::Ping { subject, to } => Box::new(ping::Ping::new(attached, subject, *to)?),
            Task::Ring { pause_us } => {
                Box::new(wake::Ringer::new(Duration::from_micros(*pause_us)))
            }
            Task::Sleep => Box::new(wake::Sleeper::default()),
            Task::Circle {
                subject,
                len,
                frames,
            } => Box::new(looped::Circle::new(attached, subject, *len, *frames)?),
            Task::Outward {
                subject,
                len,
                frames,
            } => Box::new(looped::Outward::new(attached, subject, *len, *frames)?),
            Task::Stream { len, batch } => Box::new(looped::Stream::new(attached, *len, *batch)?),
            Task::HandOver { pause_us } => {
                let pause = Duration::from_micros(*pause_us);
                Box::new(looped::HandOver::new(attached, pause)?)
            }
            Task::Across {
                targets,
                load,
                wire,
            } => {
                let wire = wire.as_deref();
                Box::new(across::Across::new(attached, targets, *load, wire)?)
            }
            Task::Hop { .. }
            | Task::Host { .. }
            | Task::Paced { .. }
            | Task::Hostile
            | Task::Generate { .. }
            | Task::Alone { .. }
            | Task::Attach { .. }
            | Task::Io { .. }
            | Task::TcpSink { .. }
            | Task::TcpSource { .. }
            | Task::HandOn => bail!("it does not run for a time on ports"),
        };
        Ok(work)
    }
}

/// What a role does again and again.
trait Work {
    /// Does a little; returns the number of frames.
    fn burst(&mut self, attached: &mut Attached) -> u64;

    /// Bursts between two looks at the clock: many if each takes less than a microsecond.
    fn bursts_per_look(&self) -> u32 {
        BURSTS_PER_LOOK
    }

    /// After the time is over: takes what is under way still, so that it does not fill rings.
    fn finish(&mut self, _attached: &mut Attached) {}

    /// Adds what only this work knows, and forgets it.
    fn report(&mut self, _outcome: &mut Outcome) {}
}

/// CPU time of this process in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bursts between two looks at the clock.
const BURSTS_PER_LOOK: u32 = 64;

/// When a run counts.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The run has begun by then, by [`monotonic_ns`].
    from_ns: u64,
    time: Duration,
    /// The run goes on for so long after what counts.
    after: Duration,
}

impl Span {
    /// From now on, for so long.
    fn of(time: Duration) -> Self {
        Span {
            from_ns: 0,
            time,
            after: Duration::ZERO,
        }
    }
}

fn run_for(attached: &mut Attached, work: &mut dyn Work, span: Span) -> Outcome {
    bursts(attached, work, || monotonic_ns() >= span.from_ns);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut elapsed = Duration::ZERO;
    let frames = bursts(attached, work, || {
        elapsed = start.elapsed();
        elapsed >= span.time
    });
    let mut outcome = Outcome {
        frames,
        seconds: elapsed.as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        ..Outcome::default()
    };
    let end = span.time + span.after;
    bursts(attached, work, || start.elapsed() >= end);
    work.finish(attached);
    work.report(&mut outcome);
    outcome
}

/// Works until the clock says that it `is_over`; returns the number of frames.
fn bursts(attached: &mut Attached, work: &mut dyn Work, mut is_over: impl FnMut() -> bool) -> u64 {
    let mut frames = 0;
    while !is_over() {
        for _ in 0..work.bursts_per_look() {
            let burst = work.burst(attached);
            frames += burst;
            if burst == 0 {
                // Perhaps it slept.
                break;
            }
        }
    }
    frames
}

/// As `waits` says; a thread that sleeps does so until one of its ports has a frame or room.
fn pause(waits: Waits, attached: &mut Attached) {
    match waits {
        Waits::Spinning => std::hint::spin_loop(),
        Waits::Yielding => sched_yield(),
        Waits::Sleeping => {
            let Attached { ports, doorbell } = attached;
            // An error shows as missing throughput.
            let _ = doorbell.wait(ports, None, SLEEP);
        }
    }
}

/// Longest sleep: a run must end when it is over.
const SLEEP: Duration = Duration::from_millis(20);

/// Times in microseconds that a work collects during a run.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    /// Most of them in one run; what comes later is left out.
    const MOST: usize = 1 << 20;

    fn push_ns(&mut self, ns: u64) {
        if self.0.len() < Self::MOST {
            self.0.push(ns as f64 / 1000.0);
        }
    }

    fn report(&mut self, outcome: &mut Outcome) {
        let samples: Samples = self.0.drain(..).collect();
        outcome.mean_us = samples.mean();
        outcome.median_us = samples.median();
        outcome.p99_us = samples.p99();
    }
}
