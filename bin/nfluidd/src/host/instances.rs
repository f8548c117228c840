//! Instances of tier `process` as a plan makes them, ends them and starts them again.

use super::errors::{error, failed};
use super::{Host, tenants};
use anyhow::Context;
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::action::Action;
use nfluid_control::apply::{PlatformError, no_instance};
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::supervise::{Exit, Supervisor};
use nfluid_instance::cores::Load;
use nfluid_instance::launch::{GivenBells, Target};
use nfluid_instance::making::{self, Making, Site};
use nfluid_instance::running::{Running, cap_of, port_specs, supervisor_time, tx_slots};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The instances that these actions make and end; nothing if they do more than that, and lead wires.
fn made_and_ended(actions: &[Action]) -> Option<BTreeSet<String>> {
    let about = |action: &Action| match action {
        Action::CreateInstance { name, .. } | Action::RemoveInstance { name, .. } => {
            Some(Some(name.clone()))
        }
        Action::Wire { .. } => Some(None),
        _ => None,
    };
    let names: Option<Vec<Option<String>>> = actions.iter().map(about).collect();
    Some(names?.into_iter().flatten().collect())
}

impl Host {
    /// Begins all instances that a plan will create, and makes the ports of all at once. What fails
    /// for one of them is told when the plan comes to it.
    ///
    /// # Errors
    /// A pipe of an instance that is to be replaced cannot be made.
    pub(super) fn begin(&mut self, actions: &[Action]) -> anyhow::Result<Vec<Making>> {
        self.groups_change = tenants::is_about_groups(actions);
        self.plan_is_about = made_and_ended(actions);
        self.laps.clear();
        for action in actions {
            match action {
                Action::Wire {
                    port,
                    new: Some(to),
                    ..
                } => self.wires.plan(port, to),
                // A peer that starts earlier is given this bell.
                Action::ReplaceInstance { name, new, .. } if !new.is_fast_path() => {
                    self.maker.make_pipes(name)?;
                }
                Action::SetPools { new, .. } => self.maker.groups.plan_pools(new),
                _ => {}
            }
        }
        if self.groups_change {
            self.pool.leave_groups();
        }
        let to_be_made = actions.iter().filter_map(|action| match action {
            Action::CreateInstance { spec, .. } => Some(spec),
            Action::ReplaceInstance { new, .. } => Some(new),
            _ => None,
        });
        let to_be_made = to_be_made.filter(|spec| !spec.is_fast_path());
        self.maker.groups.plan(
            to_be_made.filter_map(|spec| {
                Some((spec.trust.clone()?, port_specs(spec, 0, tx_slots(spec))))
            }),
        );
        let groups = Arc::new(tenants::planned(&self.tenants, actions));
        let mut begun = Vec::new();
        let coming: Vec<(&str, &InstanceSpec)> = actions
            .iter()
            .filter_map(|action| match action {
                Action::CreateInstance { name, spec } if !spec.is_fast_path() => {
                    Some((name.as_str(), &**spec))
                }
                _ => None,
            })
            .collect();
        let mut placings = self.placings(&coming, &groups);
        for action in actions {
            let Action::CreateInstance { name, spec } = action else {
                continue;
            };
            if spec.is_fast_path() {
                continue;
            }
            let peers = self.link_peers(name, spec);
            let core = placings.core_for(name, spec);
            let site = Site {
                groups: Arc::clone(&groups),
                core,
            };
            match self.begin_one(name, spec, site, peers) {
                Ok(making) => begun.push(making),
                Err(why) => drop(self.prepared.insert(name.clone(), Err(why))),
            }
        }
        if Making::enter(&mut begun).is_err() {
            // Then one by one, when the plan comes to them: the error is of one of them alone.
            begun.clear();
        }
        Ok(begun)
    }

