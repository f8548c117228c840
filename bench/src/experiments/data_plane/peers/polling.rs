//! Set-ups between two ports of one DPDK process, our own program, which sends and receives. The forwarders poll: they
//! are stopped while they are not measured.

use super::way::{Round, Way};
use crate::dpdk::endpoint::{Endpoint, Work};
use crate::host::forwards::Forwards;
use crate::peer::Peer;
use nfluid_testbed::interrupt;
use nfluid_testbed::scratch::ScratchInstance;
use std::time::{Duration, Instant};

pub const FORWARDING_CORE: usize = 0;
pub const TRAFFIC_CORE: usize = 1;
pub const BATCH: usize = 32;
/// Slots of a ring, as a power of two.
pub const RING_BITS: u32 = 10;
const WINDOW: u32 = 512;
/// A look whether frames come back: long enough for the sender to see that earlier ones are lost.
const FIRST_SECONDS: f64 = 0.15;
const PATIENCE: Duration = Duration::from_secs(60);

/// The process that sends on its first port and receives on its last port.
pub const TRAFFIC: Endpoint = Endpoint {
    work: Work::Around,
    core: TRAFFIC_CORE,
    batch: BATCH,
    window: WINDOW,
    yields: false,
};

/// Forwarders and their traffic. The forwarders end first, because they poll memory of the traffic's process.
pub struct Polling {
    forwarding: Vec<Box<dyn Forwards>>,
    traffic: Peer,
    conditions: String,
    idle_since: f64,
    /// The instances of the processes, if they are programs of nfluid.
    _instances: Vec<ScratchInstance>,
}

impl Polling {
    /// Makes a set-up of connected processes, and stops the forwarders.
    ///
    /// # Errors
    /// When a process has ended.
    pub fn new(
        forwarding: Vec<Box<dyn Forwards>>,
        traffic: Peer,
        conditions: String,
    ) -> anyhow::Result<Self> {
        let polling = Polling {
            forwarding,
            traffic,
            conditions,
            idle_since: 0.0,
            _instances: Vec::new(),
        };
        polling.runs(false)?;
        Ok(polling)
    }

    /// Sends until frames come back: a process that is not connected yet forwards none.
    ///
    /// # Errors
    /// When none comes back for long.
    pub fn await_forwarding(&mut self, len: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.round(len, FIRST_SECONDS)?.frames == 0 {
            interrupt::check()?;
            anyhow::ensure!(start.elapsed() < PATIENCE, "no frame comes back");
        }
        Ok(())
    }

    /// Keeps instances as long as their processes.
    pub fn with(self, instances: Vec<ScratchInstance>) -> Self {
        Polling {
            _instances: instances,
            ..self
        }
    }

    fn runs(&self, runs: bool) -> anyhow::Result<()> {
        self.forwarding.iter().try_for_each(|one| one.runs(runs))
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.forwarding.iter().map(|one| one.cpu_seconds()).sum()
    }
}

impl Way for Polling {
    fn conditions(&self) -> String {
        self.conditions.clone()
    }

    fn round(&mut self, len: usize, seconds: f64) -> anyhow::Result<Round> {
        self.runs(true)?;
        let cpu = self.cpu_seconds()?;
        self.traffic.start_run(seconds, Some(len))?;
        let outcome = self.traffic.outcome()?;
        let forwarding_seconds = self.cpu_seconds()? - cpu;
        self.runs(false)?;
        Ok(Round {
            frames: outcome.frames,
            seconds: outcome.seconds,
            forwarding_seconds,
            traffic_seconds: outcome.cpu_seconds,
        })
    }

    fn alone_us(&mut self, len: usize, seconds: f64) -> anyhow::Result<Option<f64>> {
        self.runs(true)?;
        self.traffic.start_window(seconds, len, 1)?;
        let outcome = self.traffic.outcome()?;
        self.runs(false)?;
        let arrived = outcome.frames > 0;
        Ok(arrived.then(|| outcome.seconds / outcome.frames as f64 * 1e6))
    }

    fn polls(&self) -> bool {
        true
    }

    fn idle_begin(&mut self, _seconds: f64) -> anyhow::Result<()> {
        self.runs(true)?;
        self.idle_since = self.cpu_seconds()?;
        Ok(())
    }

    fn idle_end(&mut self) -> anyhow::Result<f64> {
        let used = self.cpu_seconds()? - self.idle_since;
        self.runs(false)?;
        Ok(used)
    }
}
