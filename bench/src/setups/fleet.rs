//! Many NFs that share cores: each is linked in both directions to its own port of the traffic's process, so that
//! frames are lost only if an experiment offers more than a ring holds.

use crate::host::cpu::process_seconds;
use crate::peer::{Peer, run_together};
use crate::roles::function::Manner;
use crate::roles::work::Outcome;
use crate::roles::{Role, Task};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};

/// Largest number of NFs of one traffic process: the number of ports of an instance.
pub const NFS_PER_TRAFFIC: usize = nfluid_ring::table::PORTS_MAX;
/// TX slots of a port: the longest burst.
pub const TX_SLOTS: u32 = 64;

/// An NF of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its core, or any core.
    pub core: usize,
    /// The NF and its traffic.
    pub workload: Workload,
    /// How it shares its core.
    pub manner: Manner,
}

/// Description of a fleet that is to be started.
pub struct Plan {
    /// The NFs.
    pub members: Vec<Member>,
    /// Slots of all rings.
    pub ring: u32,
    /// Traffic processes; the NFs are divided among them.
    pub traffic: Vec<Role>,
    /// The process that hosts the NFs' I/O threads.
    pub io: Option<Role>,
}

/// NFs, their traffic and their I/O threads; all are stopped while they are not measured.
pub struct Fleet {
    nfs: Vec<Nf>,
    traffic: Vec<Peer>,
    io: Option<Peer>,
    _traffic_instances: Vec<ScratchInstance>,
}

struct Nf {
    instance: ScratchInstance,
    member: Member,
    peer: Option<Peer>,
    /// CPU time of its former processes, in seconds.
    spent: f64,
}

/// Result of a run of a fleet.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Frames that the switch took from each NF.
    pub frames: Vec<u64>,
    /// Seconds of CPU time of each NF.
    pub cpu: Vec<f64>,
    /// Runs of the switch over NFs' ports, with or without frames.
    pub calls: u64,
    /// Seconds of CPU time of the I/O threads.
    pub io_cpu: f64,
    /// Outcomes of the traffic processes.
    pub traffic: Vec<Outcome>,
}

impl Fleet {
    /// Starts all processes.
    pub fn start(scratch: &mut Scratch, plan: Plan) -> anyhow::Result<Self> {
        let per_traffic = plan.members.len().div_ceil(plan.traffic.len().max(1));
        let instances = scratch.instances(plan.members.len(), 2, plan.ring, TX_SLOTS)?;
        let members = plan.members.into_iter().zip(instances);
        let mut fleet = Fleet {
            nfs: members
                .map(|(member, instance)| Nf {
                    instance,
                    member,
                    peer: None,
                    spent: 0.0,
                })
                .collect(),
            traffic: Vec::new(),
            io: None,
            _traffic_instances: Vec::new(),
        };
        for (nfs, role) in fleet.nfs.chunks_mut(per_traffic).zip(&plan.traffic) {
            let mut traffic = scratch.instance(nfs.len() as u32, plan.ring, TX_SLOTS)?;
            for (at, nf) in nfs.iter_mut().enumerate() {
                scratch.lead((&mut traffic, at), (&nf.instance, 0))?;
                scratch.lead((&mut nf.instance, 1), (&traffic, at))?;
            }
            fleet.traffic.push(Peer::start(&traffic, role)?);
            fleet._traffic_instances.push(traffic);
        }
        for at in 0..fleet.nfs.len() {
            fleet.start_nf(at)?;
        }
        for nf in &mut fleet.nfs {
            nf.peer.as_mut().map_or(Ok(()), Peer::await_ready)?;
        }
        if let Some(role) = &plan.io {
            let instances: Vec<_> = fleet.nfs.iter().map(|nf| &nf.instance).collect();
            fleet.io = Some(Peer::start_io(scratch, &instances, role)?);
        }
        fleet.pause()?;
        Ok(fleet)
    }

    /// Starts and ends NF processes, so that exactly the first `count` NFs have one.
    pub fn populate(&mut self, count: usize) -> anyhow::Result<()> {
        for at in 0..self.nfs.len() {
            match (at < count, self.nfs[at].peer.is_some()) {
                (true, false) => self.start_nf(at)?,
                (false, true) => self.nfs[at].end()?,
                _ => (),
            }
        }
        Ok(())
    }

    /// Starts an NF. Frames that arrive before the process is ready wait in its ring.
    fn start_nf(&mut self, at: usize) -> anyhow::Result<()> {
        let nf = self.nfs.get_mut(at).context("no such NF")?;
        let Member {
            core,
            workload,
            manner,
        } = nf.member;
        let task = Task::Host { workload, manner };
        nf.peer = Some(Peer::start(&nf.instance, &Role { core, task })?);
        Ok(())
    }

    /// Returns the instance of an NF.
    pub fn instance(&self, nf: usize) -> Option<&ScratchInstance> {
        self.nfs.get(nf).map(|nf| &nf.instance)
    }

