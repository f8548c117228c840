//! The creation of an instance: numbers, pipes, ports, cgroup, process, record. Either all steps are done, or none.

mod empty;
pub mod shell;

use crate::cleaner::Leftovers;
use crate::exits::end;
use crate::launch::{GivenDoorbells, Target};
use crate::limits::{cap_of, limit_new};
use crate::maker::Maker;
use crate::numbers::InUse;
use crate::port_specs::{port_specs, tx_slots};
use crate::process::{Parts, Process};
use crate::programs::OpenProgram;
use crate::{cgroups, doorbell};
use anyhow::Context;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stopwatch::Lap;
use nfluid_lifecycle::cores::pinned_to;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::runtime::Site;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::{Instance, Shell};
use nfluid_switch::{Handover, InstanceMemory};
use shell::Waiting;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of instances that are created in parallel: while one waits for its process, others continue.
const HANDS: usize = 4;

/// The resources of an instance that is being removed.
pub(crate) struct Left {
    /// Its ports.
    pub memory: InstanceMemory,
    /// Its cgroup.
    pub cgroup: Cgroup,
    /// Its process, unless the process has ended.
    pub process: Option<Instance>,
}

/// An instance that is being created or removed. Dropping it removes what exists of it, unless it was kept.
pub struct Making {
    maker: Arc<Maker>,
    name: String,
    /// The former name, of the shell that it was, which some of its files still have.
    former: Option<String>,
    spec: InstanceSpec,
    site: Site,
    /// The instances at the other ends of its ports' links.
    peers: Vec<Option<String>>,
    record: Record,
    has_pipes: bool,
    has_numbers: bool,
    memory: Option<InstanceMemory>,
    /// The descriptors of its ports for its program; closed after the handover.
    handover: Option<Handover>,
    cgroup: Option<Cgroup>,
    process: Option<Instance>,
    io_doorbell: Option<OwnedFd>,
    /// Its program, if already open.
    program: Option<OpenProgram>,
    /// The process of a shell that waits for its assignment.
    waiting: Option<Waiting>,
    /// The steps, with their times.
    laps: Vec<Lap>,
}

