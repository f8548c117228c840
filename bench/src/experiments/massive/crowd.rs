//! The processes: pairs of NFs on switches that forward by hardware address, and on each core one
//! process that sends to its NFs and receives from them.

use super::WINDOW;
use crate::host::cpu;
use crate::host::interrupt;
use crate::host::memory::process_bytes;
use crate::peer::{Peer, run_together};
use crate::roles::across::{Load, Targets};
use crate::roles::hop::Listed;
use crate::roles::{Outcome, ROLE_ENV, Role, Task, Waits};
use anyhow::Context;
use nfluid_io::Duty;
use nfluid_io::scratch::duties;
use nfluid_switch::scratch::{Forwarder, Scratch, ScratchInstance, mac_of};
use nfluid_switch::{Destination, Wake};
use std::os::fd::RawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Slots of an NF's ring.
pub const RING: u32 = 64;
/// The most that a ring has.
const TRAFFIC_RING: u32 = 1024;
const TRAFFIC_TX: u32 = 256;
/// NFs on one switch, and behind one port of the traffic: its ring takes what is under way to all of them.
const SWITCH_NFS: u32 = 2 * TRAFFIC_RING / WINDOW;
/// NFs that are made at once: bounds the descriptors of this process, which each new one copies.
const GROUP: u32 = 250;
/// Processes whose memory is looked at: a look takes a millisecond.
const LOOKED_AT: usize = 50;
/// Microseconds between two looks of the traffic's process, and per pair of NFs on its core.
const PAUSE_US_MAX: u64 = 200;
const PAUSE_US_PAIR: u64 = 20;
/// Let the NFs start.
const START: Duration = Duration::from_millis(500);

/// Very many NFs; all of them end when it is dropped.
pub struct Crowd {
    nfs: Vec<Child>,
    /// One for each core.
    homes: Vec<Home>,
    /// Bytes of one NF's maps.
    map_bytes: usize,
    /// Pools and ports of the NFs.
    ids: (Vec<u32>, Vec<u32>),
    /// What an I/O thread needs to serve the NFs, if they may be served.
    duties: Vec<Duty>,
}

/// The traffic of a core.
struct Home {
    core: usize,
    traffic: ScratchInstance,
    /// One for each port.
    targets: Vec<Targets>,
}

/// What NFs do while nothing is in their rings.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub waits: Waits,
    /// When those that sleep are woken.
    pub wake: Wake,
    /// Descriptor of the ring in which they say that they have handed frames to an I/O thread; they make
    /// the call themselves without one.
    pub list: Option<RawFd>,
}

/// Where the NFs of a home run, and their traffic.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    pub nfs: usize,
    pub traffic: usize,
}

/// How NFs are joined.
#[derive(Clone, Copy)]
struct Place {
    switch: u32,
    core: usize,
    /// Port of the traffic on the switch.
    traffic: u32,
}

/// Traffic, as much for each pair of NFs.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Bytes per frame.
    pub len: usize,
    /// Most frames under way per pair.
    pub window: u32,
    /// Millions of frames per second in all; 0: as many as the window lets.
    pub mpps: f64,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub mpps: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
    pub lost: u64,
    /// CPU time of all NFs, percent of one core.
    pub nf_percent: f64,
    /// Of generator and sink.
    pub traffic_percent: f64,
}

impl Crowd {
    /// Starts `nfs` (an even number), as many at each of `cores`.
    pub fn start(
        scratch: &mut Scratch,
        nfs: u32,
        waiting: Waiting,
        cores: &[Cores],
    ) -> anyhow::Result<Self> {
        let mut crowd = Crowd {
            nfs: Vec::with_capacity(nfs as usize),
            homes: Vec::new(),
            map_bytes: 0,
            ids: (Vec::new(), Vec::new()),
            duties: Vec::new(),
        };
        let shares = shares(nfs / 2, cores.len() as u32);
        let mut switch = 0;
        for (cores, share) in cores.iter().zip(shares) {
            let switches = shares_of(share, SWITCH_NFS / 2);
            let traffic = scratch.instance(switches.len() as u32, TRAFFIC_RING, TRAFFIC_TX)?;
            let mut targets = Vec::new();
            for (index, pairs) in switches.into_iter().enumerate() {
                let place = Place {
                    switch,
                    core: cores.nfs,
                    traffic: traffic.id(index),
                };
                targets.push(crowd.add(scratch, waiting, place, pairs)?);
                switch += 1;
            }
            crowd.homes.push(Home {
                core: cores.traffic,
                traffic,
                targets,
            });
        }
        std::thread::sleep(START);
        Ok(crowd)
    }

    fn add(
        &mut self,
        scratch: &mut Scratch,
        waiting: Waiting,
        place: Place,
        pairs: u32,
    ) -> anyhow::Result<Targets> {
        place.join(scratch, place.traffic)?;
        let mut left = 2 * pairs;
        let mut first = None;
        while left > 0 {
            interrupt::check()?;
            let group = scratch.forwarders(
                left.min(GROUP),
                Forwarder {
                    ring: RING,
                    wake: waiting.wake,
                    may_be_served: waiting.list.is_some(),
                },
            )?;
            for (index, nf) in group.iter().enumerate() {
                let id = nf.id(0);
                first.get_or_insert(id);
                place.join(scratch, id)?;
                // Groups are of even size: a pair lies in one.
                let next = if index % 2 == 0 {
                    id + 1
                } else {
                    place.traffic
                };
                self.nfs.push(start(nf, waiting, place.core, next)?);
                self.map_bytes = nf.memory.bytes();
                self.ids.0.push(nf.memory.pool_id);
                self.ids.1.push(id);
                if waiting.list.is_some() {
                    self.duties.extend(duties(nf).context("an NF's duties")?);
                }
            }
            left -= group.len() as u32;
        }
        Ok(Targets {
            first: first.context("a switch needs NFs")?,
            pairs,
        })
    }

