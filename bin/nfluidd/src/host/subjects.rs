//! What the meter of costs has to know about instances.

use super::Host;
use crate::congestion::subject::Subject;
use nfluid_control::changes::Changed;
use nfluid_control::events::Events as _;
use nfluid_control::model::PortRef;
use nfluid_lifecycle::running::Running;

impl Host {
    /// Which instances are others than when `seen` was the newest change.
    pub fn changes_since(&self, seen: Option<u64>) -> Changed {
        self.events.changes_since(seen)
    }

    /// Notes that an instance, its process or its thread is another than before.
    pub(super) fn note_change_of(&self, name: &str) {
        self.events.note_change_of(name);
    }

    /// Notes that all of them may be.
    pub(super) fn note_change(&self) {
        self.events.note_change();
    }

    /// Every instance, for the meter.
    pub fn subjects(&self) -> Vec<Subject> {
        let all = self.instances.iter();
        all.map(|(name, running)| self.subject(name, running))
            .collect()
    }

    /// One of them, if it is there.
    pub fn subject_of(&self, name: &str) -> Option<Subject> {
        let running = self.instances.get(name)?;
        Some(self.subject(name, running))
    }

    fn subject(&self, name: &str, running: &Running) -> Subject {
        let ports = running.spec.ports.iter().filter_map(|port| {
            let port = PortRef::instance(name, &port.name);
            let ids = self.queue_ids(&port)?;
            Some((port, ids))
        });
        Subject {
            name: name.to_owned(),
            program: running.spec.program.clone(),
            ports: ports.collect(),
            clock: running.workload.cpu_clock(),
            pid: running.pid(),
            io: self.io.own_thread(name),
        }
    }
}
