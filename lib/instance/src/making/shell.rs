//! Shells: instances that are created before their specification is known. All parts exist. The program that hosts
//! built-in NFs has started and waits for the NF's name. For a user's program, a process waits in its sandbox for the
//! program. No instance can have a shell's name.
//!
//! A daemon that is killed leaves either a shell or an instance: one rename of the record turns a shell into an
//! instance. The process of a shell ends when the daemon's end of its socket is closed. The next daemon removes the
//! other parts, as those of any instance that is not desired.

use super::empty::Empty;
use super::{Making, Site};
use crate::companion::{Companion, Owner};
use crate::doorbell;
use crate::launch::hosting::Hosting;
use crate::limits::pin;
use crate::limits::{cap_of, give_slice, set_weight};
use crate::port_specs::{port_specs, tx_slots};
use crate::seed::seeded;
use anyhow::Context;
use nfluid_control::model::{DEFAULT_MTU, PortApi, Program};
use nfluid_control::pool::{PoolSpec, Purpose};
use nfluid_control::quantity::Mac;
use nfluid_control::spec::{InstanceSpec, PortSpec, Resources};
use nfluid_control::stopwatch::Lap;
use nfluid_lifecycle::cores::pinned_to;
use nfluid_lifecycle::record::Record;
use nfluid_ring::assignment;
use nfluid_sandbox::Root;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The step that follows the start of an instance.
const SETTLE_IN: &str = "names";
/// First character of the name of every shell; no instance's name begins with this character.
const PREFIX: char = '_';

/// The process of a shell.
pub enum Waiting {
    /// Hosts built-in NFs, or is the monitor of a program, and waits for the network function.
    Hosting(Box<Hosting>),
    /// Waits in its sandbox for a program.
    Empty(Box<Empty>),
}

impl Waiting {
    /// Returns true if the process does not listen any more.
    fn is_over(&self) -> bool {
        match self {
            Waiting::Empty(empty) => !empty.shell.waits(),
            Waiting::Hosting(hosting) => {
                let mut fds = [PollFd::new(&hosting.socket, PollFlags::empty())];
                let at_once = Timespec::default();
                let has_program = hosting.companion.as_ref().is_none_or(Companion::waits);
                !has_program || !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
            }
        }
    }
}

