//! The fast path and the classifier together: copies of packets that the fast path does not know go to the classifier; flows that it
//! has decided about go to the fast path, as the policy says, and are looked at again from time to time.
//!
//! A packet is counted once: by the classifier if it came as a copy, by the fast path if its flow was in the table, as unseen if
//! there was no room for a copy. It never waits.

mod table;

use crate::classifier::{Classifier, Flow, Limits, Outside, Seen, Total};
use crate::headers::{Key, Link};
use crate::library::Library;
use crate::policy::Treatment;
use nfluid_evnf::chain::Member;
use nfluid_evnf::inspector::{Copied, Copies, Exit, Inspector as FastPath, Sizes};
use nfluid_evnf::load::{Counts, Fast, LoadError};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use table::Table;

/// Copies that are taken before flows are entered and aged.
const AT_ONCE: u32 = 256;
/// Between two looks at the counters of flows in the table.
const TICK_MS: u64 = 1000;

/// When flows in the table are looked at again.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    /// After so many packets.
    pub packets: u64,
    /// Or so long.
    pub after: Duration,
    /// Packets that are looked at then. If nDPI recognises nothing in them, the flow stays what it was.
    pub look: u32,
}

impl Default for Again {
    fn default() -> Self {
        Again {
            packets: 1_000_000,
            after: Duration::from_secs(60),
            look: 16,
        }
    }
}

/// All that can be set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Of the classifier.
    pub limits: Limits,
    /// Of the fast path.
    pub sizes: Sizes,
    /// When flows are looked at again.
    pub again: Again,
}

/// What was counted, of everything that has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Of each application, by its number. Those that were dropped are among them.
    pub applications: BTreeMap<u16, Total>,
    /// Without a flow.
    pub outside: Outside,
    /// Not IP.
    pub not_ip: Counts,
    /// Passed without being looked at: no room for a copy.
    pub unseen: Counts,
    /// Flows in the table of the fast path.
    pub fast: usize,
    /// How often a flow stayed with the classifier because that table was full.
    pub refused: u64,
    /// Flows that were looked at again, and those of them that had become something else.
    pub again: (u64, u64),
}

impl Accounts {
    /// Packets and bytes of all of these.
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        let mut add = |packets, bytes| {
            sum.packets += packets;
            sum.bytes += bytes;
        };
        let Outside {
            not_ip,
            fragment,
            malformed,
            full,
        } = self.outside;
        let outside = [not_ip, fragment, malformed, full];
        for total in self.applications.values().chain(&outside) {
            add(total.packets, total.bytes);
        }
        for counts in [self.not_ip, self.unseen] {
            add(counts.packets, counts.bytes);
        }
        sum
    }
}

/// Says what becomes of a flow that is decided; asked again with each of its packets for those that are inspected.
pub type Policy = Box<dyn FnMut(&Key, &Flow) -> Treatment + Send>;

/// Between the ring and the table.
struct State {
    classifier: Classifier,
    policy: Policy,
    table: Table,
    /// Flows that are to go to the table, or out of it, or on.
    due: HashSet<Key>,
    taken: u32,
}

impl State {
    /// Takes a copy; false: something is due.
    fn take(&mut self, copied: Copied<'_>) -> bool {
        self.taken += 1;
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
}

/// An eDPI. It works while it is waited for ([`Inspector::wait`]).
pub struct Inspector {
    fast: FastPath,
    copies: Copies<'static>,
    state: Arc<Mutex<State>>,
    ticked_ms: u64,
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inspector").field(&self.fast).finish()
    }
}

impl Inspector {
    /// Loads the fast path; it is not yet attached.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn load(library: Library, settings: Settings, policy: Policy) -> Result<Self, LoadError> {
        let fast = FastPath::load(settings.sizes)?;
        let state = Arc::new(Mutex::new(State {
            classifier: Classifier::new(library, settings.limits),
            policy,
            table: Table::new(settings.sizes.flows, settings.again),
            due: HashSet::new(),
            taken: 0,
        }));
        let own = Arc::clone(&state);
        let copies = fast.copies(move |copied| locked(&own).take(copied))?;
        Ok(Inspector {
            fast,
            copies,
            state,
            ticked_ms: now_ms(),
        })
    }

    /// The program: to attach it, to run it on single packets.
    pub fn fast(&mut self) -> &mut Fast {
        self.fast.fast()
    }

    /// Its fast path as a member of a chain; it may be in several.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        self.fast.member()
    }

    /// Waits for copies of packets and handles them; returns after `patience`, or when some have been handled.
    ///
    /// # Errors
    /// When the kernel does not let it work with the fast path's tables.
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
            table.treat(&self.fast, classifier, &key, policy)?;
        }
        let now = now_ms();
        if now >= self.ticked_ms + TICK_MS {
            self.ticked_ms = now;
            let State {
                classifier, table, ..
            } = state;
            table.tick(&self.fast, classifier, now)?;
        }
        Ok(())
    }

    /// Ends flows that have been idle, as if it were so much later. For tests.
    ///
    /// # Errors
    /// As [`Inspector::wait`].
    pub fn pass_time(&mut self, time: Duration) -> Result<(), LoadError> {
        let later = now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
        let State {
            classifier, table, ..
        } = &mut *locked(&self.state);
        table.tick(&self.fast, classifier, later)
    }

    /// What was counted so far. Flows that are not decided are unknown.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn accounts(&self) -> Result<Accounts, LoadError> {
        let State {
            classifier, table, ..
        } = &mut *locked(&self.state);
        table.settle(&self.fast, classifier)?;
        let exits = self.fast.exits()?;
        let of = |exit| {
            let found = exits.iter().find(|(one, _)| *one == exit);
            found.map_or(Counts::default(), |(_, counts)| *counts)
        };
        Ok(Accounts {
            applications: classifier.totals(),
            outside: classifier.outside(),
            not_ip: of(Exit::NotIp),
            unseen: of(Exit::Unseen),
            fast: table.flows(),
            refused: table.refused(),
            again: table.again(),
        })
    }

    /// How packets have left the fast path.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.exits()
    }

    /// Decides about all flows now: no packet will come anymore.
    pub fn decide_all(&mut self) {
        locked(&self.state).classifier.decide_all();
    }

    /// The name of an application.
    pub fn name(&self, application: u16) -> Option<String> {
        locked(&self.state).classifier.library().name(application)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of the clock that the fast path reads.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}