    /// Sends for so many seconds, once to warm up, then `rounds` times.
    pub fn run(&self, offer: &Offer, rounds: usize, seconds: f64) -> anyhow::Result<Vec<Measured>> {
        let homes = self
            .homes
            .iter()
            .map(|home| home.start(offer, self.pairs()));
        let mut traffic: Vec<Peer> = homes.collect::<anyhow::Result<_>>()?;
        let mut measured = Vec::with_capacity(rounds);
        for round in 0..=rounds {
            let (start, before) = (Instant::now(), self.cpu_seconds()?);
            let outcomes = run_together(&mut traffic, seconds)?;
            // Until here: thousands of processes are not asked in no time, and go on meanwhile.
            let used = (self.cpu_seconds()? - before) / start.elapsed().as_secs_f64();
            if round > 0 {
                measured.push(Measured::of(&outcomes, used));
            }
        }
        Ok(measured)
    }

    /// Ends the NFs and takes them out of the switch, whose numbers of switches may be used again.
    pub fn end(self, scratch: &Scratch) -> anyhow::Result<()> {
        let (pools, mut ports) = self.ids.clone();
        ports.extend(self.homes.iter().flat_map(Home::ports));
        drop(self);
        Ok(scratch.switch.remove_ids(&pools, &ports)?)
    }

    /// What an I/O thread serves; once.
    pub fn take_duties(&mut self) -> Vec<Duty> {
        std::mem::take(&mut self.duties)
    }

    fn pairs(&self) -> u32 {
        self.nfs.len() as u32 / 2
    }

    /// CPU time that the NFs have used.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let of = |nf: &Child| cpu::process_seconds(nf.id()).context("an NF has ended");
        self.nfs.iter().map(of).sum()
    }

    /// Memory of an NF in bytes: its process's own share, page tables, kernel stack and maps.
    pub fn bytes_each(&self) -> anyhow::Result<f64> {
        let looked_at = self.nfs.iter().step_by(self.nfs.len().div_ceil(LOOKED_AT));
        let bytes: Vec<u64> = looked_at
            .map(|nf| process_bytes(nf.id()))
            .collect::<anyhow::Result<_>>()?;
        let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
        Ok(mean + self.map_bytes as f64)
    }
}

impl Home {
    fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.targets.len()).map(|index| self.traffic.id(index))
    }

    fn start(&self, offer: &Offer, all: u32) -> anyhow::Result<Peer> {
        let pairs: u32 = self.targets.iter().map(|targets| targets.pairs).sum();
        let load = Load {
            len: offer.len,
            window: offer.window,
            rate: offer.mpps * 1e6 * f64::from(pairs) / f64::from(all),
            pause_us: (u64::from(pairs) * PAUSE_US_PAIR).min(PAUSE_US_MAX),
        };
        let task = Task::Across {
            targets: self.targets.clone(),
            load,
        };
        let core = self.core;
        Peer::start(&self.traffic, &Role { core, task })
    }
}

impl Place {
    fn join(self, scratch: &Scratch, port: u32) -> anyhow::Result<()> {
        let switch = &scratch.switch;
        switch.connect(port, Destination::Switch(self.switch))?;
        Ok(switch.pin_address(self.switch, 0, mac_of(port), port)?)
    }
}

impl Measured {
    fn of(outcomes: &[Outcome], nf_cores: f64) -> Self {
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

/// `count` in so many parts that are as equal as possible, none of them 0.
fn shares(count: u32, parts: u32) -> Vec<u32> {
    let parts = parts.min(count).max(1);
    let share = |index| count / parts + u32::from(index < count % parts);
    (0..parts).map(share).collect()
}

/// `count` in as few parts of at most `most` as possible.
fn shares_of(count: u32, most: u32) -> Vec<u32> {
    shares(count, count.div_ceil(most))
}

fn start(nf: &ScratchInstance, waiting: Waiting, core: usize, next: u32) -> anyhow::Result<Child> {
    let task = Task::Hop {
        next: mac_of(next),
        waits: waiting.waits,
        parent: std::process::id(),
        listed: waiting.list.map(|ring| Listed {
            ring,
            port: nf.id(0),
        }),
    };
    let own = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(own);
    command
        .env_clear()
        .env(ROLE_ENV, serde_json::to_string(&Role { core, task })?)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(nf.spawn(&mut command)?)
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for nf in &mut self.nfs {
            let _ = nf.kill();
        }
        for nf in &mut self.nfs {
            let _ = nf.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{shares, shares_of};

    #[test]
    fn shares_are_equal_and_none_is_empty() {
        assert_eq!(shares(1, 2), [1]);
        assert_eq!(shares(5, 2), [3, 2]);
        assert_eq!(shares_of(2000, 500), [500; 4]);
        assert_eq!(shares_of(501, 500), [251, 250]);
    }
}
