//! Facts about instances that the congestion thread needs.

use super::{Host, Shared, lock};
use crate::events::HostEvents;
use nfluid_congestion::thread::{Subject, Subjects};
use nfluid_control::changes::Changed;
use nfluid_control::events::Events as _;
use nfluid_control::model::PortRef;
use nfluid_lifecycle::running::Running;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The instances of the host, for the congestion thread.
struct HostSubjects {
    host: Shared,
    events: Arc<HostEvents>,
}

impl Subjects for HostSubjects {
    fn changes_since(&self, seen: Option<u64>) -> Changed {
        self.events.changes_since(seen)
    }

    fn all(&self) -> Vec<Subject> {
        let host = lock(&self.host);
        let all = host.instances.iter();
        all.map(|(name, running)| host.subject(name, running))
            .collect()
    }

    fn named(&self, names: &BTreeSet<String>) -> Vec<(String, Option<Subject>)> {
        let host = lock(&self.host);
        let names = names.iter();
        names
            .map(|name| {
                let running = host.instances.get(name);
                let subject = running.map(|running| host.subject(name, running));
                (name.clone(), subject)
            })
            .collect()
    }
}

/// Starts the congestion thread.
///
/// # Errors
/// The kernel refuses another thread.
pub fn follow_congestion(host: &Shared) -> std::io::Result<()> {
    let locked = lock(host);
    let subjects = HostSubjects {
        host: Arc::clone(host),
        events: locked.events(),
    };
    let (switch, state) = (Arc::clone(&locked.switch), locked.congestion());
    drop(locked);
    nfluid_congestion::thread::start(Box::new(subjects), switch, state)
}

impl Host {
    /// Notes that an instance, its process or its thread has been replaced.
    pub(super) fn note_change_of(&self, name: &str) {
        self.events.note_change_of(name);
    }

    /// Notes that any instance may have been replaced.
    pub(super) fn note_change(&self) {
        self.events.note_change();
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
