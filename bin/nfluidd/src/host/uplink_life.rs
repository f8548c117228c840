//! Life of the uplinks' processes: started, adopted, started again, ended.

use super::Host;
use super::uplink_record::UplinkRecord;
use super::uplinks::{RunningUplink, uplink_failed, uplink_spec};
use anyhow::{Context, bail};
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::quantity::Millis;
use nfluid_control::spec::UplinkSpec as UplinkModel;
use nfluid_control::supervise::{Decision, Exit, Supervisor};
use nfluid_lifecycle::running::supervisor_time;
use nfluid_process::uplink::{UplinkProcess, UplinkService};
use nfluid_process::{End, Job, PROTOCOL, RESTART, end_if_alive};
use nfluid_uplink::{ErrorKind, ReportedError, UplinkSpec, close_dead};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

impl Host {
    pub(super) fn create_uplink(
        &mut self,
        name: &str,
        model: &UplinkModel,
    ) -> Result<(), PlatformError> {
        let was_left = self.left_uplinks.contains_key(name);
        let (port, pool) = self.uplink_numbers(name).ok_or_else(|| {
            PlatformError::new(
                PlatformErrorKind::Exhausted,
                "the platform has no room for more ports",
            )
        })?;
        let mut record = UplinkRecord {
            spec: spec_text(model),
            port,
            pool,
            process: None,
        };
        match self.start_uplink(name, model, &mut record) {
            Ok(process) => {
                let running = self.running_uplink(model, record, Some(process));
                let (mode, why) = running.mode();
                let message = format!(
                    "on interface {}: {}; {}",
                    model.interface,
                    mode.unwrap_or_default(),
                    why.unwrap_or_default()
                );
                self.uplinks.insert(name.to_owned(), running);
                self.event(EventKind::UplinkUp, Some((Kind::Uplink, name)), message);
                self.steer_again(name);
                Ok(())
            }
            // It has worked under an earlier daemon, and its port still does: it is tried again.
            Err(error) if was_left && self.switch.is_up(port) => {
                let running = self.running_uplink(model, record, None);
                self.uplinks.insert(name.to_owned(), running);
                self.uplink_failed_at(name, &format!("could not be started: {error}"));
                Ok(())
            }
            Err(error) => {
                // Its port may have been one that an earlier daemon left.
                if let Err(error) = self.clean_up_uplink(name, model, &record) {
                    tracing::warn!(uplink = name, %error, "removing its port");
                }
                Err(uplink_failed(&error))
            }
        }
    }

    /// Port and pool for an uplink: those that it had, or free ones.
    fn uplink_numbers(&mut self, name: &str) -> Option<(u32, u32)> {
        if let Some(numbers) = self.left_uplinks.remove(name) {
            return Some(numbers);
        }
        let port = self.port_ids.take(1)?;
        let Some(pool) = self.pool_ids.take(1) else {
            self.port_ids.free(port);
            return None;
        };
        Some((port, pool))
    }

    fn running_uplink(
        &self,
        model: &UplinkModel,
        record: UplinkRecord,
        process: Option<UplinkProcess>,
    ) -> RunningUplink {
        let status = process.as_ref().map(UplinkProcess::status);
        let status = status.unwrap_or_default();
        RunningUplink {
            spec: model.clone(),
            record,
            process,
            supervisor: Supervisor::new(RESTART, supervisor_time(self.started)),
            last_exit: None,
            seen: (status.vanished, status.returned),
            steers: status.steering.is_some(),
            left: (0, String::new()),
        }
    }

    fn full_spec(&self, name: &str, model: &UplinkModel, record: &UplinkRecord) -> UplinkSpec {
        let paths = &self.settings.paths;
        UplinkSpec {
            port: record.port,
            pool: record.pool,
            state_dir: Some(paths.uplinks()),
            pins: Some(paths.uplink_pins(name)),
            ..uplink_spec(name, model)
        }
    }

    /// Starts the process of an uplink, and writes it down.
    fn start_uplink(
        &self,
        name: &str,
        model: &UplinkModel,
        record: &mut UplinkRecord,
    ) -> Result<UplinkProcess, ReportedError> {
        let paths = &self.settings.paths;
        let job = Job {
            protocol: PROTOCOL,
            task: self.full_spec(name, model, record),
            form: self.switch.form(),
            pin: paths.pin().to_owned(),
            socket: paths.uplink_socket(name),
            log: self.settings.log.clone(),
        };
        let errors = paths.uplink_errors(name);
        let file = File::create(&errors).map_err(|error| ReportedError {
            kind: ErrorKind::System,
            text: format!("making {}: {error}", errors.display()),
        })?;
        UplinkProcess::start(name, &job, file, |identity| {
            record.process = Some(identity.clone());
            Ok(nfluid_records::save(record, &paths.uplink_record(name))?)
        })
    }

