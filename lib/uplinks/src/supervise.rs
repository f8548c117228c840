//! Supervision of the uplinks' processes and interfaces.

use crate::Uplinks;
use nfluid_api::types::EventKind;
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::{Decision, Exit};
use nfluid_process::uplink::UplinkProcess;
use std::os::fd::{AsFd, OwnedFd};

impl Uplinks {
    /// Returns descriptors that become readable when a process ends, and the time of the next restart.
    pub fn watched(&self) -> (Vec<OwnedFd>, Option<Millis>) {
        let processes = self
            .running
            .values()
            .filter_map(|running| running.process.as_ref());
        let pidfds = processes
            .filter_map(|process| process.as_fd().try_clone_to_owned().ok())
            .collect();
        let due = self
            .running
            .values()
            .filter_map(|running| running.supervisor.due_at())
            .min();
        (pidfds, due)
    }

    /// Starts processes again that have ended and whose restart is due. Reports interfaces that have vanished or returned since
    /// the last call. Returns the uplink whose process was started again, if one was: its NIC classifies nothing yet. The others
    /// that are due come with the next calls.
    pub fn watch(&mut self) -> Option<String> {
        let names: Vec<String> = self.running.keys().cloned().collect();
        let started = names.into_iter().find(|name| self.look_after(name));
        self.report_interfaces();
        if !self.has_settled_levels() {
            self.settle_levels();
        }
        started
    }

    /// Returns true if the process was started again.
    fn look_after(&mut self, name: &str) -> bool {
        let now = self.now();
        let Some(running) = self.running.get_mut(name) else {
            return false;
        };
        if let Some(ended) = running.process.as_mut().and_then(UplinkProcess::try_wait) {
            running.process = None;
            self.note_failure(name, &ended.to_string());
            return false;
        }
        running.supervisor.is_due(now) && self.start_again(name)
    }

    /// Notes that the process has ended or could not be started, and plans a restart.
    pub(crate) fn note_failure(&mut self, name: &str, how: &str) {
        let now = self.now();
        let Some(running) = self.running.get_mut(name) else {
            return;
        };
        let is_new = running.last_exit.as_deref() != Some(how);
        running.last_exit = Some(how.to_owned());
        let decision = running.supervisor.ended(now, Exit::Failure);
        let wait = match decision {
            Decision::RestartAt(at) => at.0.saturating_sub(now.0),
            Decision::Stop | Decision::GiveUp { .. } => 0,
        };
        // An interface that stays away is reported once.
        if is_new {
            self.event(
                EventKind::Crashed,
                name,
                format!("its process: {how}; again in {wait} ms"),
            );
        }
    }

    fn start_again(&mut self, name: &str) -> bool {
        let Some(running) = self.running.get(name) else {
            return false;
        };
        let mut record = running.record.clone();
        match self.start(name, &running.spec, &mut record) {
            Ok(process) => {
                let now = self.now();
                let status = process.status();
                if let Some(running) = self.running.get_mut(name) {
                    running.record = record;
                    running.process = Some(process);
                    running.has_steered = false;
                    running.last_exit = None;
                    running.reported = (status.vanished, status.returned);
                    running.supervisor.started(now);
                }
                self.event(
                    EventKind::UplinkUp,
                    name,
                    "sends again, with what waited in its ring",
                );
                self.ask_again(name);
                true
            }
            Err(error) => {
                self.note_failure(name, &format!("could not be started: {error}"));
                false
            }
        }
    }

    fn report_interfaces(&mut self) {
        let mut found = Vec::new();
        for (name, running) in &mut self.running {
            let Some(process) = &running.process else {
                continue;
            };
            let status = process.status();
            if status.vanished > running.reported.0 {
                let what = "its interface has vanished";
                found.push((name.clone(), EventKind::UplinkDown, what));
            }
            if status.returned > running.reported.1 {
                found.push((name.clone(), EventKind::UplinkUp, "its interface is back"));
            }
            running.reported = (status.vanished, status.returned);
        }
        for (name, kind, message) in found {
            self.event(kind, &name, message);
            self.ask_again(&name);
        }
    }
}