    /// Puts each NF into its own cgroup with the weight of a whole core, as the platform does, and the traffic into
    /// another. Drop the fleet before the cgroups.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn share(&self) -> anyhow::Result<Cgroups> {
        let mut groups = Cgroups::new()?;
        let nfs = self.nfs.iter().filter_map(|nf| nf.peer.as_ref());
        for peer in nfs.chain(&self.traffic) {
            groups.add(&[peer.pid()], None, Some(Share::from_percent(100)?))?;
        }
        Ok(groups)
    }

    /// Returns the traffic processes.
    pub fn traffic(&mut self) -> &mut [Peer] {
        &mut self.traffic
    }

    fn standing(&self) -> impl Iterator<Item = &Peer> {
        self.nfs
            .iter()
            .filter_map(|nf| nf.peer.as_ref())
            .chain(&self.io)
    }

    /// Stops the NFs and the I/O threads: rings stay as full as they are.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.standing().try_for_each(Peer::pause)
    }

    /// Continues the NFs and the I/O threads.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.standing().try_for_each(Peer::resume)
    }

    /// Runs all processes for `seconds`.
    pub fn measure(&mut self, scratch: &Scratch, seconds: f64) -> anyhow::Result<Measured> {
        self.measure_some(scratch, seconds, |_| true)
    }

    /// As `measure`, with only some of the NFs.
    pub fn measure_some(
        &mut self,
        scratch: &Scratch,
        seconds: f64,
        runs: impl Fn(usize) -> bool,
    ) -> anyhow::Result<Measured> {
        let before = self.so_far(scratch)?;
        let nfs = self.nfs.iter().enumerate().filter(|(at, _)| runs(*at));
        nfs.filter_map(|(_, nf)| nf.peer.as_ref())
            .chain(&self.io)
            .try_for_each(Peer::resume)?;
        let traffic = run_together(&mut self.traffic, seconds);
        self.pause()?;
        let mut measured = self.so_far(scratch)?.since(&before);
        measured.traffic = traffic?;
        Ok(measured)
    }

    /// Returns the counters of NFs and I/O threads since their start.
    pub fn so_far(&self, scratch: &Scratch) -> anyhow::Result<Measured> {
        let mut sum = Measured::default();
        for nf in &self.nfs {
            let sent = scratch.switch.counters(nf.instance.id(1));
            sum.frames.push(sent.tx_frames);
            sum.calls += sent.tx_calls;
            sum.cpu.push(nf.cpu_seconds()?);
        }
        if let Some(io) = &self.io {
            sum.io_cpu = process_seconds(io.pid())?;
        }
        Ok(sum)
    }
}

impl Nf {
    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let peer = self.peer.as_ref();
        let now = peer.map(|peer| process_seconds(peer.pid())).transpose()?;
        Ok(self.spent + now.unwrap_or_default())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.spent = self.cpu_seconds()?;
        if let Some(mut peer) = self.peer.take() {
            peer.kill();
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let peers = self.nfs.iter_mut().filter_map(|nf| nf.peer.as_mut());
        peers.chain(&mut self.io).for_each(Peer::kill);
    }
}

impl Measured {
    /// Returns the increase since `before`.
    pub fn since(mut self, before: &Measured) -> Self {
        for (now, before) in self.frames.iter_mut().zip(&before.frames) {
            *now -= before;
        }
        for (now, before) in self.cpu.iter_mut().zip(&before.cpu) {
            *now -= before;
        }
        self.calls -= before.calls;
        self.io_cpu -= before.io_cpu;
        self
    }

    /// Returns the frames per second that returned to the traffic, in millions.
    pub fn mpps(&self) -> f64 {
        let rate = |outcome: &Outcome| outcome.frames as f64 / outcome.seconds;
        self.traffic.iter().map(rate).sum::<f64>() / 1e6
    }

    /// Returns the frames per second that the switch took from each NF.
    pub fn rates(&self) -> Vec<f64> {
        let seconds = self.traffic.first().map_or(0.0, |outcome| outcome.seconds);
        self.frames.iter().map(|n| *n as f64 / seconds).collect()
    }

    /// Returns the frames per second of CPU time of NFs and I/O threads together, in millions.
    pub fn per_cpu_mpps(&self) -> f64 {
        let cpu = self.cpu.iter().sum::<f64>() + self.io_cpu;
        self.all_frames() / cpu / 1e6
    }

    /// Returns the mean number of frames per run of the switch.
    pub fn batch(&self) -> f64 {
        self.all_frames() / self.calls.max(1) as f64
    }

    /// Returns the number of frames that the traffic counts as lost.
    pub fn lost(&self) -> u64 {
        self.traffic.iter().map(|outcome| outcome.lost).sum()
    }

    fn all_frames(&self) -> f64 {
        self.frames.iter().sum::<u64>() as f64
    }
}
