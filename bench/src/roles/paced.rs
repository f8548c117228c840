//! Traffic of many NFs at scripted rates for each NF and each stretch of time: an open loop, independent of the frames
//! that return. Frames beyond the NFs' capacity are dropped at their rings.

use super::fan::queue;
use super::oneway::prepare_frames;
use super::work::{Outcome, print_ready};
use crate::traffic::Headers;
use crate::workload::Workload;
use anyhow::Context;
use nfluid_gen::clock::NS_PER_S;
use nfluid_gen::pace::{Pacer, Turn};
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::{Port, WhenFull};
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::time::Duration;

/// Longest burst.
const BURST: usize = 64;
/// Longest sleep between two polls of the ports: an NF's ring must not overflow meanwhile.
const SLEEP_NS: u64 = 250_000;
/// After the end of a script, the process waits for frames in flight until none has arrived for this time.
const DRAIN_NS: u64 = 50_000_000;
/// Priority: the generator represents the outside world, which does not wait for a core.
const NICE: i32 = -20;

/// The rates to offer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// Length of a stretch in seconds.
    pub seconds: f64,
    /// Frames per second, per stretch and port.
    pub rates: Vec<Vec<f64>>,
}

struct Generator {
    ports: Vec<Port>,
    pacers: Vec<Pacer>,
    headers: Headers,
    len: usize,
    received: u64,
}

/// Plays each script from a line of standard input; prints an [`Outcome`] after each stretch. Its `frames` are the
/// frames that returned, its `offered` the frames that were due.
pub fn run(workload: &Workload, len: usize) -> anyhow::Result<()> {
    setpriority_process(None, NICE).context("raising its own priority")?;
    let mut attached = Attached::from_env()?;
    let first = attached.ports.first().context("a port to send on")?;
    let headers = Headers::new(&workload.flows(), first.entry().mac, len)?;
    for port in &mut attached.ports {
        prepare_frames(port, |_| headers.template().to_vec());
    }
    let mut generator = Generator {
        ports: attached.ports,
        pacers: Vec::new(),
        headers,
        len,
        received: 0,
    };
    print_ready()?;
    for line in std::io::stdin().lock().lines() {
        let script: Script = serde_json::from_str(&line?).context("a script")?;
        generator.play(&script)?;
    }
    Ok(())
}

impl Generator {
    fn play(&mut self, script: &Script) -> anyhow::Result<()> {
        let start = monotonic_ns();
        let stretch = (script.seconds * NS_PER_S as f64) as u64;
        let pacer = Pacer::new(Some(0.0), BURST, start);
        self.pacers = vec![pacer; self.ports.len()];
        // Frames that have returned since the last script do not count.
        self.receive();
        let mut before = self.counts();
        for (index, rates) in script.rates.iter().enumerate() {
            let begin = start + index as u64 * stretch;
            for (pacer, rate) in self.pacers.iter_mut().zip(rates) {
                pacer.set_rate(Some(*rate), begin);
            }
            self.offer_until(begin + stretch);
            if index + 1 == script.rates.len() {
                self.drain();
            }
            let now = self.counts();
            let outcome = Outcome {
                frames: now.0 - before.0,
                offered: now.1 - before.1,
                seconds: script.seconds,
                ..Outcome::default()
            };
            before = now;
            println!("{}", serde_json::to_string(&outcome)?);
            std::io::stdout().flush()?;
        }
        Ok(())
    }

    /// Returns the frames received, and the frames sent or given up as too late.
    fn counts(&self) -> (u64, u64) {
        let due = |pacer: &Pacer| pacer.sent_total() + pacer.missed();
        (self.received, self.pacers.iter().map(due).sum())
    }

    fn offer_until(&mut self, end: u64) {
        loop {
            let now = monotonic_ns();
            if now >= end {
                return;
            }
            let (sent, wait) = self.send(now);
            if self.receive() == 0 && sent == 0 {
                let sleep = wait.min(SLEEP_NS).min(end - now);
                std::thread::sleep(Duration::from_nanos(sleep));
            }
        }
    }

    /// Sends the frames that are due; returns their number, and the time until the next are due.
    fn send(&mut self, now: u64) -> (u64, u64) {
        let (mut sum, mut wait) = (0, u64::MAX);
        for (port, pacer) in self.ports.iter_mut().zip(&mut self.pacers) {
            let count = match pacer.turn(now) {
                Turn::Send(count) => count,
                Turn::Wait(ns) => {
                    wait = wait.min(ns);
                    continue;
                }
            };
            queue(port, &mut self.headers, self.len, count as u32);
            let queued = u64::from(port.queued());
            // A dropped frame counts as offered.
            let _ = port.flush(WhenFull::Drop);
            pacer.sent(queued);
            sum += queued;
        }
        (sum, wait)
    }

    fn receive(&mut self) -> u64 {
        let ports = self.ports.iter_mut();
        let got: usize = ports.map(|port| port.receive(usize::MAX, |_| ())).sum();
        self.received += got as u64;
        got as u64
    }

    fn drain(&mut self) {
        let mut last = monotonic_ns();
        while monotonic_ns() - last < DRAIN_NS {
            if self.receive() > 0 {
                last = monotonic_ns();
            } else {
                std::thread::sleep(Duration::from_nanos(SLEEP_NS));
            }
        }
    }
}