impl Making {
    /// Takes numbers for an instance and creates its pipes. First writes the record, by which a later daemon finds
    /// the instance if this daemon dies.
    ///
    /// # Errors
    /// No numbers are left, or a file cannot be created.
    pub fn begin(
        maker: &Arc<Maker>,
        name: &str,
        spec: &InstanceSpec,
        site: Site,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Self> {
        let mut record = Record::new(spec, tx_slots(spec))?;
        record.seed = RandomState::new().hash_one(name);
        let mut making = Making::new(maker, name, spec.clone(), record);
        making.site = site;
        making.peers = peers;
        let numbers = maker.numbers.take(making.record.ports)?;
        making.record.core = making.site.core;
        making.record.first_port = numbers.first_port;
        making.record.pool = numbers.pool;
        making.record.user = numbers.user;
        making.has_numbers = true;
        making.has_pipes = true;
        maker.make_pipes(name)?;
        making.write_down()?;
        making.laps.push(Lap::now("files"));
        Ok(making)
    }

    fn write_down(&self) -> anyhow::Result<()> {
        nfluid_records::save(&self.record, &self.maker.paths.record(&self.name))
            .context("writing down the instance")
    }

    /// Wraps an existing instance, to be removed.
    pub(crate) fn of(
        maker: &Arc<Maker>,
        name: &str,
        spec: InstanceSpec,
        left: Left,
        record: Record,
    ) -> Self {
        let mut making = Making::new(maker, name, spec, record);
        making.memory = Some(left.memory);
        making.cgroup = Some(left.cgroup);
        making.process = left.process;
        making.has_pipes = true;
        making.has_numbers = true;
        making
    }

    /// Creates an instance that owns nothing yet.
    fn new(maker: &Arc<Maker>, name: &str, spec: InstanceSpec, record: Record) -> Self {
        Making {
            maker: Arc::clone(maker),
            name: name.to_owned(),
            former: None,
            spec,
            site: Site::default(),
            peers: Vec::new(),
            record,
            has_pipes: false,
            has_numbers: false,
            memory: None,
            handover: None,
            cgroup: None,
            process: None,
            io_doorbell: None,
            program: None,
            waiting: None,
            laps: Vec::new(),
        }
    }

    /// Sets the program, which is open.
    pub fn set_program(&mut self, program: Option<OpenProgram>) {
        self.program = program;
    }

    /// Returns the steps, with their times, since the instance's specification is known.
    pub fn take_laps(&mut self) -> Vec<Lap> {
        std::mem::take(&mut self.laps)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates the ports of all instances without ports, up and not connected.
    ///
    /// # Errors
    /// The kernel refuses; then none of them has ports.
    pub fn enter(all: &mut [Making]) -> anyhow::Result<()> {
        let Some(maker) = all.first().map(|making| Arc::clone(&making.maker)) else {
            return Ok(());
        };
        let mut made = Vec::with_capacity(all.len());
        for making in all.iter().filter(|making| making.memory.is_none()) {
            match making.allocate() {
                Ok(allocated) => made.push(allocated),
                Err(error) => {
                    // Members of trust groups return their slots.
                    let memories: Vec<_> = made.iter().map(|(memory, _)| memory).collect();
                    maker.switch.remove_all(&memories)?;
                    return Err(error);
                }
            }
        }
        let parts: Vec<_> = made.iter().map(|(memory, fds)| (memory, fds)).collect();
        maker.switch.enter(&parts)?;
        let without = all.iter_mut().filter(|making| making.memory.is_none());
        for (making, (memory, handover)) in without.zip(made) {
            making.memory = Some(memory);
            making.handover = Some(handover);
            making.laps.push(Lap::now("ports"));
        }
        Ok(())
    }

    fn allocate(&self) -> anyhow::Result<(InstanceMemory, Handover)> {
        let specs = port_specs(&self.spec, self.record.first_port, self.record.tx_slots);
        let pool = self.record.pool;
        match &self.spec.trust {
            Some(group) => self
                .maker
                .groups
                .member(&self.maker.switch, group, pool, &specs),
            None => Ok(InstanceMemory::allocate(pool, &specs)?),
        }
    }

    /// Completes several instances at a time, all of which have ports. Returns each with its result.
    pub fn complete_all(all: Vec<Making>) -> Vec<(String, anyhow::Result<Making>)> {
        let next = AtomicUsize::new(0);
        let names: Vec<String> = all.iter().map(|making| making.name.clone()).collect();
        let places: Vec<_> = all
            .into_iter()
            .map(|making| std::sync::Mutex::new((Some(making), None)))
            .collect();
        let work = || {
            while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut place = place
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Some(mut making) = place.0.take() {
                    place.1 = Some(making.complete().map(|()| making));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..HANDS.min(places.len()) {
                scope.spawn(work);
            }
            work();
        });
        let result = |place: std::sync::Mutex<(_, Option<anyhow::Result<Making>>)>| {
            let (_, result) = place
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            result.unwrap_or_else(|| Err(anyhow::anyhow!("it was not made")))
        };
        names
            .into_iter()
            .zip(places.into_iter().map(result))
            .collect()
    }

    /// Pins the ports, creates the cgroup, starts the program and records the process.
    ///
    /// # Errors
    /// Names the step that failed. What was created has still to be removed.
    pub fn complete(&mut self) -> anyhow::Result<()> {
        match self.waiting.take() {
            Some(Waiting::Hosting(hosting)) => self.assign(*hosting),
            Some(Waiting::Empty(empty)) => self.execute(*empty),
            None => {
                let io_doorbell = self.settle()?;
                self.start_program(io_doorbell, None)
            }
        }
    }

    /// Starts its program, in its shell with the shell's control socket if there is one.
    fn start_program(
        &mut self,
        io_doorbell: OwnedFd,
        shell: Option<(Shell, OwnedFd)>,
    ) -> anyhow::Result<()> {
        let (Some(memory), Some(handover), Some(cgroup)) =
            (&self.memory, &self.handover, &self.cgroup)
        else {
            anyhow::bail!("it is not settled");
        };
        let target = Target {
            name: &self.name,
            spec: &self.spec,
            cgroup,
            record: &self.record,
            program: self.program.clone(),
        };
        let bells = GivenDoorbells {
            peers: &self.peers,
            io: &io_doorbell,
            succession: None,
        };
        let launched = self
            .maker
            .launch(target, (memory, handover), &bells, shell)?;
        self.handover = None;
        self.laps.push(Lap::now("launch"));
        let record = Record {
            process: Some(launched.instance.identity().clone()),
            doorbells: self.peers.clone(),
            io_doorbell: Some(launched.io_doorbell),
            ..self.record.clone()
        };
        self.process = Some(launched.instance);
        self.io_doorbell = self.spec.io.has_threads().then_some(io_doorbell);
        // The record of a shell has this content already.
        if record == self.record {
            return Ok(());
        }
        self.record = record;
        self.write_down()
    }

    /// Pins the ports, and creates the cgroup and the doorbell of the I/O thread, which is returned.
    fn settle(&mut self) -> anyhow::Result<OwnedFd> {
        let maker = &self.maker;
        let handover = self.handover.as_mut().context("it has no ports")?;
        let pins = maker.paths.instance_pins(&self.name);
        // Pins of a daemon that died in between.
        let _ = std::fs::remove_dir_all(&pins);
        handover.maps.pin(&pins)?;
        self.laps.push(Lap::now("pins"));
        let resources = &self.spec.resources;
        let place = cgroups::place(
            &maker.cgroups,
            &self.site.groups,
            resources.group.as_deref(),
        )?;
        let cgroup = self.cgroup.insert(cgroups::new_cgroup(&place, &self.name)?);
        limit_new(cgroup, resources)?;
        // Groups that change first may not allow the cap yet: `Host::create_instance` sets it later.
        if resources.cap.is_some() && resources.group.is_none() {
            cgroup.set_cap(cap_of(&self.site.groups, None, resources.cap)?)?;
        }
        self.laps.push(Lap::now("cgroup"));
        doorbell::make_io().context("making the bell of its I/O thread")
    }

    /// Returns the core that its placement chose.
    pub fn core(&self) -> Option<u32> {
        self.site.core
    }

    /// Returns the finished instance. Nothing is removed on drop any more.
    ///
    /// # Errors
    /// The instance is not finished; what exists of it is removed.
    pub fn keep(mut self) -> anyhow::Result<Process> {
        if self.memory.is_none() || self.process.is_none() || self.cgroup.is_none() {
            anyhow::bail!("it is not finished");
        }
        let (Some(memory), Some(cgroup), Some(process)) =
            (self.memory.take(), self.cgroup.take(), self.process.take())
        else {
            anyhow::bail!("it is not finished");
        };
        self.has_pipes = false;
        self.has_numbers = false;
        let parts = Parts {
            memory,
            cgroup,
            process,
            memory_limit: self.spec.resources.memory.0,
            io_doorbell: self.io_doorbell.take(),
            record: std::mem::take(&mut self.record),
            pinned: Some(pinned_to(&self.spec, self.site.core)),
            slice: self.spec.resources.slice,
        };
        Ok(Process::new(&self.maker, &self.name, parts))
    }

    /// Keeps the doorbell in place, for a new instance of the same name.
    pub fn keep_doorbell(&mut self) {
        let paths = &self.maker.paths;
        self.has_pipes = false;
        for file in [paths.record(&self.name), paths.control(&self.name)] {
            let _ = std::fs::remove_file(file);
        }
    }

    /// Removes what exists of all: processes and files at once, ports and numbers soon. The daemon's log names what
    /// cannot be removed.
    pub fn take_back(all: &mut [Making]) {
        for making in all.iter_mut() {
            making.end_process();
        }
        for making in all.iter_mut() {
            match making.memory.take() {
                None => {
                    making.remove_files(None);
                    making.free_numbers();
                }
                Some(memory) if memory.group.is_some() => making.leave_group(&memory),
                Some(memory) => {
                    if let Err(error) = making.maker.switch.take_down(&memory) {
                        tracing::warn!(instance = making.name, %error, "taking it off its switches");
                    }
                    let record = making
                        .maker
                        .paths
                        .record(&shell::leftover_name(making.record.pool));
                    making.remove_files(Some(&record));
                    let numbers = making.has_numbers.then(|| making.in_use());
                    making.has_numbers = false;
                    making.maker.cleaner.take(Leftovers {
                        memory,
                        numbers,
                        record,
                    });
                }
            }
        }
    }

    /// Returns the slots of a member of a trust group at once, so that another instance can join.
    fn leave_group(&mut self, memory: &InstanceMemory) {
        let switch = &self.maker.switch;
        if let Err(error) = switch.remove(memory) {
            tracing::warn!(%error, "maps of removed ports stay until their numbers are used again");
        }
        self.maker.groups.end_unused(switch);
        self.remove_files(None);
        self.free_numbers();
    }

    fn end_process(&mut self) {
        let told = |what: &str, error: &dyn std::fmt::Display| {
            tracing::warn!(instance = self.name, %error, "{what}");
        };
        // A process that has not executed a program ends when this is closed.
        self.waiting = None;
        if let Some(process) = self.process.take()
            && let Err(error) = end(&process)
        {
            told(
                "killing what was started; its numbers are not used again",
                &error,
            );
            // The process holds the sockets of its ports: a new owner of their numbers would be its victim.
            self.has_numbers = false;
        }
        if let Some(cgroup) = self.cgroup.take()
            && let Err(error) = cgroup.remove()
        {
            told("removing the cgroup", &error);
        }
    }

    /// Removes the files. The record is kept under the name `leftover`, if given.
    fn remove_files(&mut self, leftover: Option<&Path>) {
        let paths = &self.maker.paths;
        let names = || {
            [Some(&self.name), self.former.as_ref()]
                .into_iter()
                .flatten()
        };
        if self.has_numbers {
            // Skipped if the instance was kept, or has a successor that owns these pins.
            for name in names() {
                let _ = std::fs::remove_dir_all(paths.instance_pins(name));
            }
        }
        if !self.has_pipes {
            return;
        }
        let record = paths.record(&self.name);
        let kept = leftover.map(|leftover| std::fs::rename(&record, leftover));
        if !matches!(kept, Some(Ok(()))) {
            let _ = std::fs::remove_file(record);
        }
        for name in names() {
            for file in [
                paths.doorbell(name),
                paths.log_pipe(name),
                paths.control(name),
            ] {
                let _ = std::fs::remove_file(file);
            }
        }
        self.maker.logs.forget(&self.name);
        self.has_pipes = false;
    }

    fn free_numbers(&mut self) {
        if !self.has_numbers {
            return;
        }
        self.has_numbers = false;
        self.maker.numbers.free(&self.in_use());
    }

    fn in_use(&self) -> InUse {
        InUse {
            first_port: self.record.first_port,
            ports: self.record.ports,
            pool: self.record.pool,
            user: self.record.user,
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        Making::take_back(std::slice::from_mut(self));
    }
}
