//! Life of the process that has the I/O threads: started when the first instance needs it, adopted,
//! started again, ended when none does.

use super::Host;
use super::io_side::IoRecord;
use crate::facts::ThisHost;
use anyhow::{Context, bail};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::host::Host as _;
use nfluid_control::io::{IoModel, IoSettings};
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::{Decision, Exit, Supervisor};
use nfluid_instance::doorbell;
use nfluid_instance::running::{Running, supervisor_time};
use nfluid_process::RESTART;
use nfluid_process::io::{IoProcess, IoService, IoStatus, Order, Setup};
use nfluid_process::{End, Job, PROTOCOL, end_if_alive};
use nfluid_sandbox::cgroup::{Cgroup, Share};
use nfluid_switch::serve::Sleeper;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// The cgroup of the I/O threads, beside those of the instances.
const CGROUP: &str = "io";

/// What events about the process are about.
const SUBJECT: Option<(Kind, &str)> = Some((Kind::Platform, "io"));

impl Host {
    /// Changes how the threads are, those that run and those to come.
    ///
    /// # Errors
    /// They are as before.
    pub(super) fn change_io_settings(&mut self, settings: &IoSettings) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.io.settings, settings.clone());
        let changed = self.put_io_settings_in_force();
        if changed.is_err() {
            self.io.settings = before;
            if let Err(again) = self.put_io_settings_in_force() {
                tracing::warn!("some of the new I/O settings stay: {again:#}");
            }
        }
        changed
    }

    fn put_io_settings_in_force(&mut self) -> anyhow::Result<()> {
        let Some(process) = &self.io.process else {
            return Ok(());
        };
        if let Some(cgroup) = &self.io.cgroup {
            set_cap(cgroup, &self.io.settings)?;
        }
        let answer = process.order(Order::Set(setup(&self.io.settings)), &[]);
        self.io.threads = self.heard(answer)?;
        Ok(())
    }

    /// What the process has answered. One that does not is put down, and started again when it is due.
    pub(super) fn heard(
        &mut self,
        answer: anyhow::Result<Result<IoStatus, String>>,
    ) -> anyhow::Result<IoStatus> {
        match answer {
            Ok(outcome) => outcome.map_err(anyhow::Error::msg),
            Err(why) => {
                if let Some(process) = self.io.process.take() {
                    let how = format!("does not answer: {why:#}");
                    // It has ended, or is killed.
                    let _asked = process.end(End::Leave);
                    self.io_ended(&how);
                }
                Err(why.context("asking the process of the I/O threads"))
            }
        }
    }

    /// Starts the process, which then makes the calls of all instances that ask for it.
    pub(super) fn start_io(&mut self) -> anyhow::Result<()> {
        // Pinned, from where the process opens it.
        self.switch.serve()?;
        let paths = &self.settings.paths;
        let cgroup = match self.maker.cgroups.open(CGROUP) {
            Ok(cgroup) => cgroup,
            Err(_) => self.maker.cgroups.create(CGROUP)?,
        };
        set_cap(&cgroup, &self.io.settings)?;
        let job = Job {
            protocol: PROTOCOL,
            form: self.switch.form(),
            pin: paths.pin().to_owned(),
            socket: paths.io_socket(),
            log: self.settings.log.clone(),
            task: setup(&self.io.settings),
        };
        let errors = File::create(paths.io_errors())
            .with_context(|| format!("making {}", paths.io_errors().display()))?;
        let process = IoProcess::start(&self.settings.name, &job, errors, |identity| {
            // Whatever it costs counts there, from its first instruction on.
            cgroup.attach(identity.pid)?;
            let process = identity.clone();
            Ok(nfluid_records::save(
                &IoRecord { process },
                &paths.io_record(),
            )?)
        })?;
        self.io.process = Some(process);
        self.io.cgroup = Some(cgroup);
        self.io.last_exit = None;
        self.io.threads.clear();
        self.io.supervisor.started(supervisor_time(self.started));
        self.entrust_all();
        Ok(())
    }

    /// On a core that others want too, a thread competes like the instances that it works for: with what they were promised,
    /// which of a group's instance is a part of what the group was.
    pub(super) fn weigh_io(&self) {
        let Some(cgroup) = &self.io.cgroup else {
            return;
        };
        let per_mille = (self.promised_to_served() * 1000.0).ceil() as u32;
        let weight = Share::from_per_mille(per_mille.clamp(1, Share::MAX_PER_MILLE));
        if let Err(error) = weight.and_then(|weight| cgroup.set_weight(weight)) {
            tracing::warn!(%error, "weighing the I/O threads");
        }
    }

    /// Ends the process if no instance needs it.
    pub(super) fn end_idle_io(&mut self) {
        if self.io.process.is_none() || self.io_is_needed() {
            return;
        }
        let Some(process) = self.io.process.take() else {
            return;
        };
        if let Err(error) = process.end(End::Close) {
            tracing::warn!("ending the I/O threads: {error:#}");
        }
        self.forget_io();
    }

    fn io_is_needed(&self) -> bool {
        let mut models = self.instances.values().map(|running| running.spec.io);
        models.any(IoModel::has_threads)
    }

    fn forget_io(&mut self) {
        self.io.threads.clear();
        self.io.last_exit = None;
        self.io.supervisor = Supervisor::new(RESTART, supervisor_time(self.started));
        let paths = &self.settings.paths;
        for file in [paths.io_record(), paths.io_socket(), paths.io_errors()] {
            let _absent = std::fs::remove_file(file);
        }
        if let Some(cgroup) = self.io.cgroup.take()
            && let Err(error) = cgroup.remove()
        {
            tracing::warn!(%error, "removing the cgroup of the I/O threads");
        }
    }

    /// Takes over the process of an earlier daemon, with the instances that have been adopted; starts
    /// another if it is gone. Instances that are not there any more are taken from it.
    pub(super) fn adopt_io(&mut self, desired: &IoSettings) {
        self.io.settings = desired.clone();
        let paths = &self.settings.paths;
        let record = nfluid_records::load::<IoRecord>(&paths.io_record()).ok();
        if let Some(record) = record
            && let Err(why) = self.adopt_io_process(&record)
        {
            let message = format!("I/O threads not taken over: {why:#}");
            self.event(EventKind::Warning, SUBJECT, message);
            self.io.process = None;
            self.io.threads.clear();
            let socket = self.settings.paths.io_socket();
            if let Err(error) = end_if_alive::<IoService>(&record.process, &socket, End::Leave) {
                tracing::warn!("ending the former I/O threads: {error:#}");
            }
        }
        if self.io.process.is_some() {
            self.entrust_all();
        } else if !self.io_is_needed() {
            self.io.cgroup = self.maker.cgroups.open(CGROUP).ok();
            self.forget_io();
        } else {
            match self.start_io() {
                Ok(()) => self.ring_everybody(),
                Err(error) => self.io_ended(&format!("could not be started: {error:#}")),
            }
        }
        self.note_served();
        self.end_idle_io();
    }

    fn adopt_io_process(&mut self, record: &IoRecord) -> anyhow::Result<()> {
        let socket = self.settings.paths.io_socket();
        let process = IoProcess::adopt(&self.settings.name, &record.process, &socket)?;
        self.io.cgroup = Some(self.maker.cgroups.open(CGROUP)?);
        let threads = process.status();
        self.io.process = Some(process);
        let is_as_wanted = |name: &String, model: IoModel| {
            let running = self.instances.get(name);
            running.is_some_and(|running| running.spec.io == model)
        };
        let (kept, stale): (IoStatus, IoStatus) = threads
            .into_iter()
            .partition(|(name, thread)| is_as_wanted(name, thread.model));
        self.io.threads = kept;
        for name in stale.into_keys() {
            self.ask_to_leave(&name);
        }
        self.put_io_settings_in_force()?;
        self.event(
            EventKind::Adopted,
            SUBJECT,
            "I/O threads still run, taken over",
        );
        if self.io.process.is_none() {
            bail!("it has ended");
        }
        Ok(())
    }

    /// What becomes readable when the process ends, and when the next start is due.
    pub(super) fn watched_io(&self) -> (Option<OwnedFd>, Option<Millis>) {
        let process = self.io.process.as_ref();
        let pidfd = process.and_then(|process| process.as_fd().try_clone_to_owned().ok());
        (pidfd, self.io.supervisor.due_at())
    }

    /// Starts the process again after its end.
    pub(super) fn watch_io(&mut self) {
        if let Some(ended) = self.io.process.as_mut().and_then(IoProcess::try_wait) {
            self.io.process = None;
            self.io_ended(&ended.to_string());
        }
        if !self.io.supervisor.is_due(supervisor_time(self.started)) {
            return;
        }
        if !self.io_is_needed() {
            self.forget_io();
            return;
        }
        match self.start_io() {
            Ok(()) => {
                self.ring_everybody();
                let what = "I/O threads run again, with what waited in the rings";
                self.event(EventKind::Started, SUBJECT, what);
            }
            Err(error) => self.io_ended(&format!("could not be started: {error:#}")),
        }
    }

    fn io_ended(&mut self, how: &str) {
        self.io.threads.clear();
        let is_news = self.io.last_exit.as_deref() != Some(how);
        self.io.last_exit = Some(how.to_owned());
        let now = supervisor_time(self.started);
        let wait = match self.io.supervisor.ended(now, Exit::Failure) {
            Decision::RestartAt(at) => at.0.saturating_sub(now.0),
            Decision::Stop | Decision::GiveUp { .. } => 0,
        };
        if is_news {
            let message = format!("I/O threads: {how}; again in {wait} ms");
            self.event(EventKind::Crashed, SUBJECT, message);
        }
    }

    /// A thread that was killed between a frame and its ring has let somebody sleep.
    fn ring_everybody(&self) {
        for (name, running) in &self.instances {
            let Ok(bell) = doorbell::open_ringing(&self.settings.paths.bell(name)) else {
                continue;
            };
            // A full pipe was filled by a peer, and would wake nobody.
            if rustix::io::write(&bell, &[1]) == Err(rustix::io::Errno::AGAIN) {
                self.ring_by_switch(running);
            }
        }
    }

    fn ring_by_switch(&self, running: &Running) {
        let Ok(ringer) = self.switch.ringer() else {
            return;
        };
        for port in &running.memory.ports {
            // An error is of a port that is gone, or down.
            let _rung = ringer.ring(port.spec.id, Sleeper::Owner);
        }
    }

    /// Why the I/O threads do not work, if they do not.
    pub fn io_problem(&self) -> Option<String> {
        let is_down = self.io.process.is_none() && self.io_is_needed();
        is_down.then(|| {
            let why = self.io.last_exit.as_deref().unwrap_or("not started yet");
            format!("I/O threads: {why}")
        })
    }
}

/// What the process is told of the settings.
pub fn setup(settings: &IoSettings) -> Setup {
    let cpus = ThisHost.cpus().into_iter().collect();
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
