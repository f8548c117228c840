//! The NF processes: pairs of NFs on switches that forward by hardware address.

use super::core_traffic::{CoreTraffic, Measured, Traffic, WINDOW};
use super::wired_entry::{self, Entry};
use crate::host::cpu;
use crate::host::memory::process_bytes;
use crate::peer::run_together;
use crate::roles::across::Targets;
use crate::roles::hop::Listed;
use crate::roles::work::Waits;
use crate::roles::{ROLE_ENV, Role, Task};
use anyhow::Context;
use nfluid_io::Duty;
use nfluid_ring::table::PORTS_MAX;
use nfluid_switch::{Destination, Switch, Wake};
use nfluid_testbed::interrupt;
use nfluid_testbed::io_process::duties;
use nfluid_testbed::scratch::{Forwarder, Scratch, ScratchInstance, mac_of};
use std::os::fd::RawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Slots of an NF's ring.
pub const RING: u32 = 64;
const _: () = assert!(WINDOW <= RING);
/// Slots of the traffic's ring: the largest ring.
pub const TRAFFIC_RING: u32 = 1024;
/// NFs on one switch and behind one port of the traffic, whose ring holds all frames in flight to them.
const SWITCH_NFS: u32 = 2 * TRAFFIC_RING / WINDOW;
/// NFs that one traffic process reaches: a port for each switch, and one for a wire.
const NFS_PER_PROCESS: u32 = SWITCH_NFS * (PORTS_MAX as u32 - 1);
/// NFs that are made at once: bounds the descriptors of this process, which each new NF process copies.
const GROUP: u32 = 250;
/// NFs whose memory is read: reading one takes a millisecond.
const SAMPLED_NFS: usize = 50;
/// Time for the NFs to start.
const START: Duration = Duration::from_millis(500);

/// Very many NFs. All of them end when the population is dropped.
pub struct Population {
    nfs: Vec<Child>,
    /// The traffic processes: one or several for each core.
    core_traffic: Vec<CoreTraffic>,
    /// Bytes of one NF's maps.
    map_bytes: usize,
    /// Pools and ports of the NFs.
    ids: (Vec<u32>, Vec<u32>),
    /// The duties of an I/O thread that serves the NFs; empty if the NFs run the switch themselves.
    duties: Vec<Duty>,
    /// The first number of a switch that is not in use.
    next_switch: u32,
}

/// Owner of the memory in which frames lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Each NF has its own: the switch copies at each hop.
    Isolated,
    /// The NFs of a switch trust each other: slots are exchanged between them.
    Shared,
}

/// The description of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of NFs, even.
    pub nfs: u32,
    pub waiting: Waiting,
    pub buffers: Buffers,
    /// Frames come from a wire, by an uplink, see [`Population::set_entry`].
    pub is_wired: bool,
    /// Number of its first switch.
    pub first_switch: u32,
}

/// Behaviour of NFs while their rings are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub waits: Waits,
    /// When sleeping NFs are woken.
    pub wake: Wake,
    /// Descriptor of the ring in which the NFs note that they have handed frames to an I/O thread; without one, NFs
    /// make the call themselves.
    pub list: Option<RawFd>,
}

/// The core of a group of NFs, and the core of their traffic.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    pub nfs: usize,
    pub traffic: usize,
}

/// The offered traffic, the same for each pair of NFs.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Bytes per frame.
    pub len: usize,
    /// Most frames under way per pair.
    pub window: u32,
    /// Millions of frames per second in total; 0: as many as the window permits.
    pub mpps: f64,
}

/// The switch of a group of NFs, the core of their processes, and the port of their traffic.
#[derive(Clone, Copy)]
struct Attachment {
    switch: u32,
    core: usize,
    /// Port of the traffic on the switch.
    traffic: u32,
}

impl Population {
    /// Starts NFs, the same number at each of `cores`.
    pub fn start(scratch: &mut Scratch, plan: &Plan, cores: &[Cores]) -> anyhow::Result<Self> {
        let mut population = Population {
            nfs: Vec::with_capacity(plan.nfs as usize),
            core_traffic: Vec::new(),
            map_bytes: 0,
            ids: (Vec::new(), Vec::new()),
            duties: Vec::new(),
            next_switch: plan.first_switch,
        };
        let processes = traffic_processes(plan.nfs, cores.len() as u32);
        let shares = shares(plan.nfs / 2, processes);
        for (cores, share) in cores.iter().cycle().zip(shares) {
            let switches = shares_of(share, SWITCH_NFS / 2);
            let mut traffic =
                CoreTraffic::new(scratch, cores.traffic, switches.len(), plan.is_wired)?;
            let ports = 2 * share + switches.len() as u32;
            // An uplink finds by its table only the NFs of its own switch.
            let one =
                (plan.is_wired && wired_entry::fit_on_a_switch(ports)).then(|| population.number());
            for (index, pairs) in switches.into_iter().enumerate() {
                let attachment = Attachment {
                    switch: one.unwrap_or_else(|| population.number()),
                    core: cores.nfs,
                    traffic: traffic.port(index),
                };
                let targets = population.add(scratch, plan, attachment, pairs)?;
                traffic.targets.push(targets);
            }
            if plan.is_wired {
                traffic.attach_wire(scratch, one)?;
            }
            population.core_traffic.push(traffic);
        }
        std::thread::sleep(START);
        Ok(population)
    }

    /// Returns the number of a new switch.
    fn number(&mut self) -> u32 {
        self.next_switch += 1;
        self.next_switch - 1
    }

    /// Returns the first number of a switch that is not in use.
    pub fn next_switch(&self) -> u32 {
        self.next_switch
    }

