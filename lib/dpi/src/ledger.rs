//! Counters that survive the death of a process: of every application, of packets without a flow, and of each slot of
//! the fast path up to where its counters have been added to an application's.
//!
//! | numbers | |
//! |---|---|
//! | 0 to 63 | one each, see [`Entry`] |
//! | then 4 for each application | flows, packets, bytes, nothing |
//! | then 2 for each slot | packets, bytes |
//!
//! A single process writes. Other processes may read at any time: a packet that is being counted may be in one sum
//! and not yet in another.

use crate::classifier::{Outside, Total};
use nfluid_evnf::inspector::Words;
use nfluid_evnf::load::Counts;
use std::collections::BTreeMap;

const HEAD: usize = 64;
/// More than nDPI has.
const APPLICATIONS: usize = 1024;
const PER_APPLICATION: usize = 4;
const PER_SLOT: usize = 2;

/// A number that there is once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Entry {
    /// Arrival time of the packet whose copy was taken last: if it is still the first in the ring, it has been counted.
    Last = 0,
    /// Flows that stayed with the classifier because the table was full.
    Refused,
    /// Flows that were looked at again.
    Looked,
    /// Flows, of those, that had become another application.
    Changed,
    /// Flows that are remembered now.
    Flows,
    /// Flows, of those, that the fast path has.
    Fast,
    /// Number of classifiers that have begun with this ledger.
    Begun,
    /// Copies that a classifier has died of, and that no other was shown.
    Skipped,
    /// Packets without a flow, and their bytes: of each of four kinds.
    Outside = 16,
}

/// Packets without a flow (the fields of [`Outside`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Fragments other than the first.
    Fragment,
    /// The headers contradict each other.
    Malformed,
    /// Packets of flows for which the table had no room.
    Full,
}

/// The ledger.
#[derive(Debug)]
pub struct Ledger(Words);

impl Ledger {
    /// Returns the number of words for `slots` slots.
    pub fn words(slots: u32) -> usize {
        HEAD + APPLICATIONS * PER_APPLICATION + slots as usize * PER_SLOT
    }

    /// Makes a ledger that ends with the process, for no slots.
    pub fn own() -> Self {
        Ledger(Words::own(Ledger::words(0)))
    }

    /// Opens a ledger on the words that a predecessor, or another process, counts in.
    pub fn of(words: Words) -> Self {
        Ledger(words)
    }

    /// A number that there is once.
    pub fn get(&self, entry: Entry) -> u64 {
        self.0.get(entry as usize)
    }

    /// Sets an entry.
    pub(crate) fn set(&self, entry: Entry, value: u64) {
        self.0.set(entry as usize, value);
    }

    /// Adds to it.
    pub(crate) fn count(&self, entry: Entry) {
        self.0.add(entry as usize, 1);
    }

    /// Counts a packet that has no flow.
    pub(crate) fn outside(&self, kind: Kind, bytes: u64) {
        let at = Entry::Outside as usize + 2 * kind as usize;
        self.0.add(at, 1);
        self.0.add(at + 1, bytes);
    }

    /// Adds to an application.
    pub(crate) fn add(&self, application: u16, more: Total) {
        let at = HEAD + usize::from(application).min(APPLICATIONS - 1) * PER_APPLICATION;
        self.0.add(at, more.flows);
        self.0.add(at + 1, more.packets);
        self.0.add(at + 2, more.bytes);
    }

    /// A flow was counted under an application and is another's.
    pub(crate) fn move_flow(&self, from: u16, to: u16, counted: Total) {
        if from == to {
            return;
        }
        let minus = Total {
            flows: counted.flows.wrapping_neg(),
            packets: counted.packets.wrapping_neg(),
            bytes: counted.bytes.wrapping_neg(),
        };
        self.add(to, counted);
        self.add(from, minus);
    }

    /// Returns the counts of a slot since the last call for it; `now`: since the table was made.
    pub(crate) fn settle(&self, slot: u32, now: Counts) -> Counts {
        let at = HEAD + APPLICATIONS * PER_APPLICATION + slot as usize * PER_SLOT;
        let since = Counts {
            packets: now.packets.wrapping_sub(self.0.get(at)),
            bytes: now.bytes.wrapping_sub(self.0.get(at + 1)),
        };
        self.0.set(at, now.packets);
        self.0.set(at + 1, now.bytes);
        since
    }

    /// Returns the totals of each application with any, by its number.
    pub fn totals(&self) -> BTreeMap<u16, Total> {
        let total = |application: u16| {
            let at = HEAD + usize::from(application) * PER_APPLICATION;
            Total {
                flows: self.0.get(at),
                packets: self.0.get(at + 1),
                bytes: self.0.get(at + 2),
            }
        };
        let all = (0..APPLICATIONS as u16).map(|application| (application, total(application)));
        all.filter(|(_, total)| *total != Total::default())
            .collect()
    }

    /// Packets without a flow.
    pub fn without_flow(&self) -> Outside {
        let total = |kind: Kind| {
            let at = Entry::Outside as usize + 2 * kind as usize;
            Total {
                flows: 0,
                packets: self.0.get(at),
                bytes: self.0.get(at + 1),
            }
        };
        Outside {
            not_ip: total(Kind::NotIp),
            fragment: total(Kind::Fragment),
            malformed: total(Kind::Malformed),
            full: total(Kind::Full),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_is_moved_is_counted_once() {
        let ledger = Ledger::own();
        let one = Total {
            flows: 1,
            packets: 3,
            bytes: 200,
        };
        ledger.add(0, one);
        ledger.add(0, one);
        ledger.move_flow(0, 91, one);
        ledger.move_flow(91, 91, one);
        assert_eq!(ledger.totals(), BTreeMap::from([(0, one), (91, one)]));
        ledger.move_flow(0, u16::MAX, one);
        assert_eq!(ledger.totals().len(), 2, "beyond the last there is one");
        ledger.outside(Kind::Full, 60);
        assert_eq!(ledger.without_flow().full.bytes, 60);
        assert_eq!(ledger.without_flow().not_ip, Total::default());
    }

    // promise: 15.28
    #[test]
    fn a_slot_gives_what_came_since_the_last_time() {
        let ledger = Ledger::of(Words::own(Ledger::words(2)));
        let counts = |packets| Counts {
            packets,
            bytes: packets * 10,
        };
        assert_eq!(ledger.settle(1, counts(5)), counts(5));
        assert_eq!(ledger.settle(1, counts(7)), counts(2));
        assert_eq!(ledger.settle(0, counts(7)), counts(7));
        assert_eq!(ledger.totals(), BTreeMap::new());
    }
}