    pub(super) fn remove_uplink(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(running) = self.uplinks.remove(name) else {
            return Ok(());
        };
        self.close_uplink(name, running)
            .map_err(|error| PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}")))
    }

    /// Takes everything off the interface, ends the process, and gives back what it had.
    pub(super) fn close_uplink(
        &mut self,
        name: &str,
        running: RunningUplink,
    ) -> anyhow::Result<()> {
        let ended = match running.process {
            Some(process) => process.end(End::Close),
            None => Err(anyhow::anyhow!("it does not run")),
        };
        match ended {
            Ok(()) => self.forget_uplink(name, &running.record),
            Err(error) => {
                tracing::debug!(uplink = name, "cleaning up after its process: {error:#}");
                self.clean_up_uplink(name, &running.spec, &running.record)?;
            }
        }
        Ok(())
    }

    /// Undoes what a process has left that did not end in order.
    fn clean_up_uplink(
        &mut self,
        name: &str,
        model: &UplinkModel,
        record: &UplinkRecord,
    ) -> anyhow::Result<()> {
        let closed = close_dead(&self.switch, &self.full_spec(name, model, record));
        self.forget_uplink(name, record);
        Ok(closed?)
    }

    fn forget_uplink(&mut self, name: &str, record: &UplinkRecord) {
        self.port_ids.free(record.port);
        self.pool_ids.free(record.pool);
        let paths = &self.settings.paths;
        for file in [
            paths.uplink_record(name),
            paths.uplink_socket(name),
            paths.uplink_errors(name),
        ] {
            let _absent = std::fs::remove_file(file);
        }
    }