    /// Takes a shell for an instance, or begins it from nothing.
    fn begin_one(
        &self,
        name: &str,
        spec: &InstanceSpec,
        site: Site,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Making> {
        // How a program is linked decides which shell suits.
        let program = match &spec.program {
            Program::Path { program, .. } if self.pool.asks_for_linkage(spec) => {
                self.maker.programs.open(program).ok()
            }
            _ => None,
        };
        let linkage = program.as_ref().map(|open| open.0.linkage());
        if let Some(mut shell) = self.pool.take(name, spec, linkage) {
            shell.set_program(program);
            match shell.become_instance(name, spec, site.clone(), peers.clone()) {
                Ok(()) => return Ok(shell),
                Err(why) => tracing::warn!(instance = name, "a shell is of no use: {why:#}"),
            }
        }
        let begun = Making::begin(&self.maker, name, spec, site.clone(), peers.clone());
        if begun.is_err() && self.pool.give_up() {
            // What it lacked, shells may have had.
            return Making::begin(&self.maker, name, spec, site, peers);
        }
        begun
    }

    /// Ends what an instance was, for another in its place.
    pub(super) fn take_out(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> Result<(), PlatformError> {
        if spec.is_fast_path() {
            return self.with_fast(|fast| fast.reserve(name));
        }
        let mut ended = self.end_instance(name).map_err(error)?;
        if let Some(ended) = &mut ended {
            ended.leave_bell();
        }
        Ok(())
    }

    pub(super) fn put_in(&mut self, name: &str, spec: &InstanceSpec) -> Result<(), PlatformError> {
        if spec.is_fast_path() {
            return self.with_fast(|fast| fast.create(name, spec));
        }
        self.create_instance(name, spec).map_err(error)
    }

    /// Makes and starts an instance; takes back everything if that fails.
    pub(super) fn create_instance(
        &mut self,
        name: &str,
        spec: &InstanceSpec,
    ) -> anyhow::Result<()> {
        let mut making = match self.prepared.remove(name) {
            Some(prepared) => prepared?,
            None => {
                // Its own end may be the one that is being undone.
                self.ended.retain(|ended| ended.name() != name);
                self.make(name, spec)?
            }
        };
        self.laps.extend(making.take_laps());
        let now = supervisor_time(self.started);
        let running = making.keep(Supervisor::new(spec.restart, now), now)?;
        let resources = &spec.resources;
        // Otherwise it has its cap: see `Making::settle`.
        let capped = match resources.group.as_deref() {
            None => Ok(()),
            group => cap_of(&self.tenants, group, resources.cap)
                .and_then(|cap| running.cgroup.set_cap(cap)),
        };
        self.take_up(name, running);
        if let Err(why) = capped {
            drop(self.end_instance(name)?);
            return Err(why.into());
        }
        if spec.io.has_threads()
            && let Err(why) = self.entrust(name, spec.io)
        {
            drop(self.end_instance(name)?);
            return Err(why);
        }
        self.weigh_io();
        Ok(())
    }

    /// Takes a running instance up among the others.
    pub(super) fn take_up(&mut self, name: &str, running: Running) {
        if let Some(process) = &running.process {
            self.exits.add(name, process);
        }
        self.note_bells(name, &running.record.bells);
        self.instances.insert(name.to_owned(), running);
    }

    /// Takes an instance out.
    pub(super) fn let_go(&mut self, name: &str) -> Option<Running> {
        let running = self.instances.remove(name)?;
        self.ended_names.remove(name);
        self.wires.forget_bypass(name);
        for peer in running.record.bells.iter().flatten() {
            if let Some(holders) = self.bell_holders.get_mut(peer) {
                holders.remove(name);
                if holders.is_empty() {
                    self.bell_holders.remove(peer);
                }
            }
        }
        Some(running)
    }

    /// Remembers whose bells an instance was given.
    pub(super) fn note_bells(&mut self, name: &str, bells: &[Option<String>]) {
        for peer in bells.iter().flatten() {
            let holders = self.bell_holders.entry(peer.clone()).or_default();
            holders.insert(name.to_owned());
        }
    }

    fn make(&self, name: &str, spec: &InstanceSpec) -> anyhow::Result<Making> {
        let peers = self.link_peers(name, spec);
        let site = Site {
            groups: Arc::new(self.tenants.clone()),
            core: self
                .placings(&[(name, spec)], &self.tenants)
                .core_for(name, spec),
        };
        let mut making = self.begin_one(name, spec, site, peers)?;
        if let Err(why) = Making::enter(std::slice::from_mut(&mut making)) {
            // What it lacks in its trust group, shells may have.
            if spec.trust.is_none() || !self.pool.give_up() {
                return Err(why);
            }
            Making::enter(std::slice::from_mut(&mut making))?;
        }
        making.complete()?;
        Ok(making)
    }

    /// Kills an instance. What is left of it is taken down when the result is dropped.
    ///
    /// # Errors
    /// It cannot be killed, and runs as before.
    pub(super) fn end_instance(&mut self, name: &str) -> anyhow::Result<Option<Making>> {
        self.check_settled(name)?;
        self.end_pause(name);
        // From here on its frames wait for another, or have no way.
        self.dismiss_client(name);
        let Some(running) = self.instances.get_mut(name) else {
            return Ok(None);
        };
        if let Some(process) = &running.process {
            making::end(process)?;
            self.exits.forget(process);
            running.process = None;
        }
        if running.spec.io.has_threads() {
            self.ask_to_leave(name);
        }
        let came = self.came_to_member(name);
        let running = self.let_go(name);
        self.leave_to_first(name, came);
        Ok(running.map(|running| Making::of(&self.maker, name, running)))
    }

    /// Notes that nobody can ring instance `name` any more: a later one of that name has another
    /// doorbell, which those that run now do not hold.
    pub(super) fn forget_bell(&mut self, name: &str) {
        for holder in self.bell_holders.remove(name).unwrap_or_default() {
            let Some(running) = self.instances.get_mut(&holder) else {
                continue;
            };
            let bells = running.record.bells.iter_mut();
            let stale = bells.filter(|bell| bell.as_deref() == Some(name));
            stale.for_each(|bell| *bell = None);
            if let Err(error) =
                nfluid_records::save(&running.record, &self.settings.paths.record(&holder))
            {
                tracing::warn!(instance = holder, %error, "writing down a bell that is gone");
            }
        }
    }

    /// Starts the successor of an instance that has ended, on the same ports.
    pub(super) fn start_again(&mut self, name: &str) -> anyhow::Result<()> {
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let peers = self.link_peers(name, &running.spec);
        let io_bell = running.io_bell_of_successor()?;
        let bells = GivenBells {
            peers: &peers,
            io: &io_bell,
            succession: None,
        };
        let maps = running.maps(&self.settings.paths, name)?;
        let handover = self.switch.hand_over(&running.memory, maps)?;
        let target = Target {
            name,
            spec: &running.spec,
            cgroup: &running.cgroup,
            record: &running.record,
            program: None,
        };
        let ports = (&running.memory, &handover);
        let launched = self.maker.launch(target, ports, &bells, None)?;
        let process = launched.instance;
        let mut record = running.record.clone();
        record.process = Some(process.identity().clone());
        record.bells = peers;
        record.io_bell = Some(launched.io_bell);
        if let Err(why) = nfluid_records::save(&record, &self.settings.paths.record(name)) {
            making::end(&process)?;
            return Err(why).context("writing down the instance");
        }
        let time = supervisor_time(self.started);
        self.note_bells(name, &record.bells);
        self.exits.add(name, &process);
        self.ended_names.remove(name);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        running.load = Load::default();
        running.record = record;
        running.process = Some(process);
        running.keep_io_bell(io_bell);
        running.state = InstanceState::Running;
        running.since = Instant::now();
        running.supervisor.started(time);
        self.switch.revive(&running.memory);
        let model = running.spec.io;
        // The bells that it and its thread ring may be others than its predecessor's.
        if model.has_threads()
            && let Err(why) = self.entrust(name, model)
        {
            tracing::warn!(instance = name, "giving it to an I/O thread: {why:#}");
        }
        Ok(())
    }

    /// Writes down a change of an instance's specification, and only then makes it.
    pub(super) fn change_spec(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut InstanceSpec),
    ) -> anyhow::Result<()> {
        self.check_settled(name)?;
        let path = self.settings.paths.record(name);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        let mut spec = running.spec.clone();
        change(&mut spec);
        let mut record = running.record.clone();
        record.spec = serde_json::to_string(&spec)?;
        nfluid_records::save(&record, &path).context("writing down the instance")?;
        running.spec = spec;
        running.record = record;
        Ok(())
    }

    /// An operator's restart: the process is killed, past failures are forgiven.
    pub fn restart(&mut self, name: &str) -> Result<(), PlatformError> {
        if self.is_fast(name) {
            return self.with_fast(|fast| fast.restart(name));
        }
        self.check_settled(name)?;
        self.end_pause(name);
        let Some(running) = self.instances.get_mut(name) else {
            return Err(no_instance(name));
        };
        running.supervisor.forgive();
        if let Some(process) = &running.process {
            making::end(process).map_err(error)?;
            self.exits.forget(process);
            running.process = None;
        }
        let maps = running.maps(&self.settings.paths, name);
        let reclaimed = maps
            .and_then(|maps| self.switch.reclaim(&running.memory, &maps))
            .map_err(failed);
        let started = reclaimed.and_then(|lost| {
            self.event(
                EventKind::Restarting,
                Some((Kind::Instance, name)),
                format!("restarted on request; {lost} frames lost in its rings"),
            );
            self.start_again(name).map_err(error)
        });
        if let Err(why) = &started {
            // Its policy decides when that is tried again.
            self.note_exit(name, &format!("could not be started: {why}"), Exit::Failure);
        }
        started
    }
}