    fn add(
        &mut self,
        scratch: &mut Scratch,
        plan: &Plan,
        attachment: Attachment,
        pairs: u32,
    ) -> anyhow::Result<Targets> {
        let waiting = plan.waiting;
        let trusted = match plan.buffers {
            Buffers::Isolated => None,
            Buffers::Shared => Some(scratch.group(2 * pairs * RING)?),
        };
        attachment.join(scratch, attachment.traffic)?;
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
                    group: trusted.as_ref(),
                },
            )?;
            for (index, nf) in group.iter().enumerate() {
                let id = nf.id(0);
                first.get_or_insert(id);
                attachment.join(scratch, id)?;
                // Groups have an even size: a pair is in one group.
                let next = if index % 2 == 0 {
                    id + 1
                } else {
                    attachment.traffic
                };
                self.nfs.push(start(nf, waiting, attachment.core, next)?);
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

    /// Chooses how frames from the wire find their NFs. No traffic may run.
    pub fn set_entry(&self, switch: &Switch, entry: Entry) -> anyhow::Result<()> {
        let mut core_traffic = self.core_traffic.iter();
        core_traffic.try_for_each(|traffic| traffic.set_entry(switch, entry))
    }

    /// Starts the processes that send and receive.
    pub fn traffic(&self, offer: &Offer) -> anyhow::Result<Traffic> {
        let core_traffic = self.core_traffic.iter();
        let peers = core_traffic.map(|traffic| traffic.start(offer, self.pairs()));
        Ok(Traffic(peers.collect::<anyhow::Result<_>>()?))
    }

    /// Sends for `seconds`.
    pub fn round(&self, traffic: &mut Traffic, seconds: f64) -> anyhow::Result<Measured> {
        let (start, before) = (Instant::now(), self.cpu_seconds()?);
        let outcomes = run_together(&mut traffic.0, seconds)?;
        // Measured until here: reading the CPU time of thousands of processes takes a while, in which they keep
        // running.
        let used = (self.cpu_seconds()? - before) / start.elapsed().as_secs_f64();
        Ok(Measured::of(&outcomes, used))
    }

    /// Sends for `seconds`, once to warm up, then `rounds` times.
    pub fn run(&self, offer: &Offer, rounds: usize, seconds: f64) -> anyhow::Result<Vec<Measured>> {
        let mut traffic = self.traffic(offer)?;
        self.round(&mut traffic, seconds)?;
        (0..rounds)
            .map(|_| self.round(&mut traffic, seconds))
            .collect()
    }

    /// Ends the NFs and removes them from the switch, whose switch numbers can then be reused.
    pub fn end(self, scratch: &Scratch) -> anyhow::Result<()> {
        let (pools, mut ports) = self.ids.clone();
        ports.extend(self.core_traffic.iter().flat_map(CoreTraffic::ports));
        drop(self);
        Ok(scratch.switch.remove_ids(&pools, &ports)?)
    }

    /// Takes the duties of the I/O thread out of the population.
    pub fn take_duties(&mut self) -> Vec<Duty> {
        std::mem::take(&mut self.duties)
    }

    fn pairs(&self) -> u32 {
        self.nfs.len() as u32 / 2
    }

    /// Returns the CPU time that the NFs have used.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let of = |nf: &Child| cpu::process_seconds(nf.id()).context("an NF has ended");
        self.nfs.iter().map(of).sum()
    }

    /// Returns the memory of an NF in bytes: its process's private part, page tables, kernel stack and maps.
    pub fn bytes_each(&self) -> anyhow::Result<f64> {
        let looked_at = self
            .nfs
            .iter()
            .step_by(self.nfs.len().div_ceil(SAMPLED_NFS));
        let bytes: Vec<u64> = looked_at
            .map(|nf| process_bytes(nf.id()))
            .collect::<anyhow::Result<_>>()?;
        let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
        Ok(mean + self.map_bytes as f64)
    }
}

impl Attachment {
    fn join(self, scratch: &Scratch, port: u32) -> anyhow::Result<()> {
        let switch = &scratch.switch;
        switch.connect(port, Destination::Switch(self.switch))?;
        Ok(switch.pin_address(self.switch, 0, mac_of(port), port)?)
    }
}

/// Returns the number of traffic processes for `nfs` NFs: the same number at each of `cores`.
fn traffic_processes(nfs: u32, cores: u32) -> u32 {
    cores * nfs.div_ceil(NFS_PER_PROCESS * cores).max(1)
}

/// Splits `count` into `parts` parts that are as equal as possible, none of them 0.
fn shares(count: u32, parts: u32) -> Vec<u32> {
    let parts = parts.min(count).max(1);
    let share = |index| count / parts + u32::from(index < count % parts);
    (0..parts).map(share).collect()
}

/// Splits `count` into as few parts of at most `most` as possible.
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

impl Drop for Population {
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
    use super::{NFS_PER_PROCESS, shares, shares_of, traffic_processes};

    #[test]
    fn each_core_has_as_many_processes_of_traffic_as_reach_its_nfs() {
        assert_eq!(traffic_processes(2, 2), 2);
        assert_eq!(traffic_processes(NFS_PER_PROCESS, 1), 1);
        assert_eq!(traffic_processes(NFS_PER_PROCESS + 2, 1), 2);
        assert_eq!(traffic_processes(8000, 2), 2);
        assert_eq!(traffic_processes(8000, 1), 2);
    }

    #[test]
    fn shares_are_equal_and_none_is_empty() {
        assert_eq!(shares(1, 2), [1]);
        assert_eq!(shares(5, 2), [3, 2]);
        assert_eq!(shares_of(2000, 500), [500; 4]);
        assert_eq!(shares_of(501, 500), [251, 250]);
    }
}
