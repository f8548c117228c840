//! The slow path: takes copies, queries nDPI, fills the table. A new slow path can continue after any end of the former
//! one.

use super::table::Table;
use super::{Policy, Settings};
use crate::classifier::{Classifier, Seen};
use crate::headers::{Key, Link};
use crate::ledger::{Entry, Ledger};
use crate::library::Library;
use crate::policy::Treatment;
use nfluid_evnf::inspector::{Copied, Copies, Tables};
use nfluid_evnf::load::LoadError;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Copies that are taken before flows are entered and aged.
const AT_ONCE: u32 = 256;
/// Between two looks at the counters of flows in the table.
pub(super) const TICK_MS: u64 = 1000;

/// Between the ring and the table.
struct State {
    classifier: Classifier,
    policy: Policy,
    table: Table,
    ledger: Arc<Ledger>,
    /// Flows that are to go to the table, or out of it, or on.
    due: HashSet<Key>,
    taken: u32,
    predecessor: Predecessor,
}

/// The time of the packet whose copy a predecessor has taken last; that copy may have killed the predecessor.
struct Predecessor(Option<u64>);

impl Predecessor {
    /// Returns true if the predecessor has died of this copy: then the copy is the first one in the ring still.
    fn died_of(&mut self, time_ns: u64) -> bool {
        self.0.take() == Some(time_ns)
    }
}

impl State {
    /// Takes a copy; false: something is due.
    fn take(&mut self, copied: Copied<'_>) -> bool {
        // The packet was counted, and it would kill the next nDPI as it killed the last one.
        if self.predecessor.died_of(copied.time_ns) {
            self.ledger.count(Entry::Skipped);
            return true;
        }
        self.taken += 1;
        self.ledger.set(Entry::Last, copied.time_ns);
        if copied.counted {
            let again = self.table.look_again(&mut self.classifier, &copied);
            self.due.extend(again);
        } else {
            self.hear(&copied);
        }
        self.due.is_empty() && self.taken < AT_ONCE
    }

    fn hear(&mut self, copied: &Copied<'_>) {
        let ms = copied.time_ns / 1_000_000;
        let length = u64::from(copied.length);
        let seen = self
            .classifier
            .packet(copied.bytes, Link::Ethernet, length, ms);
        let Seen::Flow(key, true) = seen else {
            return;
        };
        let Some(flow) = self.classifier.flow(&key) else {
            return;
        };
        if flow.is_decided()
            && !self.table.has(&key)
            && (self.policy)(&key, flow) != Treatment::Inspect
        {
            self.due.insert(key);
        }
    }

    fn note_sizes(&self) {
        let flows = self.classifier.flows() as u64;
        self.ledger.set(Entry::Flows, flows);
        self.ledger.set(Entry::Fast, self.table.flows() as u64);
    }
}

/// A classifier with the tables of a fast path. The slow path works during calls of [`SlowPath::wait`].
pub struct SlowPath {
    /// Before the state that it hands copies to.
    copies: Copies<'static>,
    state: Arc<Mutex<State>>,
    ledger: Arc<Ledger>,
    ticked_ms: u64,
}

impl std::fmt::Debug for SlowPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlowPath")
    }
}

impl SlowPath {
    /// Begins with the state of a predecessor: flows in the table stay there, and no packet is counted twice. Flows
    /// without a decision begin anew.
    ///
    /// # Errors
    /// When the kernel refuses access to the tables.
    pub fn new(
        tables: &Tables,
        library: Library,
        settings: Settings,
        policy: Policy,
    ) -> Result<Self, LoadError> {
        let ledger = Arc::new(Ledger::of(tables.ledger()?));
        let mut classifier = Classifier::counting(library, settings.limits, Arc::clone(&ledger));
        let own = tables.try_clone()?;
        let table = Table::new(own, Arc::clone(&ledger), settings.again, &mut classifier)?;
        let last = (ledger.get(Entry::Begun) > 0).then(|| ledger.get(Entry::Last));
        ledger.count(Entry::Begun);
        let mut state = State {
            classifier,
            policy,
            table,
            ledger: Arc::clone(&ledger),
            due: HashSet::new(),
            taken: 0,
            predecessor: Predecessor(last),
        };
        let policy = &mut state.policy;
        state.table.decide_again(&mut state.classifier, policy)?;
        state.note_sizes();
        let state = Arc::new(Mutex::new(state));
        let own = Arc::clone(&state);
        let copies = tables.copies(move |copied| locked(&own).take(copied))?;
        Ok(SlowPath {
            copies,
            state,
            ledger,
            ticked_ms: now_ms(),
        })
    }

    /// Waits for copies of packets and handles them; returns after `patience`, or when some have been handled.
    ///
    /// # Errors
    /// When the kernel refuses access to the fast path's tables.
    pub fn wait(&mut self, patience: Duration) -> Result<(), LoadError> {
        self.copies.wait(patience);
        let state = &mut *locked(&self.state);
        state.taken = 0;
        for key in std::mem::take(&mut state.due) {
            let State {
                classifier,
                policy,
                table,
                ..
            } = state;
            table.treat(classifier, &key, policy)?;
        }
        let now = now_ms();
        if now >= self.ticked_ms + TICK_MS {
            self.ticked_ms = now;
            state.table.tick(&mut state.classifier, now)?;
        }
        state.note_sizes();
        Ok(())
    }

    /// Ends flows that are idle at a time `time` later than now. For tests.
    ///
    /// # Errors
    /// As [`SlowPath::wait`].
    pub fn pass_time(&mut self, time: Duration) -> Result<(), LoadError> {
        let later = now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
        let state = &mut *locked(&self.state);
        state.table.tick(&mut state.classifier, later)?;
        state.note_sizes();
        Ok(())
    }

    /// Puts another policy in force, for flows that are in the table as well.
    ///
    /// # Errors
    /// As [`SlowPath::wait`].
    pub fn change_policy(&mut self, policy: Policy) -> Result<(), LoadError> {
        let State {
            classifier,
            policy: now,
            table,
            ..
        } = &mut *locked(&self.state);
        *now = policy;
        table.decide_again(classifier, now)
    }

    /// Other limits from now on: how many flows are remembered, how long, and when they are looked at again.
    pub fn change_limits(&mut self, settings: Settings) {
        let state = &mut *locked(&self.state);
        state.classifier.set_limits(settings.limits);
        state.table.set_again(settings.again);
    }

    /// Updates the ledger by the fast path's counters.
    ///
    /// # Errors
    /// As [`SlowPath::wait`].
    pub fn settle(&self) -> Result<(), LoadError> {
        let state = &mut *locked(&self.state);
        state.table.settle(&mut state.classifier)?;
        state.note_sizes();
        Ok(())
    }

    /// Returns the ledger with the counts.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Decides about all flows now: no packet will come anymore.
    pub fn decide_all(&mut self) {
        locked(&self.state).classifier.decide_all();
    }

    /// Asks nDPI something: names.
    pub fn ask<T>(&self, question: impl FnOnce(&Library) -> T) -> T {
        question(locked(&self.state).classifier.library())
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time of the fast path's clock.
pub(super) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::Predecessor;

    // promise: 15.28
    #[test]
    fn only_the_packet_that_a_predecessor_died_of_is_passed_over() {
        let mut died = Predecessor(Some(7));
        assert!(died.died_of(7));
        assert!(!died.died_of(7), "the next one of the same time is another");
        let mut ended = Predecessor(Some(7));
        assert!(!ended.died_of(8));
        assert!(!ended.died_of(7));
        assert!(!Predecessor(None).died_of(0), "there was none");
    }
}
