//! The processes of an experiment: this program again, each pinned to its core, each with the ports
//! of its own instance or in its own network namespace. A role starts when its standard input gets a
//! line and answers on standard output with one line of JSON.

mod around;
mod function;
mod hand_on;
mod oneway;
mod ping;
mod wake;
mod xdp;

use crate::experiments::subject::Subject;
use crate::statistics::Samples;
use anyhow::{Context, bail};
use nfluid_ring::attach::Attached;
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Environment variable that carries a role to the process that plays it.
pub const ROLE_ENV: &str = "NFLUID_BENCH_ROLE";
/// The flow of frames that the kernel forwards.
pub const FLOW: u32 = 5;
/// What a role in a namespace says first.
pub const READY: &str = "ready";

/// What a process of an experiment does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Core to run on.
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
        yields: bool,
    },
    /// Receives in bursts, reads every byte of every frame.
    Receive { batch: usize, yields: bool },
    /// Runs an NF as its host does: batch after batch, asleep when nothing waits.
    Nf { subject: Subject },
    /// Sends the subject's traffic on port 0 and receives on port 1 what comes out, with at most
    /// `window` frames under way, so that no ring on the way overflows.
    Around {
        subject: Subject,
        /// Hardware address to send to.
        to: [u8; 6],
        len: usize,
        batch: usize,
        window: u32,
        /// Sleeps while nothing comes back; else it polls.
        blocks: bool,
    },
    /// Sends one frame on port 0 and sleeps until it comes back on port 1.
    Ping { subject: Subject, to: [u8; 6] },
    /// Sends one stamped frame at a time to a sleeping receiver; reports what the call cost.
    Ring { pause_us: u64 },
    /// Sleeps until a frame comes; reports how old its stamp is.
    Sleep,
    /// Hands on each byte of its standard input; it has no ports.
    HandOn,
    /// Sends frames of `len` bytes out of an interface by a compiled XDP program.
    Generate {
        object: PathBuf,
        interface: String,
        len: usize,
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
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Folded payload, so that reading it cannot be optimised away.
    pub fold: u64,
    /// Median of the times that the role measures, in microseconds.
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
        let mut cpus = CpuSet::new();
        cpus.set(self.core);
        sched_setaffinity(None, &cpus).context("pinning to a core")?;
        match &self.task {
            Task::Generate {
                object,
                interface,
                len,
            } => xdp::generate(object, interface, *len),
            Task::Attach {
                object,
                program,
                interface,
                to,
            } => xdp::attach(object, program, interface, to.as_deref()),
            Task::HandOn => hand_on::hand_on(),
            task => {
                let mut attached = Attached::from_env()?;
                let mut work = task.prepare(&mut attached)?;
                serve(|time| Ok(run_for(&mut attached, &mut *work, time)))
            }
        }
    }
}

/// Says that the role has got what it needs.
fn say_ready() -> anyhow::Result<()> {
    println!("{READY}");
    Ok(std::io::stdout().flush()?)
}

/// Runs for as long as each line of standard input says, until it ends.
fn serve(mut run: impl FnMut(Duration) -> anyhow::Result<Outcome>) -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let seconds: f64 = line?.trim().parse().context("seconds to run")?;
        let outcome = run(Duration::from_secs_f64(seconds))?;
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
                yields,
            } => Box::new(oneway::Sender::new(
                attached, *len, *batch, *flows, *yields,
            )?),
            Task::Receive { batch, yields } => Box::new(oneway::Receiver::new(*batch, *yields)),
            Task::Nf { subject } => Box::new(function::Function::new(attached, subject)?),
            Task::Around {
                subject,
                to,
                len,
                batch,
                window,
                blocks,
            } => {
                let limits = around::Limits {
                    batch: *batch,
                    window: *window,
                    blocks: *blocks,
                };
                Box::new(around::Around::new(attached, subject, *to, *len, limits)?)
            }
            Task::Ping { subject, to } => Box::new(ping::Ping::new(attached, subject, *to)?),
            Task::Ring { pause_us } => {
                Box::new(wake::Ringer::new(Duration::from_micros(*pause_us)))
            }
            Task::Sleep => Box::new(wake::Sleeper::default()),
            Task::Generate { .. } | Task::Attach { .. } | Task::HandOn => bail!("it has no ports"),
        };
        Ok(work)
    }
}

/// What a role does again and again.
trait Work {
    /// Does a little; returns the number of frames.
    fn burst(&mut self, attached: &mut Attached) -> u64;

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

fn run_for(attached: &mut Attached, work: &mut dyn Work, time: Duration) -> Outcome {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut frames = 0;
    let mut elapsed = Duration::ZERO;
    while elapsed < time {
        for _ in 0..BURSTS_PER_LOOK {
            let burst = work.burst(attached);
            frames += burst;
            if burst == 0 {
                // Perhaps it slept.
                break;
            }
        }
        elapsed = start.elapsed();
    }
    let mut outcome = Outcome {
        frames,
        seconds: elapsed.as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        ..Outcome::default()
    };
    work.report(&mut outcome);
    outcome
}

fn pause(yields: bool) {
    if yields {
        sched_yield()
    } else {
        std::hint::spin_loop()
    }
}

/// Nanoseconds of the clock that all processes share.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

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
        outcome.median_us = samples.median();
        outcome.p99_us = samples.quantile(0.99);
    }
}
