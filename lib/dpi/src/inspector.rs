//! The fast path and the classifier together: copies of packets of unknown flows go to the classifier; decided flows go
//! to the fast path, as the policy says, and are inspected again periodically.
//!
//! A packet is counted once: by the classifier if it came as a copy, by the fast path if its flow was in the table,
//! as unseen if there was no room for a copy. A packet never waits.

//!
//! [`SlowPath`] is the part outside the kernel, in any process; [`Inspector`] is both together.

mod slow;
mod table;

pub use slow::SlowPath;

use crate::classifier::{Flow, Limits, Outside, Total};
use crate::headers::Key;
use crate::ledger::{Entry, Ledger};
use crate::library::Library;
use crate::policy::Treatment;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::inspector::{Exit, Inspector as FastPath, Sizes};
use nfluid_evnf::load::{Counts, Fast, LoadError};
use std::collections::BTreeMap;
use std::time::Duration;

/// Intervals after which flows in the table are inspected again.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    /// After so many packets.
    pub packets: u64,
    /// Or so long.
    pub after: Duration,
    /// Number of packets of a repeated inspection. If nDPI recognises nothing in them, the flow keeps its application.
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
    /// Limits of the classifier.
    pub limits: Limits,
    /// Sizes of the fast path's tables.
    pub sizes: Sizes,
    /// Repeated inspections.
    pub again: Again,
}

/// Counts of all packets that have passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Counts of each application, by its number. Dropped packets are included.
    pub applications: BTreeMap<u16, Total>,
    /// Without a flow.
    pub outside: Outside,
    /// Not IP.
    pub not_ip: Counts,
    /// Passed without being looked at: no room for a copy.
    pub unseen: Counts,
    /// Flows in the table of the fast path.
    pub fast: usize,
    /// Number of flows that stayed with the classifier because the fast path's table was full.
    pub refused: u64,
    /// Flows that were looked at again, and those of them that had become something else.
    pub again: (u64, u64),
}

impl Accounts {
    /// Returns the counts of a ledger, and of the exits by which packets have left the fast path.
    pub fn of(ledger: &Ledger, exits: &[(Exit, Counts)]) -> Self {
        let of = |exit| {
            let found = exits.iter().find(|(one, _)| *one == exit);
            found.map_or(Counts::default(), |(_, counts)| *counts)
        };
        Accounts {
            applications: ledger.totals(),
            outside: ledger.without_flow(),
            not_ip: of(Exit::NotIp),
            unseen: of(Exit::Unseen),
            fast: usize::try_from(ledger.get(Entry::Fast)).unwrap_or(usize::MAX),
            refused: ledger.get(Entry::Refused),
            again: (ledger.get(Entry::Looked), ledger.get(Entry::Changed)),
        }
    }

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

/// Returns the treatment of a decided flow; called again for each packet of inspected flows.
pub type Policy = Box<dyn FnMut(&Key, &Flow) -> Treatment + Send>;

/// An eDPI. The inspector works during calls of [`Inspector::wait`].
#[derive(Debug)]
pub struct Inspector {
    fast: FastPath,
    slow: SlowPath,
}

/// The sizes of a fast path with the ledger that its classifier needs.
pub fn with_ledger(sizes: Sizes) -> Sizes {
    let words = Ledger::words(sizes.flows.max(1));
    Sizes {
        ledger: u32::try_from(words).unwrap_or(u32::MAX),
        ..sizes
    }
}

impl Inspector {
    /// Loads the fast path without attaching it.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(library: Library, settings: Settings, policy: Policy) -> Result<Self, LoadError> {
        let fast = FastPath::load(with_ledger(settings.sizes))?;
        let slow = SlowPath::new(fast.tables(), library, settings, policy)?;
        Ok(Inspector { fast, slow })
    }

    /// Starts on a fast path that has served other inspectors.
    ///
    /// # Errors
    /// When the kernel refuses access to the tables.
    pub fn on(
        fast: FastPath,
        library: Library,
        settings: Settings,
        policy: Policy,
    ) -> Result<Self, LoadError> {
        let slow = SlowPath::new(fast.tables(), library, settings, policy)?;
        Ok(Inspector { fast, slow })
    }

    /// Returns the fast path alone: the classifier's counters are in its ledger, the classifier's decisions in its
    /// table.
    pub fn leave(self) -> FastPath {
        self.fast
    }

    /// The program: to attach it, to run it on single packets.
    pub fn fast(&mut self) -> &mut Fast {
        self.fast.fast()
    }

    /// The slow path.
    pub fn slow(&mut self) -> &mut SlowPath {
        &mut self.slow
    }

    /// Returns the fast path as a member of a chain; it may be in several chains.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self) -> Result<Member, LoadError> {
        self.fast.member()
    }

    /// Returns the fast path as a member at a hook.
    ///
    /// # Errors
    /// When the kernel refuses, or it has no form for the hook.
    pub fn member_at(&self, hook: Hook) -> Result<Member, LoadError> {
        self.fast.member_at(hook)
    }

    /// Waits for copies of packets and handles them; returns after `patience`, or when some have been handled.
    ///
    /// # Errors
    /// When the kernel refuses access to the fast path's tables.
    pub fn wait(&mut self, patience: Duration) -> Result<(), LoadError> {
        self.slow.wait(patience)
    }

    /// Ends flows that are idle at a time `time` later than now. For tests.
    ///
    /// # Errors
    /// As [`Inspector::wait`].
    pub fn pass_time(&mut self, time: Duration) -> Result<(), LoadError> {
        self.slow.pass_time(time)
    }

    /// Returns the counts so far. Undecided flows count as unknown.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn accounts(&self) -> Result<Accounts, LoadError> {
        self.slow.settle()?;
        Ok(Accounts::of(self.slow.ledger(), &self.fast.exits()?))
    }

    /// Returns the packets per exit of the fast path.
    ///
    /// # Errors
    /// When the kernel does not report the counts.
    pub fn exits(&self) -> Result<Vec<(Exit, Counts)>, LoadError> {
        self.fast.exits()
    }

    /// Decides about all flows now: no packet will come anymore.
    pub fn decide_all(&mut self) {
        self.slow.decide_all();
    }

    /// The name of an application.
    pub fn name(&self, application: u16) -> Option<String> {
        self.slow.ask(|library| library.name(application))
    }
}
