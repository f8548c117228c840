//! The thread: when it looks.

use super::figures::Congestion;
use super::following::Following;
use super::roll::Roll;
use crate::host::{Shared, lock};
use anyhow::Context;
use nfluid_control::changes::Changed;
use nfluid_ring::clock::monotonic_ns;
use nfluid_switch::Switch;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at what instances have used, while some are at work.
const AT_WORK: Duration = Duration::from_millis(100);
/// While none is, and nobody is to be marked.
const IDLE: Duration = Duration::from_secs(1);
/// While none is, but whoever comes may have to be marked.
const IDLE_ON: Duration = Duration::from_millis(50);
/// A look that takes much CPU time is followed by a rest so many times as long: the meter of the largest platform is
/// cheap too. Time in which it waits, for a lock or its turn, is not counted: who waits is late already.
const REST: u32 = 100;
/// The same while nobody is at work: a look reads a word of each ring, out of cold caches.
const REST_IDLE: u32 = 200;
/// Between two turns of the controller while frames wait,
const TURN: Duration = Duration::from_millis(1);
/// and while none do.
const TURN_EMPTY: Duration = Duration::from_millis(4);
/// As [`REST`], of turns.
const TURN_REST: u32 = 20;
/// The thread sleeps nearly always, and is late if the core is busy.
const NICE: i32 = -20;

/// Starts the thread.
///
/// # Errors
/// When the kernel has none.
pub fn start(host: &Shared) -> anyhow::Result<()> {
    let shared = Arc::clone(host);
    let (switch, congestion) = {
        let host = lock(host);
        (host.switch(), host.congestion())
    };
    std::thread::Builder::new()
        .name("congestion".to_owned())
        .spawn(move || run(&shared, switch, &congestion))
        .context("starting the meter of costs")?;
    Ok(())
}

/// Looks after the host's instances; never returns.
fn run(host: &Shared, switch: Arc<Switch>, congestion: &Congestion) -> ! {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::warn!(%error, "the congestion thread has no priority: marks may be late");
    }
    let mut worker = Worker {
        switch,
        seen: None,
        roll: Roll::default(),
        following: Following::default(),
    };
    loop {
        let before_ns = own_cpu_ns();
        worker.look(host, congestion);
        worker.turns_until(Instant::now() + worker.pause(used_since(before_ns)));
    }
}

/// Of which instances the roll is another.
enum Renewed {
    All,
    Some(BTreeSet<String>),
}

struct Worker {
    switch: Arc<Switch>,
    seen: Option<u64>,
    roll: Roll,
    following: Following,
}

impl Worker {
    /// Asks the host for the instances that have changed.
    fn renew(&mut self, host: &Shared) -> Renewed {
        let locked = lock(host);
        match locked.changes_since(self.seen) {
            Changed::Nothing => Renewed::Some(BTreeSet::new()),
            Changed::All(newest) => {
                let subjects = locked.subjects();
                drop(locked);
                self.seen = Some(newest);
                self.roll.renew(subjects);
                Renewed::All
            }
            Changed::Some(newest, names) => {
                let subjects = names.iter().map(|name| (name, locked.subject_of(name)));
                let subjects: Vec<_> = subjects.collect();
                drop(locked);
                self.seen = Some(newest);
                for (name, subject) in subjects {
                    self.roll.change(name, subject);
                }
                Renewed::Some(names)
            }
        }
    }

    /// Looks at those that are at work, and tells what was found of them.
    fn look(&mut self, host: &Shared, congestion: &Congestion) {
        let renewed = self.renew(host);
        if let Some(orders) = congestion.orders_since(self.following.version()) {
            self.following.obey(orders);
        }
        let found = self.roll.look(&self.switch, monotonic_ns());
        if self.following.marks() {
            self.roll.locate();
        }
        self.following.choose(&self.switch, &mut self.roll);
        congestion.change(|figures| {
            match &renewed {
                Renewed::All => figures.instances.clear(),
                Renewed::Some(names) => {
                    for name in names {
                        figures.instances.remove(name);
                    }
                }
            }
            figures.instances.extend(found);
            self.following.tell(figures);
            figures.own_cpu_ns = own_cpu_ns();
        });
    }

    /// How long until the next look.
    fn pause(&self, took: Duration) -> Duration {
        let (usual, rest) = if self.is_anybody_at_work() {
            (AT_WORK, REST)
        } else if self.following.is_on() {
            (IDLE_ON, REST_IDLE)
        } else {
            (IDLE, REST_IDLE)
        };
        usual.max(took * rest)
    }

    /// Sleeps, or works for those that are at work.
    fn turns_until(&mut self, end: Instant) {
        if !self.following.is_on() || !self.is_anybody_at_work() {
            self.following.rest(&self.switch);
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            return;
        }
        while Instant::now() < end {
            let before_ns = own_cpu_ns();
            let waits = self
                .following
                .turn(&self.switch, &self.roll, monotonic_ns());
            let usual = if waits { TURN } else { TURN_EMPTY };
            std::thread::sleep(usual.max(used_since(before_ns) * TURN_REST));
        }
    }

    fn is_anybody_at_work(&self) -> bool {
        !self.roll.at_work().is_empty()
    }
}

/// CPU time of this thread since it was `before_ns`.
fn used_since(before_ns: u64) -> Duration {
    Duration::from_nanos(own_cpu_ns().saturating_sub(before_ns))
}

/// CPU time of this thread.
fn own_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
