//! An NF that works normally, or is hostile to its neighbours for a while.

use super::loopback::Circle;
use super::work::{Outcome, Span, Work, print_ready, run_for};
use crate::workload::Workload;
use anyhow::{Context, bail};
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, Write, stdin};
use std::time::{Duration, Instant};

/// Number of ports: the NF's own frames circulate through the first two, the third leads to a port that is never
/// emptied, the fourth to a neighbour whose doorbell the NF may ring.
const PORTS: usize = 4;
const FLOOD: usize = 2;
const BELL: usize = 3;
/// Length of the NF's own frames and of a flood's.
const LEN: usize = 128;
const FRAMES: u32 = 64;
/// Bytes per allocation, and the size of a page.
const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;
/// Steps of a spin per reading of the clock, which is no system call.
const SPINS: u32 = 10_000;

/// Conduct of the NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conduct {
    /// Forwards frames, of which some always wait.
    Honest,
    /// Computes without yielding.
    Spins,
    /// Sends frames to a port that is never emptied.
    Floods,
    /// Repeatedly allocates memory up to its limit, writes to each page, and frees the memory.
    FillsMemory,
    /// Rings a neighbour's doorbell without having sent frames.
    Rings,
}

/// An order: a line of standard input.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    pub conduct: Conduct,
    pub seconds: f64,
    /// Limit of the NF's memory, in bytes.
    pub memory: usize,
}

/// Carries out orders until standard input ends.
pub fn run() -> anyhow::Result<()> {
    let mut attached = Attached::from_env()?;
    if attached.ports.len() != PORTS {
        bail!("it needs {PORTS} ports");
    }
    let mut honest = Circle::new(&mut attached, &Workload::Bridge, LEN, FRAMES)?;
    let mut bell = bell(&attached)?;
    print_ready()?;
    for line in stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?).context("an order")?;
        let time = Duration::from_secs_f64(order.seconds);
        let outcome = match order.conduct {
            Conduct::Honest => run_for(&mut attached, &mut honest, Span::of(time)),
            Conduct::Spins => until(time, spin),
            Conduct::Floods => run_for(&mut attached, &mut Flood, Span::of(time)),
            Conduct::FillsMemory => until(time, || fill_memory(order.memory)),
            // A full pipe counts as a ring.
            Conduct::Rings => until(time, || bell.write(&[1]).map_or(0, |rung| rung as u64)),
        };
        println!("{}", serde_json::to_string(&outcome)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Opens the neighbour's end of the pipe again, non-blocking.
fn bell(attached: &Attached) -> anyhow::Result<File> {
    let bell = attached.ports[BELL].entry().peer_doorbell_fd;
    let path = format!("/proc/self/fd/{bell}");
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        options.write(true),
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    options
        .open(&path)
        .with_context(|| format!("opening {path}"))
}

/// Repeats `act` for `time`; the outcome's `frames` is the sum of its results.
fn until(time: Duration, mut act: impl FnMut() -> u64) -> Outcome {
    let start = Instant::now();
    let mut acts = 0;
    while start.elapsed() < time {
        acts += act();
    }
    Outcome {
        frames: acts,
        seconds: start.elapsed().as_secs_f64(),
        ..Outcome::default()
    }
}

fn spin() -> u64 {
    let mut word = monotonic_ns();
    for _ in 0..SPINS {
        word = black_box(word.rotate_left(7) ^ 0x9e37_79b9);
    }
    black_box(word);
    1
}

fn fill_memory(bytes: usize) -> u64 {
    let mut chunks = Vec::new();
    while chunks.len() * CHUNK < bytes {
        let mut chunk = vec![0u8; CHUNK];
        chunk.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        chunks.push(black_box(chunk));
    }
    chunks.len() as u64
}

/// Sends as fast as the switch drops.
struct Flood;

impl Work for Flood {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let port = &mut attached.ports[FLOOD];
        while port.send(|_| LEN) {}
        u64::from(port.flush(WhenFull::Drop).unwrap_or(0))
    }
}
