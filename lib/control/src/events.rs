//! The log of the most recent events, and the interface by which the parts of the daemon report events.

use nfluid_api::types::{Event, EventKind, EventPage, Kind};
use std::collections::VecDeque;

/// Maximum length of a message in bytes; parts of a message can be text of an NF.
const MESSAGE_BYTES_MAX: usize = 2048;

/// The object that an event concerns.
pub type Subject<'a> = Option<(Kind, &'a str)>;

/// The recipient of events. An implementation takes no lock of a caller, so that any thread may report while it holds
/// a lock of its own.
pub trait Events: Send + Sync {
    /// Records an event. An event of an instance counts as a change of that instance.
    fn record(&self, kind: EventKind, subject: Subject<'_>, message: String);

    /// Notes a change of one instance, its process or its thread, for the threads that follow instances.
    fn note_change_of(&self, instance: &str);

    /// Notes a change of any number of instances.
    fn note_change(&self);

    /// Records an event of an instance.
    fn of_instance(&self, kind: EventKind, instance: &str, message: String) {
        self.record(kind, Some((Kind::Instance, instance)), message);
    }
}

/// The most recent events.
#[derive(Debug)]
pub struct EventLog {
    events: VecDeque<Event>,
    capacity: usize,
    first_seq: u64,
    next_seq: u64,
}

impl EventLog {
    /// Creates an empty log for `capacity` events (at least one). The number of the first event is `first_seq`, or 1 if
    /// that is 0. If `first_seq` is the time in milliseconds, a client that outlives the daemon never mistakes a new
    /// event for one that it has seen.
    pub fn new(capacity: usize, first_seq: u64) -> Self {
        let first_seq = first_seq.max(1);
        EventLog {
            events: VecDeque::new(),
            capacity: capacity.max(1),
            first_seq,
            next_seq: first_seq,
        }
    }

    /// Adds an event at `time_ms` since 1970 and returns its number. A full log drops its oldest event.
    pub fn record(
        &mut self,
        time_ms: u64,
        kind: EventKind,
        subject: Subject<'_>,
        message: impl Into<String>,
    ) -> u64 {
        if self.events.len() == self.capacity {
            self.events.pop_front();
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let mut message = message.into();
        let end = (0..=MESSAGE_BYTES_MAX.min(message.len()))
            .rev()
            .find(|at| message.is_char_boundary(*at))
            .unwrap_or(0);
        message.truncate(end);
        self.events.push_back(Event {
            seq,
            time_ms,
            kind,
            object: subject.map(|(kind, _)| kind),
            name: subject.map_or_else(String::new, |(_, name)| name.to_owned()),
            message,
        });
        seq
    }

    /// Returns the number of the newest event; 0 if there was none.
    pub fn newest(&self) -> u64 {
        self.events.back().map_or(0, |event| event.seq)
    }

    /// Returns all events after the number `since` that are still in the log.
    pub fn since(&self, since: u64) -> EventPage {
        let oldest = self.events.front().map_or(self.next_seq, |event| event.seq);
        // A number from an earlier daemon does not show which events were missed.
        let missed = if since.saturating_add(1) >= self.first_seq {
            oldest.saturating_sub(since.saturating_add(1))
        } else {
            0
        };
        EventPage {
            events: self
                .events
                .iter()
                .filter(|event| event.seq > since)
                .cloned()
                .collect(),
            next: self.newest().max(since.min(self.next_seq - 1)),
            missed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(count: u64, capacity: usize) -> EventLog {
        let mut log = EventLog::new(capacity, 100);
        for i in 0..count {
            log.record(i, EventKind::Warning, None, format!("event {i}"));
        }
        log
    }

    #[test]
    fn the_oldest_gives_way_and_is_counted_as_missed() {
        let log = log_of(5, 3);
        let page = log.since(100);
        assert_eq!(page.events.len(), 3);
        assert_eq!(page.missed, 1, "101 is gone");
        assert_eq!(page.next, 104);
        assert!(log.since(104).events.is_empty());
    }

    #[test]
    fn a_client_of_an_earlier_daemon_gets_everything_and_misses_nothing() {
        let page = log_of(2, 3).since(7);
        assert_eq!((page.events.len(), page.missed), (2, 0));
    }

    #[test]
    fn an_empty_log_keeps_the_position() {
        let page = EventLog::new(3, 100).since(0);
        assert_eq!((page.events.len(), page.missed, page.next), (0, 0, 0));
    }

    #[test]
    fn following_page_by_page_sees_each_event_once() {
        let mut log = EventLog::new(4, 100);
        let mut position = 0;
        let mut seen = Vec::new();
        for i in 0..20 {
            log.record(i, EventKind::Warning, None, "");
            if i % 3 == 0 {
                let page = log.since(position);
                assert_eq!(page.missed, 0);
                seen.extend(page.events.iter().map(|event| event.seq));
                position = page.next;
            }
        }
        assert_eq!(seen, (100..119).collect::<Vec<_>>());
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let mut log = EventLog::new(1, 1);
        log.record(0, EventKind::Warning, None, "ü".repeat(5000));
        let page = log.since(0);
        assert!(
            page.events
                .iter()
                .all(|e| e.message.len() <= MESSAGE_BYTES_MAX)
        );
    }

    #[test]
    fn the_largest_position_is_no_overflow() {
        let page = log_of(1, 1).since(u64::MAX);
        assert!(page.events.is_empty());
    }
}
