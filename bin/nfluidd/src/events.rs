//! The daemon's events: recorded, logged, and announced to the clients that wait for them.

use nfluid_api::types::{EventKind, EventPage, Kind};
use nfluid_control::changes::{Changed, Changes};
use nfluid_control::events::{EventLog, Events, Subject};
use nfluid_lifecycle::record::now_ms;
use nfluid_lifecycle::services::lock;
use std::sync::Mutex;
use tokio::sync::watch;

/// Number of events that are kept.
const EVENTS: usize = 4096;

/// The latest events and the latest changes of instances. Each method holds the lock for a single step only.
pub struct HostEvents {
    log: Mutex<EventLog>,
    changes: Mutex<Changes>,
    newest: watch::Sender<u64>,
}

impl HostEvents {
    /// Creates an empty log of events.
    pub fn new() -> Self {
        let log = EventLog::new(EVENTS, now_ms());
        HostEvents {
            newest: watch::channel(log.newest()).0,
            log: Mutex::new(log),
            changes: Mutex::default(),
        }
    }

    /// Returns all events with a number above `since` that are still kept.
    pub fn since(&self, since: u64) -> EventPage {
        lock(&self.log).since(since)
    }

    /// Returns a watch on the number of the newest event. The number changes with each event.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns the instances that have changed after the change number `seen`.
    pub fn changes_since(&self, seen: Option<u64>) -> Changed {
        lock(&self.changes).since(seen)
    }
}

impl Events for HostEvents {
    fn record(&self, kind: EventKind, subject: Subject<'_>, message: String) {
        match subject {
            Some((Kind::Instance, name)) => self.note_change_of(name),
            _ => self.note_change(),
        }
        tracing::info!(event = %kind, subject = subject.map(|(_, name)| name), "{message}");
        // Announced under the lock, so that subscribers never see a later number before an earlier one.
        let mut log = lock(&self.log);
        let newest = log.record(now_ms(), kind, subject, message);
        self.newest.send_replace(newest);
    }

    fn note_change_of(&self, instance: &str) {
        lock(&self.changes).note(instance);
    }

    fn note_change(&self) {
        lock(&self.changes).note_all();
    }
}
