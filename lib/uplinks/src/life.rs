//! Creation and removal of an uplink.

use crate::Uplinks;
use crate::record::UplinkRecord;
use crate::running::{RunningUplink, uplink_failed, uplink_spec};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::spec::UplinkSpec as UplinkModel;
use nfluid_control::supervise::Supervisor;
use nfluid_process::uplink::UplinkProcess;
use nfluid_process::{End, Job, PROTOCOL, RESTART};
use nfluid_uplink::{ErrorKind, ReportedError, UplinkSpec, close_dead};
use std::fs::File;

impl Uplinks {
    /// Creates an uplink: takes a port and a pool, and starts the process. If the process cannot be started now, and
    /// the uplink's port of an earlier daemon still exists, the process is started later.
    ///
    /// # Errors
    /// No number is free, or the process cannot do its work.
    pub fn create(&mut self, name: &str, model: &UplinkModel) -> Result<(), PlatformError> {
        let was_left = self.left.contains_key(name);
        let (port, pool) = self.take_numbers(name).ok_or_else(|| {
            PlatformError::new(
                PlatformErrorKind::Exhausted,
                "the platform has no room for more ports",
            )
        })?;
        let mut record = UplinkRecord {
            spec: spec_text(model),
            port,
            pool,
            long: model.long,
            process: None,
        };
        match self.start(name, model, &mut record) {
            Ok(process) => {
                let running = self.running_uplink(model, record, Some(process));
                let (mode, why) = running.mode();
                let message = format!(
                    "on interface {}: {}; {}",
                    model.interface,
                    mode.unwrap_or_default(),
                    why.unwrap_or_default()
                );
                self.running.insert(name.to_owned(), running);
                self.event(EventKind::UplinkUp, name, message);
                self.ask_again(name);
                Ok(())
            }
            // The uplink has worked under an earlier daemon, and its port still does: the process is started again later.
            Err(error) if was_left && self.handles.switch.is_up(port) => {
                let running = self.running_uplink(model, record, None);
                self.running.insert(name.to_owned(), running);
                self.note_failure(name, &format!("could not be started: {error}"));
                Ok(())
            }
            Err(error) => {
                // The port may be one that an earlier daemon has left.
                if let Err(error) = self.clean_up(name, model, &record) {
                    tracing::warn!(uplink = name, %error, "removing its port");
                }
                Err(uplink_failed(&error))
            }
        }
    }

    /// Returns port and pool for an uplink: those that it had, or free ones.
    fn take_numbers(&mut self, name: &str) -> Option<(u32, u32)> {
        if let Some(numbers) = self.left.remove(name) {
            return Some(numbers);
        }
        let port = self.handles.ports.take(1)?;
        let Some(pool) = self.handles.pools.take(1) else {
            self.handles.ports.free(port);
            return None;
        };
        Some((port, pool))
    }

    pub(crate) fn running_uplink(
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
            supervisor: Supervisor::new(RESTART, self.now()),
            last_exit: None,
            reported: (status.vanished, status.returned),
            has_steered: status.steering.is_some(),
            levels: None,
            levels_refused: None,
            left: (0, String::new()),
        }
    }

    pub(crate) fn full_spec(
        &self,
        name: &str,
        model: &UplinkModel,
        record: &UplinkRecord,
    ) -> UplinkSpec {
        let paths = &self.handles.paths;
        UplinkSpec {
            port: record.port,
            pool: record.pool,
            state_dir: Some(paths.changes()),
            pins: Some(paths.pins(name)),
            doorbell: Some(paths.doorbell(name)),
            ..uplink_spec(name, model)
        }
    }

    /// Starts the process of an uplink, and records the process before its first request. If the interface refuses the level
    /// that is wanted, the process begins with plain frames, and its status has them.
    pub(crate) fn start(
        &self,
        name: &str,
        model: &UplinkModel,
        record: &mut UplinkRecord,
    ) -> Result<UplinkProcess, ReportedError> {
        let mut task = self.full_spec(name, model, record);
        if task.offloads {
            task.levels = self.levels.of(name).into();
        }
        let paths = &self.handles.paths;
        let job = Job {
            protocol: PROTOCOL,
            task,
            form: self.handles.switch.form(),
            pin: paths.pin().to_owned(),
            socket: paths.socket(name),
            log: self.handles.log.clone(),
        };
        let errors = paths.errors(name);
        let file = File::create(&errors).map_err(|error| ReportedError {
            kind: ErrorKind::System,
            text: format!("making {}: {error}", errors.display()),
        })?;
        UplinkProcess::start(name, &job, file, |identity| {
            record.process = Some(identity.clone());
            Ok(nfluid_records::save(record, &paths.record(name))?)
        })
    }

    /// Removes an uplink; nothing happens if there is none of this name.
    ///
    /// # Errors
    /// The switch does not give the port back.
    pub fn remove(&mut self, name: &str) -> Result<(), PlatformError> {
        let Some(running) = self.running.remove(name) else {
            return Ok(());
        };
        self.close_one(name, running)
            .map_err(|error| PlatformError::new(PlatformErrorKind::Failed, format!("{error:#}")))
    }

    /// Removes all uplinks, at an orderly end of the daemon.
    pub fn close(&mut self) {
        for (name, uplink) in std::mem::take(&mut self.running) {
            if let Err(error) = self.close_one(&name, uplink) {
                tracing::warn!(uplink = name, %error, "closing the uplink");
            }
        }
    }

    /// Takes everything off the interface, ends the process, and frees the numbers of port and pool.
    fn close_one(&mut self, name: &str, running: RunningUplink) -> anyhow::Result<()> {
        let ended = match running.process {
            Some(process) => process.end(End::Close),
            None => Err(anyhow::anyhow!("it does not run")),
        };
        match ended {
            Ok(()) => self.forget(name, &running.record),
            Err(error) => {
                tracing::debug!(uplink = name, "cleaning up after its process: {error:#}");
                self.clean_up(name, &running.spec, &running.record)?;
            }
        }
        Ok(())
    }

    /// Undoes the changes of a process that did not end in order.
    fn clean_up(
        &mut self,
        name: &str,
        model: &UplinkModel,
        record: &UplinkRecord,
    ) -> anyhow::Result<()> {
        let closed = close_dead(&self.handles.switch, &self.full_spec(name, model, record));
        self.forget(name, record);
        Ok(closed?)
    }

    pub(crate) fn forget(&mut self, name: &str, record: &UplinkRecord) {
        self.handles.ports.free(record.port);
        self.handles.pools.free(record.pool);
        let paths = &self.handles.paths;
        for file in [paths.record(name), paths.socket(name), paths.errors(name)] {
            let _absent = std::fs::remove_file(file);
        }
    }
}

/// Returns a specification in the form in which it is recorded and compared.
pub(crate) fn spec_text(model: &UplinkModel) -> String {
    serde_json::to_string(model).unwrap_or_default()
}
