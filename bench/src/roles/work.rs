//! Common code of roles: a run that standard input starts, work that repeats until the end of the run, and the outcome.

use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// The flow of frames that the kernel forwards.
pub const FLOW: u32 = 5;
/// The first line that a role in a namespace prints.
pub const READY: &str = "ready";

/// Behaviour of a process without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// Polls; the process has the core for itself.
    Spinning,
    /// Yields to others on its core, then polls again.
    Yielding,
    /// Sleeps until its doorbell rings.
    Sleeping,
}

/// The outcome of a run. Programs in C leave out the fields that they do not measure.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Frames received or accepted by the switch.
    pub frames: u64,
    /// Traffic with a rate: frames that were due.
    pub offered: u64,
    /// An NF with an uplink: frames received by it, including the time before and after the measured time.
    pub came_in: u64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// I/O threads: visits to ports that had frames.
    pub visits: u64,
    /// Folded payload, so that reading it cannot be optimised away.
    pub fold: u64,
    /// Mean of the times that the role measures, in microseconds.
    pub mean_us: f64,
    /// Median of them.
    pub median_us: f64,
    /// 99th percentile of them.
    pub p99_us: f64,
    /// Frames that did not return in time: lost, or late because a process did not get its core.
    pub lost: u64,
}

/// Prints that the role is ready.
pub fn print_ready() -> anyhow::Result<()> {
    println!("{READY}");
    Ok(std::io::stdout().flush()?)
}

/// Runs for as long as each line of standard input says, until standard input ends. A second word is the
/// [`monotonic_ns`] at which the measured time begins, a third word the nanoseconds for which the run continues after
/// it.
pub fn serve(mut run: impl FnMut(Span) -> anyhow::Result<Outcome>) -> anyhow::Result<()> {
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

/// The repeated work of a role.
pub trait Work {
    /// Does a small amount of work; returns the number of frames.
    fn burst(&mut self, attached: &mut Attached) -> u64;

    /// Bursts per reading of the clock: many if each takes less than a microsecond.
    fn bursts_per_look(&self) -> u32 {
        BURSTS_PER_LOOK
    }

    /// Returns false until the run has measured something: on a busy host, NFs may wait for their core for longer than a
    /// short run takes. A run goes on until it has, for [`LONGEST_WAIT`] at most.
    fn has_measured(&self) -> bool {
        true
    }

    /// After the end of the run: takes the frames in flight, so that they do not fill rings.
    fn finish(&mut self, _attached: &mut Attached) {}

    /// Adds the values that only this work measures, and resets them.
    fn report(&mut self, _outcome: &mut Outcome) {}
}

/// CPU time of this process in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Longest time after which a run ends that has measured nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Bursts per reading of the clock.
const BURSTS_PER_LOOK: u32 = 64;

/// The measured time of a run.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Start of the measured time, by [`monotonic_ns`]; the run has begun by then.
    pub from_ns: u64,
    pub time: Duration,
    /// Time for which the run continues after the measured time.
    pub after: Duration,
}

impl Span {
    /// Returns the span from now on, for `time`.
    pub fn of(time: Duration) -> Self {
        Span {
            from_ns: 0,
            time,
            after: Duration::ZERO,
        }
    }
}

pub fn run_for(attached: &mut Attached, work: &mut dyn Work, span: Span) -> Outcome {
    bursts(attached, work, |_| monotonic_ns() >= span.from_ns);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut elapsed = Duration::ZERO;
    let frames = bursts(attached, work, |work| {
        elapsed = start.elapsed();
        elapsed >= span.time && (work.has_measured() || elapsed >= LONGEST_WAIT)
    });
    let mut outcome = Outcome {
        frames,
        seconds: elapsed.as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        ..Outcome::default()
    };
    let end = span.time + span.after;
    bursts(attached, work, |_| start.elapsed() >= end);
    work.finish(attached);
    work.report(&mut outcome);
    outcome
}

/// Works until `is_over` returns true; returns the number of frames.
fn bursts(
    attached: &mut Attached,
    work: &mut dyn Work,
    mut is_over: impl FnMut(&dyn Work) -> bool,
) -> u64 {
    let mut frames = 0;
    while !is_over(work) {
        for _ in 0..work.bursts_per_look() {
            let burst = work.burst(attached);
            frames += burst;
            if burst == 0 {
                // The burst may have slept.
                break;
            }
        }
    }
    frames
}

/// Waits as `waits` says; a sleeping thread wakes when one of its ports has a frame or a free slot.
pub fn pause(waits: Waits, attached: &mut Attached) {
    match waits {
        Waits::Spinning => std::hint::spin_loop(),
        Waits::Yielding => sched_yield(),
        Waits::Sleeping => {
            let Attached {
                ports, doorbell, ..
            } = attached;
            // An error shows as missing throughput.
            let _ = doorbell.wait(ports, None, SLEEP);
        }
    }
}

/// Longest sleep, so that a run ends in time.
pub const SLEEP: Duration = Duration::from_millis(20);

/// Times in microseconds that a work collects during a run.
#[derive(Default)]
pub struct Times(Vec<f64>);

impl Times {
    /// Largest number per run; later times are left out.
    const MOST: usize = 1 << 20;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push_ns(&mut self, ns: u64) {
        if self.0.len() < Self::MOST {
            self.0.push(ns as f64 / 1000.0);
        }
    }

    pub fn report(&mut self, outcome: &mut Outcome) {
        let samples: Samples = self.0.drain(..).collect();
        outcome.mean_us = samples.mean();
        outcome.median_us = samples.median();
        outcome.p99_us = samples.p99();
    }
}
