//! The traffic of a core: a process that sends to the NFs of its core and receives from them.

use super::population::{Offer, TRAFFIC_RING};
use super::wired_entry::{Entry, WiredEntry};
use crate::peer::Peer;
use crate::roles::across::{Load, Targets};
use crate::roles::work::Outcome;
use crate::roles::{Role, Task};
use nfluid_switch::Switch;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};

/// Frames in flight per pair of NFs at full rate: no ring is ever full.
pub const WINDOW: u32 = 32;
const TRAFFIC_TX: u32 = 256;
/// Longest pause between two polls of the process, in microseconds, and the pause per pair of NFs on its core.
const PAUSE_US_MAX: u64 = 200;
const PAUSE_US_PAIR: u64 = 20;

/// The instance of a core's traffic, and the NFs that the traffic is for.
pub struct CoreTraffic {
    core: usize,
    /// A port per switch, which receives; it also sends, unless there is a wired entry: then a further port sends,
    /// whose slots the wire takes.
    traffic: ScratchInstance,
    /// The NFs of each switch.
    pub targets: Vec<Targets>,
    wired_entry: Option<WiredEntry>,
}

/// The processes of all cores, with one load.
pub struct Traffic(pub Vec<Peer>);

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub mpps: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
    pub lost: u64,
    /// CPU time of all NFs, percent of one core.
    pub nf_percent: f64,
    /// CPU time of generator and sink, percent of one core.
    pub traffic_percent: f64,
}

impl CoreTraffic {
    /// Makes the instance, with a port on each of `switches` switches.
    pub fn new(
        scratch: &mut Scratch,
        core: usize,
        switches: usize,
        is_wired: bool,
    ) -> anyhow::Result<Self> {
        let ports = switches as u32 + u32::from(is_wired);
        Ok(CoreTraffic {
            core,
            traffic: scratch.instance(ports, TRAFFIC_RING, TRAFFIC_TX)?,
            targets: Vec::with_capacity(switches),
            wired_entry: None,
        })
    }

    /// Returns the port on a switch.
    pub fn port(&self, index: usize) -> u32 {
        self.traffic.id(index)
    }

    /// Returns the ports on all switches.
    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.targets.len()).map(|index| self.port(index))
    }

    /// Makes the frames arrive by a wire. `switch`: the switch of all NFs, if one switch has all of them.
    pub fn attach_wire(
        &mut self,
        scratch: &mut Scratch,
        switch: Option<u32>,
    ) -> anyhow::Result<()> {
        self.wired_entry = Some(WiredEntry::open(scratch, &self.targets, switch, self.core)?);
        Ok(())
    }

    /// See [`super::Population::set_entry`].
    pub fn set_entry(&self, switch: &Switch, entry: Entry) -> anyhow::Result<()> {
        self.wired_entry
            .as_ref()
            .map_or(Ok(()), |wired_entry| wired_entry.set_entry(switch, entry))
    }

    /// Starts the process, which sends its part of the offered traffic to `all` pairs.
    pub fn start(&self, offer: &Offer, all: u32) -> anyhow::Result<Peer> {
        let pairs: u32 = self.targets.iter().map(|targets| targets.pairs).sum();
        let load = Load {
            len: offer.len,
            window: offer.window,
            rate: offer.mpps * 1e6 * f64::from(pairs) / f64::from(all),
            pause_us: (u64::from(pairs) * PAUSE_US_PAIR).min(PAUSE_US_MAX),
        };
        let source = self.wired_entry.as_ref().map(WiredEntry::source);
        let task = Task::Across {
            targets: self.targets.clone(),
            load,
            wire: source.map(|end| end.interface().to_owned()),
        };
        let core = self.core;
        let role = Role { core, task };
        match source {
            Some(end) => Peer::start_in(&self.traffic, end.namespace(), &role),
            None => Peer::start(&self.traffic, &role),
        }
    }
}

impl Measured {
    /// Sums up all cores. `nf_cores`: seconds of CPU time of the NFs per second.
    pub fn of(outcomes: &[Outcome], nf_cores: f64) -> Self {
        let sum = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
        let count = outcomes.len() as f64;
        let seconds = sum(|o| o.seconds) / count;
        Measured {
            mpps: sum(|o| o.frames as f64 / o.seconds) / 1e6,
            mean_ms: sum(|o| o.mean_us) / count / 1e3,
            p99_ms: outcomes.iter().map(|o| o.p99_us).fold(0.0, f64::max) / 1e3,
            lost: outcomes.iter().map(|o| o.lost).sum(),
            nf_percent: nf_cores * 100.0,
            traffic_percent: sum(|o| o.cpu_seconds) / seconds * 100.0,
        }
    }
}
