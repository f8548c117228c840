//! The operations of an instance's life, for a process in a sandbox.

use super::Process;
use super::remains::Leaving;
use crate::exits;
use crate::launch::{GivenDoorbells, Target};
use crate::limits::pin;
use crate::limits::{cap_of, give_slice, set_resources};
use crate::port_specs::wake_of;
use crate::server;
use crate::server::stopping;
use crate::{cgroups, doorbell};
use anyhow::Context;
use nfluid_api::types::ExitStatus;
use nfluid_control::access::Stop;
use nfluid_control::group::Groups;
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_control::wake::Wake;
use nfluid_lifecycle::machine;
use nfluid_lifecycle::record::{Record, now_ms};
use nfluid_lifecycle::succession::Succession;
use nfluid_lifecycle::workload::{
    Calls, Exited, Farewell, InstanceRings, Port, Remains, Usage, Workload,
};
use nfluid_ring::Level;
use nfluid_sandbox::cgroup::CpuClock;
use nfluid_sandbox::{Ended, Instance, ProcessIdentity};
use nfluid_switch::{DropReason, Inlet, Switch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

impl Workload for Process {
    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Instance::pid)
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        let process = self.process.as_ref()?;
        // Polled without reaping, so that the supervisor still finds the end of the process.
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        let at_once = Timespec::default();
        let runs = matches!(poll(&mut ended, Some(&at_once)), Ok(0));
        runs.then(|| process.identity().clone())
    }

    fn exit(&self) -> Option<Exited> {
        let ended = self.process.as_ref()?.try_wait().ok()??;
        let mut status = ExitStatus::default();
        match ended {
            Ended::Exited(number) => status.status = Some(number),
            Ended::Killed(signal) => {
                status.signal = Some(signal);
                status.out_of_memory =
                    Signal::KILL.as_raw() == signal && self.oom_kills() > self.known_oom_kills;
            }
            Ended::Unknown => {}
        }
        let how = match status.out_of_memory {
            true => "killed by the kernel: it reached its memory limit".to_owned(),
            false => ended.to_string(),
        };
        Some(Exited { how, status })
    }

    fn farewell(&self, stop: Stop) -> Option<Farewell> {
        stopping::farewell(self.process.as_ref()?, &self.cgroup, stop)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(process) = &self.process {
            exits::end(process)?;
            self.maker.exits.forget(process);
            self.process = None;
        }
        Ok(())
    }

    fn note_end(&mut self) {
        if let Some(process) = self.process.take() {
            self.maker.exits.forget(&process);
            self.known_oom_kills = self.oom_kills();
        }
        // Peers would see frames that were sent without a ring only at their next poll.
        for peer in self.record.doorbells.iter().flatten() {
            doorbell::ring(&self.maker.paths.doorbell(peer));
        }
    }

    fn reclaim(&mut self) -> anyhow::Result<u64> {
        // Whatever the process had started is gone as well: the process was process 1 of its PID namespace. The
        // cgroup must not be killed by `cgroup.kill`: Linux 6.15 and newer then kill every process that is later
        // cloned into it.
        Ok(self.maker.switch.reclaim(&self.memory, &self.maps()?)?)
    }

    fn start(&mut self, spec: &InstanceSpec, peers: Vec<Option<String>>) -> anyhow::Result<()> {
        let io_doorbell = self.io_doorbell_of_successor()?;
        let doorbells = GivenDoorbells {
            peers: &peers,
            io: &io_doorbell,
            succession: None,
        };
        let handover = self.maker.switch.hand_over(&self.memory, self.maps()?)?;
        let target = Target {
            name: &self.name,
            spec,
            cgroup: &self.cgroup,
            record: &self.record,
            program: None,
        };
        let ports = (&self.memory, &handover);
        let launched = self.maker.launch(target, ports, &doorbells, None)?;
        let process = launched.instance;
        let record = Record {
            process: Some(process.identity().clone()),
            started_ms: now_ms(),
            doorbells: peers,
            io_doorbell: Some(launched.io_doorbell),
            ..self.record.clone()
        };
        if let Err(why) = nfluid_records::save(&record, &self.maker.paths.record(&self.name)) {
            exits::end(&process)?;
            return Err(why).context("writing down the instance");
        }
        self.maker.exits.add(&self.name, &process);
        self.record = record;
        self.process = Some(process);
        self.io_doorbell = spec.io.has_threads().then_some(io_doorbell);
        self.maker.switch.revive(&self.memory);
        if let Some((_, level)) = self.lets_in
            && let Err(why) = self.let_in(level)
        {
            tracing::warn!(instance = self.name, "its frames stay plain: {why:#}");
        }
        Ok(())
    }

    fn begin_freeze(&self) -> anyhow::Result<()> {
        Ok(self.cgroup.begin_freeze()?)
    }

    fn await_frozen(&self) -> anyhow::Result<()> {
        Ok(self.cgroup.await_frozen()?)
    }

    fn thaw(&self) -> anyhow::Result<()> {
        Ok(self.cgroup.thaw()?)
    }

    fn limit(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()> {
        if self.is_in_place(groups, resources)? {
            set_resources(&self.cgroup, groups, resources)?;
        } else {
            self.move_cgroup(groups, resources)?;
        }
        self.memory_limit = resources.memory.0;
        if self.slice != resources.slice {
            if let Some(process) = &self.process {
                give_slice(process, resources.slice)?;
            }
            self.slice = resources.slice;
        }
        Ok(())
    }

    fn lift_cap(&self) -> anyhow::Result<()> {
        Ok(self.cgroup.set_cap(None)?)
    }

    fn cap(&self, groups: &Groups, resources: &Resources) -> anyhow::Result<()> {
        let cap = cap_of(groups, resources.group.as_deref(), resources.cap)?;
        Ok(self.cgroup.set_cap(cap)?)
    }

    fn relocate(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()> {
        if !self.is_in_place(groups, resources)? {
            self.move_cgroup(groups, resources)?;
            // A crash in between loses only a counter.
            if let Err(error) = self.save_record() {
                tracing::warn!(instance = self.name, %error, "writing down what it used");
            }
        }
        Ok(())
    }

    fn run_on(&mut self, cpus: &[u32]) -> anyhow::Result<()> {
        if self.pinned.as_deref() != Some(cpus) {
            if let Some(process) = &self.process {
                let all = machine::cpus();
                pin(process, if cpus.is_empty() { &all } else { cpus })?;
            }
            self.pinned = Some(cpus.to_vec());
        }
        Ok(())
    }

    fn busy_time(&self) -> Option<Duration> {
        self.process.as_ref()?.cpu_and_wait_time()
    }

    fn usage(&self) -> Usage {
        let used = self.cgroup.stats().unwrap_or_default();
        let held_back = |ns| ns + self.record.former_throttled_ns;
        Usage {
            cpu_ns: used.cpu_usage_ns.unwrap_or(0) + self.record.former_cpu_ns,
            throttled_ns: used.throttled_ns.map(held_back),
            memory_bytes: used.memory_bytes,
        }
    }

    fn cpu_clock(&self) -> Option<CpuClock> {
        self.cgroup.cpu_clock()
    }

    fn control(&self) -> &Path {
        &self.control
    }

    fn ports(&self) -> &[Port] {
        &self.ports
    }

    fn record(&self) -> &Record {
        &self.record
    }

    fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    fn save_record(&self) -> io::Result<()> {
        nfluid_records::save(&self.record, &self.maker.paths.record(&self.name))
    }

    fn set_wake(&self, wake: Option<Wake>) -> anyhow::Result<()> {
        for port in &self.ports {
            self.maker.switch.set_wake(port.number, wake_of(wake))?;
        }
        Ok(())
    }

    fn let_in(&mut self, level: Level) -> anyhow::Result<()> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        let wanted = Some((process.pid(), level));
        if self.lets_in == wanted {
            return Ok(());
        }
        // Also if it fails: what cannot be now cannot be in a moment either.
        self.lets_in = wanted;
        let names: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
        server::let_in(process, &names, level)
    }

    fn set_ports_up(&self, up: bool) {
        for port in &self.ports {
            self.maker.switch.set_up(port.number, up);
        }
    }

    fn ring(&self) -> bool {
        doorbell::ring(&self.maker.paths.doorbell(&self.name))
    }

    fn put_frames(&self, queue: usize, frames: &[&[u8]]) -> anyhow::Result<usize> {
        let maps = self.maps()?;
        let switch = &self.maker.switch;
        Ok(switch.deposit((&self.memory, &maps), queue, frames)?)
    }

    fn count_left_out(&self, queue: usize, frames: u64) {
        if let Some(port) = self.ports.get(queue) {
            let full = DropReason::RingFull;
            self.maker.switch.count_drop(port.number, full, frames);
        }
    }

    fn waiting(&self) -> u64 {
        let numbers = self.ports.iter().map(|port| port.number);
        let used = numbers.filter_map(|number| self.maker.switch.rx_ring_used(number));
        used.map(u64::from).sum()
    }

    fn overflowed(&self) -> u64 {
        let numbers = self.ports.iter().map(|port| port.number);
        let counters = self.maker.switch.counters_of(numbers);
        counters.dropped(DropReason::RingFull)
    }

    fn instance_rings(&self) -> anyhow::Result<Box<dyn InstanceRings>> {
        let maps = self.maps()?;
        let queues = 0..self.ports.len();
        let instance_rings = queues.map(|queue| Inlet::of((&self.memory, &maps), queue));
        let bell = doorbell::open_ringing(&self.maker.paths.doorbell(&self.name));
        Ok(Box::new(SwitchRings {
            switch: Arc::clone(&self.maker.switch),
            instance_rings: instance_rings.collect::<Result<_, _>>()?,
            doorbell: bell.context("opening its doorbell")?,
        }))
    }

    fn calls(&mut self, heard: bool) -> anyhow::Result<Calls> {
        let io = if heard {
            self.take_io_doorbell()?
        } else {
            doorbell::make_io().context("making a doorbell")?
        };
        let paths = &self.maker.paths;
        let mut rings = Vec::new();
        for (ring, peer) in self.maps()?.rings.iter().zip(self.peers_by_queue()) {
            let ring = ring.as_fd().try_clone_to_owned()?;
            let bell = peer.map(|peer| doorbell::open_of_peer(paths, peer));
            let bell = bell.transpose().context("opening a peer's doorbell")?;
            rings.push((ring, bell));
        }
        let own =
            doorbell::open_ringing(&paths.doorbell(&self.name)).context("opening its doorbell")?;
        Ok(Calls { io, own, rings })
    }

    fn end_calls(&mut self) {
        self.io_doorbell = None;
    }

    fn begin_succession(
        &mut self,
        new: &InstanceSpec,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Box<dyn Succession>> {
        self.start_successor(new, peers)
    }

    fn complete_succession(
        &mut self,
        new: &InstanceSpec,
        doorbells: Vec<Option<String>>,
    ) -> anyhow::Result<()> {
        self.install_successor(new, doorbells)
    }

    fn abandon_succession(&mut self) -> anyhow::Result<()> {
        self.end_successor()
    }

    fn take_out(self: Box<Self>, spec: InstanceSpec) -> Box<dyn Remains> {
        Box::new(Leaving::of(*self, spec))
    }
}

impl Process {
    /// Returns the doorbell of its I/O thread, taken from its process unless the daemon has it.
    ///
    /// # Errors
    /// The process has no such doorbell, as a daemon of an older version made it, or has closed it.
    fn take_io_doorbell(&mut self) -> anyhow::Result<OwnedFd> {
        let doorbell = match self.io_doorbell.take() {
            Some(doorbell) => doorbell,
            None => {
                let process = self.process.as_ref().context("it does not run")?;
                let number = self.record.io_doorbell.context(
                    "it has no doorbell for an I/O thread; 'nfluid restart INSTANCE' gives it one",
                )?;
                doorbell::take_io(process, number)?
            }
        };
        let copy = doorbell.try_clone();
        self.io_doorbell = Some(doorbell);
        copy.context("duplicating a doorbell")
    }

    /// Returns the doorbell by which a successor on its ports wakes the I/O thread. The thread goes on listening to
    /// the same doorbell.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn io_doorbell_of_successor(&self) -> anyhow::Result<OwnedFd> {
        match &self.io_doorbell {
            Some(doorbell) => doorbell.try_clone().context("duplicating an I/O doorbell"),
            None => doorbell::make_io().context("making the doorbell of its I/O thread"),
        }
    }

    /// Returns true if its cgroup is in the place of its group in `groups`.
    fn is_in_place(&self, groups: &Groups, resources: &Resources) -> anyhow::Result<bool> {
        let group = resources.group.as_deref();
        let place = cgroups::place(&self.maker.cgroups, groups, group)?;
        let there = place.open(self.cgroup.name());
        Ok(there.is_ok_and(|there| there.directory() == self.cgroup.directory()))
    }

    /// Moves the running process to the cgroup of its group, with the limits there. The resources that it has used
    /// before stay counted.
    ///
    /// # Errors
    /// The process is where it was.
    fn move_cgroup(&mut self, groups: &Groups, resources: &Resources) -> anyhow::Result<()> {
        let group = resources.group.as_deref();
        let place = cgroups::place(&self.maker.cgroups, groups, group)?;
        let new = cgroups::new_cgroup(&place, &self.name)?;
        let stands_still = self.record.paused.is_some();
        let moved = set_resources(&new, groups, resources)
            .and_then(|()| {
                // A process that is moved into a frozen cgroup freezes.
                if stands_still {
                    new.freeze()?;
                }
                Ok(())
            })
            .and_then(|()| Ok(self.cgroup.move_all(&new)?));
        if let Err(why) = moved {
            if let Err(again) = new.move_all(&self.cgroup).and_then(|()| new.remove()) {
                tracing::warn!(instance = self.name, error = %again, "some of it stays in another group");
            }
            return Err(why.context(format!("moving instance {}", self.name)));
        }
        self.record.cgroup = None;
        let old = std::mem::replace(&mut self.cgroup, new);
        let used = old.stats().unwrap_or_default();
        self.record.former_cpu_ns += used.cpu_usage_ns.unwrap_or(0);
        self.record.former_throttled_ns += used.throttled_ns.unwrap_or(0);
        if let Err(error) = old.remove() {
            tracing::warn!(instance = self.name, %error, "removing its former cgroup");
        }
        Ok(())
    }
}

/// The rings of an instance, accessed by their maps.
struct SwitchRings {
    switch: Arc<Switch>,
    instance_rings: Vec<Option<Inlet>>,
    doorbell: OwnedFd,
}

impl SwitchRings {
    fn inlet(&self, port: u8) -> Option<&Inlet> {
        self.instance_rings.get(usize::from(port))?.as_ref()
    }
}

impl InstanceRings for SwitchRings {
    fn has(&self, port: u8) -> bool {
        self.inlet(port).is_some()
    }

    fn put(&self, port: u8, frames: &[&[u8]]) -> usize {
        let Some(inlet) = self.inlet(port) else {
            return 0;
        };
        let put = self.switch.deposit_at(inlet, frames, inlet.slots() / 2);
        if put > 0 {
            // A full pipe holds a ring that was not answered yet.
            let _ = rustix::io::write(&self.doorbell, &[1]);
        }
        put
    }

    fn count_left_out(&self, port: u8, frames: u64) {
        if let Some(inlet) = self.inlet(port) {
            let full = DropReason::RingFull;
            self.switch.count_drop(inlet.port(), full, frames);
        }
    }
}