    /// Takes over the processes of uplinks that still run as `desired` asks for, and ends all others.
    /// Returns what was taken over.
    pub(super) fn adopt_uplinks(
        &mut self,
        desired: &BTreeMap<String, UplinkModel>,
    ) -> BTreeMap<String, UplinkModel> {
        let mut adopted = BTreeMap::new();
        for name in nfluid_records::names(&self.settings.paths.uplink_records()) {
            let path = self.settings.paths.uplink_record(&name);
            let record: UplinkRecord = match nfluid_records::load(&path) {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!(uplink = name, %error, "reading {}", path.display());
                    continue;
                }
            };
            let model = desired
                .get(&name)
                .filter(|model| spec_text(model) == record.spec);
            let Some(model) = model else {
                self.end_left_uplink(&name, &record);
                continue;
            };
            self.port_ids.mark(record.port);
            self.pool_ids.mark(record.pool);
            match self.adopt_uplink(&name, model, record) {
                Ok(()) => {
                    adopted.insert(name.clone(), model.clone());
                    self.event(
                        EventKind::Adopted,
                        Some((Kind::Uplink, &name)),
                        "still sends, taken over",
                    );
                }
                Err(why) => self.event(
                    EventKind::Warning,
                    Some((Kind::Uplink, &name)),
                    format!("not taken over, started again: {why:#}"),
                ),
            }
        }
        adopted
    }

    fn adopt_uplink(
        &mut self,
        name: &str,
        model: &UplinkModel,
        record: UplinkRecord,
    ) -> anyhow::Result<()> {
        self.left_uplinks
            .insert(name.to_owned(), (record.port, record.pool));
        let identity = record.process.clone().context("it had no process")?;
        let socket = self.settings.paths.uplink_socket(name);
        if !self.switch.is_up(record.port) {
            // Killed before it had made its port, or somebody has taken the switch away.
            end_if_alive::<UplinkService>(&identity, &socket, End::Leave)?;
            bail!("its port is not there");
        }
        match UplinkProcess::adopt(name, &identity, &socket) {
            Ok(process) => {
                self.left_uplinks.remove(name);
                let running = self.running_uplink(model, record, Some(process));
                self.uplinks.insert(name.to_owned(), running);
                Ok(())
            }
            Err(why) => {
                // Its successor takes over interface and port as they are.
                end_if_alive::<UplinkService>(&identity, &socket, End::Leave)?;
                Err(why)
            }
        }
    }

    /// Ends an uplink that is not wanted as it is.
    fn end_left_uplink(&mut self, name: &str, record: &UplinkRecord) {
        let socket = self.settings.paths.uplink_socket(name);
        if let Some(process) = &record.process
            && let Err(error) = end_if_alive::<UplinkService>(process, &socket, End::Close)
        {
            tracing::warn!(uplink = name, "ending its process: {error:#}");
        }
        let spec = UplinkSpec {
            state_dir: Some(self.settings.paths.uplinks()),
            pins: Some(self.settings.paths.uplink_pins(name)),
            ..UplinkSpec::new(name, "", record.port, record.pool)
        };
        if let Err(error) = close_dead(&self.switch, &spec) {
            tracing::warn!(uplink = name, %error, "removing its port");
        }
        self.forget_uplink(name, record);
        self.event(
            EventKind::Removed,
            Some((Kind::Uplink, name)),
            "left by an earlier daemon",
        );
    }

    /// Descriptors that become readable when a process ends, and when the next restart is due.
    pub(super) fn watched_uplinks(&self) -> (Vec<OwnedFd>, Option<Millis>) {
        let processes = self
            .uplinks
            .values()
            .filter_map(|running| running.process.as_ref());
        let pidfds = processes
            .filter_map(|process| process.as_fd().try_clone_to_owned().ok())
            .collect();
        let due = self
            .uplinks
            .values()
            .filter_map(|running| running.supervisor.due_at())
            .min();
        (pidfds, due)
    }

    /// Starts again what has ended, and tells of interfaces that have vanished or come back since
    /// the last look.
    pub(super) fn watch_uplinks(&mut self) {
        let names: Vec<String> = self.uplinks.keys().cloned().collect();
        for name in &names {
            self.look_after_uplink(name);
        }
        self.tell_of_interfaces();
    }

    fn look_after_uplink(&mut self, name: &str) {
        let now = supervisor_time(self.started);
        let Some(running) = self.uplinks.get_mut(name) else {
            return;
        };
        if let Some(ended) = running.process.as_mut().and_then(UplinkProcess::try_wait) {
            running.process = None;
            self.uplink_failed_at(name, &ended.to_string());
        } else if running.supervisor.is_due(now) {
            self.start_uplink_again(name);
        }
    }

    pub(super) fn uplink_failed_at(&mut self, name: &str, how: &str) {
        let now = supervisor_time(self.started);
        let Some(running) = self.uplinks.get_mut(name) else {
            return;
        };
        let is_news = running.last_exit.as_deref() != Some(how);
        running.last_exit = Some(how.to_owned());
        let decision = running.supervisor.ended(now, Exit::Failure);
        let wait = match decision {
            Decision::RestartAt(at) => at.0.saturating_sub(now.0),
            Decision::Stop | Decision::GiveUp { .. } => 0,
        };
        // An interface that stays away is told once.
        if is_news {
            self.event(
                EventKind::Crashed,
                Some((Kind::Uplink, name)),
                format!("its process: {how}; again in {wait} ms"),
            );
        }
    }

    fn start_uplink_again(&mut self, name: &str) {
        let Some(running) = self.uplinks.get(name) else {
            return;
        };
        let mut record = running.record.clone();
        match self.start_uplink(name, &running.spec, &mut record) {
            Ok(process) => {
                let now = supervisor_time(self.started);
                let status = process.status();
                if let Some(running) = self.uplinks.get_mut(name) {
                    running.record = record;
                    running.process = Some(process);
                    running.steers = false;
                    running.last_exit = None;
                    running.seen = (status.vanished, status.returned);
                    running.supervisor.started(now);
                }
                self.event(
                    EventKind::UplinkUp,
                    Some((Kind::Uplink, name)),
                    "sends again, with what waited in its ring",
                );
                self.steer_again(name);
            }
            Err(error) => {
                self.uplink_failed_at(name, &format!("could not be started: {error}"));
            }
        }
    }

    fn tell_of_interfaces(&mut self) {
        let mut news = Vec::new();
        for (name, running) in &mut self.uplinks {
            let Some(process) = &running.process else {
                continue;
            };
            let status = process.status();
            if status.vanished > running.seen.0 {
                let what = "its interface has vanished";
                news.push((name.clone(), EventKind::UplinkDown, what));
            }
            if status.returned > running.seen.1 {
                news.push((name.clone(), EventKind::UplinkUp, "its interface is back"));
            }
            running.seen = (status.vanished, status.returned);
        }
        for (name, kind, message) in news {
            self.event(kind, Some((Kind::Uplink, &name)), message);
        }
    }
}

/// A specification as it is compared with another daemon's.
fn spec_text(model: &UplinkModel) -> String {
    serde_json::to_string(model).unwrap_or_default()
}
