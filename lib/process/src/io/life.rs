//! Life of the process that has the I/O threads: started when the first instance needs it, adopted,
//! started again, ended when none does.

use super::table::IoRecord;
use super::{IoProcess, IoService, IoStatus, IoThreads, Order, Setup};
use crate::RESTART;
use crate::{End, Job, PROTOCOL, end_if_alive};
use anyhow::{Context, bail};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::group::Groups;
use nfluid_control::io::{IoModel, IoSettings};
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::{Decision, Exit, Supervisor};
use nfluid_lifecycle::machine;
use nfluid_lifecycle::running::supervisor_time;
use nfluid_lifecycle::table::Instances;
use nfluid_sandbox::cgroup::{Cgroup, Share};
use nfluid_switch::serve::Sleeper;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// The cgroup of the I/O threads, beside those of the instances.
const CGROUP: &str = "io";

/// The subject of events about the process.
const SUBJECT: Option<(Kind, &str)> = Some((Kind::Platform, "io"));

impl IoThreads {
    fn now(&self) -> Millis {
        supervisor_time(self.means.started)
    }

    fn report(&self, kind: EventKind, message: impl Into<String>) {
        self.means.events.record(kind, SUBJECT, message.into());
    }

    /// Changes the settings of the threads, both running and future ones.
    ///
    /// # Errors
    /// The settings are unchanged.
    pub fn change_settings(&mut self, settings: &IoSettings) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.settings, settings.clone());
        let changed = self.put_in_force();
        if changed.is_err() {
            self.settings = before;
            if let Err(again) = self.put_in_force() {
                tracing::warn!("some of the new I/O settings stay: {again:#}");
            }
        }
        changed
    }

    fn put_in_force(&mut self) -> anyhow::Result<()> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        if let Some(cgroup) = &self.cgroup {
            set_cap(cgroup, &self.settings)?;
        }
        let answer = process.order(Order::Set(setup(&self.settings)), &[]);
        self.threads = self.take_answer(answer)?;
        Ok(())
    }

    /// The answer of the process. A process that does not answer is ended, and started again when it is due.
    pub(super) fn take_answer(
        &mut self,
        answer: anyhow::Result<Result<IoStatus, String>>,
    ) -> anyhow::Result<IoStatus> {
        match answer {
            Ok(outcome) => outcome.map_err(anyhow::Error::msg),
            Err(why) => {
                if let Some(process) = self.process.take() {
                    let how = format!("does not answer: {why:#}");
                    // The process has ended already, or is killed here.
                    let _asked = process.end(End::Leave);
                    self.note_end(&how);
                }
                Err(why.context("asking the process of the I/O threads"))
            }
        }
    }

    /// Starts the process, which then makes the calls of all instances that ask for it.
    pub(super) fn start(&mut self, instances: &mut Instances) -> anyhow::Result<()> {
        // Pinned, from where the process opens it.
        self.means.switch.serve()?;
        let paths = &self.means.paths;
        let cgroup = match self.means.cgroups.open(CGROUP) {
            Ok(cgroup) => cgroup,
            Err(_) => self.means.cgroups.create(CGROUP)?,
        };
        set_cap(&cgroup, &self.settings)?;
        let job = Job {
            protocol: PROTOCOL,
            form: self.means.switch.form(),
            pin: paths.pin.clone(),
            socket: paths.socket.clone(),
            log: self.means.log.clone(),
            task: setup(&self.settings),
        };
        let errors = File::create(&paths.errors)
            .with_context(|| format!("making {}", paths.errors.display()))?;
        let process = IoProcess::start(&self.means.platform, &job, errors, |identity| {
            // Whatever it costs counts there, from its first instruction on.
            cgroup.attach(identity.pid)?;
            let process = identity.clone();
            Ok(nfluid_records::save(&IoRecord { process }, &paths.record)?)
        })?;
        self.process = Some(process);
        self.cgroup = Some(cgroup);
        self.last_exit = None;
        self.threads.clear();
        self.supervisor.started(self.now());
        self.entrust_all(instances);
        Ok(())
    }

    /// On a core that others want too, a thread competes like the instances that it works for: with what they were promised,
    /// which of a group's instance is a part of what the group was.
    pub fn weigh(&self, instances: &Instances, groups: &Groups) {
        let Some(cgroup) = &self.cgroup else {
            return;
        };
        let per_mille = (instances.promised_to_served(groups) * 1000.0).ceil() as u32;
        let weight = Share::from_per_mille(per_mille.clamp(1, Share::MAX_PER_MILLE));
        if let Err(error) = weight.and_then(|weight| cgroup.set_weight(weight)) {
            tracing::warn!(%error, "weighing the I/O threads");
        }
    }

    /// Ends the process if no instance needs it.
    pub fn end_idle(&mut self, instances: &Instances) {
        if self.process.is_none() || is_needed(instances) {
            return;
        }
        let Some(process) = self.process.take() else {
            return;
        };
        if let Err(error) = process.end(End::Close) {
            tracing::warn!("ending the I/O threads: {error:#}");
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.threads.clear();
        self.last_exit = None;
        self.supervisor = Supervisor::new(RESTART, self.now());
        let paths = &self.means.paths;
        for file in [&paths.record, &paths.socket, &paths.errors] {
            let _absent = std::fs::remove_file(file);
        }
        if let Some(cgroup) = self.cgroup.take()
            && let Err(error) = cgroup.remove()
        {
            tracing::warn!(%error, "removing the cgroup of the I/O threads");
        }
    }

    /// Takes over the process of an earlier daemon, with the instances that have been adopted; starts
    /// another if it is gone. Instances that are not there any more are taken from it.
    pub fn adopt(&mut self, instances: &mut Instances, desired: &IoSettings) {
        self.settings = desired.clone();
        let paths = &self.means.paths;
        let record = nfluid_records::load::<IoRecord>(&paths.record).ok();
        if let Some(record) = record
            && let Err(why) = self.adopt_process(instances, &record)
        {
            let message = format!("I/O threads not taken over: {why:#}");
            self.report(EventKind::Warning, message);
            self.process = None;
            self.threads.clear();
            let socket = self.means.paths.socket.clone();
            if let Err(error) = end_if_alive::<IoService>(&record.process, &socket, End::Leave) {
                tracing::warn!("ending the former I/O threads: {error:#}");
            }
        }
        if self.process.is_some() {
            self.entrust_all(instances);
        } else if !is_needed(instances) {
            self.cgroup = self.means.cgroups.open(CGROUP).ok();
            self.forget();
        } else {
            match self.start(instances) {
                Ok(()) => self.ring_everybody(instances),
                Err(error) => self.note_end(&format!("could not be started: {error:#}")),
            }
        }
        self.note_served(instances);
        self.end_idle(instances);
    }

    fn adopt_process(
        &mut self,
        instances: &mut Instances,
        record: &IoRecord,
    ) -> anyhow::Result<()> {
        let socket = self.means.paths.socket.clone();
        let process = IoProcess::adopt(&self.means.platform, &record.process, &socket)?;
        self.cgroup = Some(self.means.cgroups.open(CGROUP)?);
        let threads = process.status();
        self.process = Some(process);
        let is_as_wanted = |name: &String, model: IoModel| {
            let running = instances.get(name);
            running.is_some_and(|running| running.spec.io == model)
        };
        let (kept, stale): (IoStatus, IoStatus) = threads
            .into_iter()
            .partition(|(name, thread)| is_as_wanted(name, thread.model));
        self.threads = kept;
        for name in stale.into_keys() {
            self.release(instances, &name);
        }
        self.put_in_force()?;
        self.report(EventKind::Adopted, "I/O threads still run, taken over");
        if self.process.is_none() {
            bail!("it has ended");
        }
        Ok(())
    }

    /// Returns the descriptor that becomes readable when the process ends, and the time of the next start.
    pub fn watched(&self) -> (Option<OwnedFd>, Option<Millis>) {
        let process = self.process.as_ref();
        let pidfd = process.and_then(|process| process.as_fd().try_clone_to_owned().ok());
        (pidfd, self.supervisor.due_at())
    }

    /// Starts the process again after its end. Returns true if the process was started: its cgroup has the kernel's weight then,
    /// see [`IoThreads::weigh`].
    pub fn watch(&mut self, instances: &mut Instances) -> bool {
        if let Some(ended) = self.process.as_mut().and_then(IoProcess::try_wait) {
            self.process = None;
            self.note_end(&ended.to_string());
        }
        if !self.supervisor.is_due(self.now()) {
            return false;
        }
        if !is_needed(instances) {
            self.forget();
            return false;
        }
        match self.start(instances) {
            Ok(()) => {
                self.ring_everybody(instances);
                let what = "I/O threads run again, with what waited in the rings";
                self.report(EventKind::Started, what);
                true
            }
            Err(error) => {
                self.note_end(&format!("could not be started: {error:#}"));
                false
            }
        }
    }

    fn note_end(&mut self, how: &str) {
        self.threads.clear();
        let is_news = self.last_exit.as_deref() != Some(how);
        self.last_exit = Some(how.to_owned());
        let now = self.now();
        let wait = match self.supervisor.ended(now, Exit::Failure) {
            Decision::RestartAt(at) => at.0.saturating_sub(now.0),
            Decision::Stop | Decision::GiveUp { .. } => 0,
        };
        if is_news {
            let message = format!("I/O threads: {how}; again in {wait} ms");
            self.report(EventKind::Crashed, message);
        }
    }

    /// Rings all doorbells. A thread that was killed between delivering a frame and ringing leaves the receiver asleep.
    /// If the pipe was filled by a peer, ringing it wakes no thread: the switch rings as well.
    fn ring_everybody(&self, instances: &Instances) {
        let ringer = self.means.switch.ringer();
        for running in instances.values() {
            if running.workload.ring() {
                continue;
            }
            let Ok(ringer) = &ringer else { continue };
            for port in running.workload.ports() {
                // An error is of a port that is gone, or down.
                let _rung = ringer.ring(port.number, Sleeper::Owner);
            }
        }
    }

    /// Why the I/O threads do not work, if they do not.
    pub fn problem(&self, instances: &Instances) -> Option<String> {
        let is_down = self.process.is_none() && is_needed(instances);
        is_down.then(|| {
            let why = self.last_exit.as_deref().unwrap_or("not started yet");
            format!("I/O threads: {why}")
        })
    }
}

/// Returns true if an instance is to have an I/O thread.
fn is_needed(instances: &Instances) -> bool {
    let mut models = instances.values().map(|running| running.spec.io);
    models.any(IoModel::has_threads)
}

/// The settings, for the process.
pub fn setup(settings: &IoSettings) -> Setup {
    let cpus = machine::cpus().into_iter().collect();
    Setup {
        cores: settings.worker_cores(&cpus),
        idle: settings.idle,
    }
}

fn set_cap(cgroup: &Cgroup, settings: &IoSettings) -> anyhow::Result<()> {
    let cap = settings
        .cap
        .map(|cap| Share::from_per_mille(cap.hundredths().div_ceil(10)));
    cgroup
        .set_cap(cap.transpose()?)
        .context("capping the I/O threads")
}