/// The name of the `number`-th shell.
pub fn name_of(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// Returns the number of the shell with that cgroup.
pub fn number_of(cgroup: &str) -> Option<u64> {
    cgroup
        .strip_prefix("i-")?
        .strip_prefix(PREFIX)?
        .parse()
        .ok()
}

/// Returns the name of an ended instance's record until its maps are removed; no shell has such a name.
pub fn leftover_name(pool: u32) -> String {
    format!("{PREFIX}gone-{pool}")
}

/// Returns true if a name is that of a shell, or of the record of an ended instance.
pub fn is_shell(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the specification of a shell: an instance without a program.
pub fn spec_of(pool: &PoolSpec) -> InstanceSpec {
    // Most interfaces have these names, and need no other.
    let port = |number| PortSpec {
        interface: None,
        name: format!("eth{number}"),
        mac: Mac([0; 6]),
        mtu: DEFAULT_MTU,
        queues: 1,
        long: pool.long,
    };
    let image = pool.image.as_ref();
    let program = match pool.purpose {
        Purpose::BuiltIn | Purpose::MicroVms => Program::BuiltIn { nf: String::new() },
        Purpose::Programs | Purpose::StaticPrograms => Program::Path {
            program: String::new(),
            args: Vec::new(),
            api: PortApi::Library,
        },
        Purpose::Images => Program::Image {
            image: image.map_or_else(String::new, |pooled| pooled.image.clone()),
            entrypoint: Vec::new(),
            args: Vec::new(),
        },
    };
    let bare = InstanceSpec::bare(program, pool.purpose.tier());
    InstanceSpec {
        ports: (0..pool.ports).map(port).collect(),
        flavor: pool.flavor.clone(),
        ring: pool.ring,
        trust: pool.trust.clone(),
        access: image.map(|pooled| pooled.access.clone()),
        resources: Resources {
            memory: pool.memory,
            group: pool.group.clone(),
            ..bare.resources
        },
        ..bare
    }
}

impl Making {
    /// Does what [`Making::complete`] does, except for the parts that depend on the NF or the program. A shell asks
    /// for no share, and so has almost no weight against instances with shares.
    ///
    /// # Errors
    /// Names the step that failed. What was created has still to be removed.
    pub fn complete_waiting(&mut self, purpose: Purpose) -> anyhow::Result<()> {
        let io_doorbell = self.settle()?;
        match purpose {
            Purpose::BuiltIn | Purpose::MicroVms | Purpose::Images => {
                self.start_hosting(io_doorbell)?;
            }
            Purpose::Programs => {
                self.start_empty(Root::libraries(Vec::new()), io_doorbell)?;
            }
            Purpose::StaticPrograms => self.start_empty(Root::Empty, io_doorbell)?,
        }
        self.write_down()
    }

    fn start_hosting(&mut self, io_doorbell: OwnedFd) -> anyhow::Result<()> {
        let (Some(memory), Some(handover), Some(cgroup)) =
            (&self.memory, &self.handover, &self.cgroup)
        else {
            anyhow::bail!("it is not settled");
        };
        let ports = (memory, handover);
        let maker = &self.maker;
        let (process, hosting) = maker.launch_waiting(
            (&self.name, &self.spec),
            ports,
            cgroup,
            &self.record,
            io_doorbell,
        )?;
        self.handover = None;
        let sliced = give_slice(&process, None);
        self.record.process = Some(process.identity().clone());
        self.record.io_doorbell = Some(hosting.numbers.io_doorbell);
        self.process = Some(process);
        sliced?;
        self.waiting = Some(Waiting::Hosting(Box::new(hosting)));
        Ok(())
    }

    /// Returns true if the process of a shell still waits.
    pub fn waits(&mut self) -> bool {
        // A process that is being killed closes its end before its exit can be waited for.
        match &self.waiting {
            Some(waiting) if !waiting.is_over() => {}
            _ => return false,
        }
        if matches!(self.waiting, Some(Waiting::Empty(_))) {
            return true;
        }
        let process = self.process.as_ref();
        match process.map(nfluid_sandbox::Instance::try_wait) {
            Some(Ok(None)) => true,
            // The process was reaped, so that it cannot be waited for again.
            Some(Ok(Some(_))) => {
                self.process = None;
                false
            }
            _ => false,
        }
    }

    /// Returns true if an instance that is made now would see other files than this shell does.
    pub fn is_outdated(&self) -> bool {
        match &self.waiting {
            Some(Waiting::Hosting(hosting)) => {
                let companion = hosting.companion.as_ref();
                companion.is_some_and(|companion| companion.is_outdated(&self.maker))
            }
            Some(Waiting::Empty(_)) | None => false,
        }
    }

    /// Turns a shell into the beginning of instance `name`, with the instance's record, files and ports.
    /// [`Making::complete`] does the rest.
    ///
    /// # Errors
    /// Names the step that failed. What exists has still to be removed.
    pub fn become_instance(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
        site: Site,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<()> {
        // The shell's steps belong to an earlier time.
        self.laps.clear();
        let cgroup = self.cgroup.as_ref().context("a shell without a cgroup")?;
        let record = Record {
            first_port: self.record.first_port,
            pool: self.record.pool,
            tx_slots: self.record.tx_slots,
            user: self.record.user,
            process: self.record.process.clone(),
            seed: self.record.seed,
            long: self.record.long.clone(),
            doorbells: peers.clone(),
            io_doorbell: self.record.io_doorbell,
            cgroup: Some(cgroup.name().to_owned()),
            ..Record::new(spec, tx_slots(spec))?
        };
        let memory = spec.resources.memory;
        if memory != self.spec.resources.memory {
            cgroup.set_memory(memory.0)?;
        }
        let paths = &self.maker.paths;
        // From here on, the parts are found by the instance's name. The record describes the instance only after the
        // assignment. Until then, a later daemon finds the shell's specification there, and removes the instance as
        // not desired.
        std::fs::rename(paths.record(&self.name), paths.record(name))
            .context("writing down what a shell becomes")?;
        let former = std::mem::replace(&mut self.name, name.to_owned());
        self.former = Some(former.clone());
        self.record = record;
        self.spec = spec.clone();
        self.site = site;
        self.peers = peers;
        // Peers that are created in the same plan ring this doorbell, and the first log lines are the instance's own.
        rename(&paths.doorbell(&former), &paths.doorbell(name))?;
        self.maker.logs.rename(&former, name, paths.log(name));
        let memory = self.memory.as_mut().context("a shell without ports")?;
        let made = self.record.made_of(spec);
        let specs = port_specs(&made, self.record.first_port, self.record.tx_slots);
        self.maker.switch.respecify(memory, &specs)?;
        self.laps.push(Lap::now("shell"));
        Ok(())
    }

    /// Does the steps that the assignment need not wait for: writes the record, and renames the files.
    pub(super) fn finish_assignment(&mut self) -> anyhow::Result<()> {
        let Some(former) = self.former.clone() else {
            return Ok(());
        };
        self.write_down()?;
        let (paths, name) = (&self.maker.paths, &self.name);
        rename(&paths.log_pipe(&former), &paths.log_pipe(name))?;
        rename(&paths.control(&former), &paths.control(name))?;
        let (from, pins) = (paths.instance_pins(&former), paths.instance_pins(name));
        if std::fs::rename(&from, &pins).is_err() {
            // Pins of a daemon that died in between.
            let _ = std::fs::remove_dir_all(&pins);
            std::fs::rename(&from, &pins).context("renaming pinned maps")?;
        }
        self.former = None;
        Ok(())
    }

    /// Sets the limits of a shell that has become an instance: share and cap, and the limits of the process itself.
    pub(super) fn limit(&self) -> anyhow::Result<()> {
        let cgroup = self.cgroup.as_ref().context("it has no cgroup")?;
        let resources = &self.spec.resources;
        // A shell has no cap, and the weight of an instance without a share. Its memory limit is set already. In a
        // group, the cap is set later, as for an instance that is made from scratch.
        if resources.share.is_some() || resources.guarantee.is_some() {
            set_weight(cgroup, resources)?;
        }
        if resources.cap.is_some() && resources.group.is_none() {
            cgroup.set_cap(cap_of(&self.site.groups, None, resources.cap)?)?;
        }
        Ok(())
    }

    /// Assigns the instance's network function to the process of the shell, and starts the program beside it.
    pub(super) fn assign(&mut self, hosting: Hosting) -> anyhow::Result<()> {
        self.limit()?;
        let (Some(memory), Some(process)) = (&self.memory, &self.process) else {
            anyhow::bail!("a shell that was not completed");
        };
        let cpus = pinned_to(&self.spec, None);
        if !cpus.is_empty() {
            pin(process, &cpus)?;
        }
        // The process has the platform's slice.
        if self.spec.resources.slice.is_some() {
            give_slice(process, self.spec.resources.slice)?;
        }
        self.laps.push(Lap::now("limits"));
        let table = hosting.numbers.table(memory).to_bytes();
        let config = seeded(&self.spec.program, &self.spec.config, self.record.seed);
        let config = serde_json::to_vec(&config)?;
        let mut rung = Vec::new();
        for (port, peer) in (0u8..).zip(&self.peers) {
            if let Some(peer) = peer {
                let bell = doorbell::open_of_peer(&self.maker.paths, peer);
                rung.push((port, bell.context("opening a peer's doorbell")?));
            }
        }
        let rung: Vec<_> = rung
            .iter()
            .map(|(port, bell)| (*port, bell.as_fd()))
            .collect();
        assignment::send(
            &hosting.socket,
            self.spec.program.name(),
            &table,
            &config,
            &rung,
        )
        .context("telling a shell what it is")?;
        self.laps.push(Lap::now("tell"));
        self.finish_assignment()?;
        self.laps.push(Lap::now(SETTLE_IN));
        if let Some(companion) = hosting.companion {
            self.start_beside(companion, &cpus)?;
        }
        Ok(())
    }

    fn start_beside(&mut self, companion: Companion, cpus: &[u32]) -> anyhow::Result<()> {
        let owner = Owner {
            name: &self.name,
            user: self.record.user,
            cgroup: self.cgroup.as_ref().context("it has no cgroup")?,
            cpus,
        };
        companion.start(&self.maker, owner, &self.spec)?;
        self.laps.push(Lap::now("program"));
        Ok(())
    }
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::rename(from, to).with_context(|| format!("renaming {}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::{is_shell, leftover_name, name_of, number_of};
    use crate::cgroups::cgroup_name;

    #[test]
    fn no_instance_has_the_name_of_a_shell() {
        for name in [name_of(0), name_of(17), leftover_name(3)] {
            assert!(is_shell(&name) && nfluid_control::model::check_name(&name).is_err());
        }
        assert_eq!(number_of(&cgroup_name(&name_of(17))), Some(17));
        assert_eq!(number_of(&cgroup_name("17")), None);
    }
}
