//! The congestion thread: measures what packets cost, and signals congestion to the switch.
//!
//! The thread reads the switch's counters, which are mapped, and the kernel's accounting of busy instances. Idle instances
//! cost a mapped word per ring. No other thread waits for this one: if the thread ends, its signals expire and frames pass
//! unmarked. What the thread needs to know of the daemon is [`Subjects`]; what the daemon asks for and finds out is
//! [`SharedState`].

mod figures;
mod metered;
mod orders;
mod signaller;
mod subject;
mod table;

pub use figures::{Figures, InstanceCost, SharedState};
pub use orders::{DirectionOrder, Orders};
pub use subject::{Subject, Subjects};

use nfluid_control::changes::Changed;
use nfluid_ring::clock::monotonic_ns;
use nfluid_switch::Switch;
use rustix::time::{ClockId, clock_gettime};
use signaller::Signaller;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::InstanceTable;

/// Interval between two measurements while instances are busy.
const BUSY: Duration = Duration::from_millis(100);
/// Interval while no instance is busy and no law is on.
const IDLE: Duration = Duration::from_secs(1);
/// Interval while no instance is busy, but a law is on: the next busy instance may have to be signalled soon.
const IDLE_ON: Duration = Duration::from_millis(50);
/// The pause after a measurement is at least this many times the CPU time of the measurement, so that the thread stays cheap
/// on the largest platform. Time spent waiting, for a lock or for a core, does not count: a thread that waited is late already.
const REST: u32 = 100;
/// As [`REST`], while no instance is busy: a measurement reads a word of each ring, out of cold caches.
const REST_IDLE: u32 = 200;
/// Interval between two updates of the signals while frames wait.
const UPDATE: Duration = Duration::from_millis(1);
/// Interval between two updates of the signals while no frames wait.
const UPDATE_EMPTY: Duration = Duration::from_millis(4);
/// As [`REST`], for updates of the signals.
const UPDATE_REST: u32 = 20;
/// Priority of the thread, which sleeps nearly always and would be late on a busy core.
const NICE: i32 = -20;

/// Starts the thread, which never ends.
///
/// # Errors
/// The kernel refuses another thread.
pub fn start(
    subjects: Box<dyn Subjects>,
    switch: Arc<Switch>,
    state: Arc<SharedState>,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("congestion".to_owned())
        .spawn(move || run(subjects, switch, state))?;
    Ok(())
}

fn run(subjects: Box<dyn Subjects>, switch: Arc<Switch>, state: Arc<SharedState>) -> ! {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::warn!(%error, "the congestion thread has no priority: marks may be late");
    }
    let mut worker = Worker {
        subjects,
        switch,
        state,
        seen: None,
        table: InstanceTable::default(),
        signaller: Signaller::default(),
    };
    loop {
        let before_ns = own_cpu_ns();
        worker.measure();
        worker.signal_until(Instant::now() + worker.pause(used_since(before_ns)));
    }
}

/// The instances that were replaced in the table.
enum Replaced {
    All,
    Some(BTreeSet<String>),
}

struct Worker {
    subjects: Box<dyn Subjects>,
    switch: Arc<Switch>,
    state: Arc<SharedState>,
    /// The newest change of instances that the table knows.
    seen: Option<u64>,
    table: InstanceTable,
    signaller: Signaller,
}

impl Worker {
    /// Brings the table up to date. The number of the newest change is read before the instances: a change in between is seen
    /// again next time.
    fn update_table(&mut self) -> Replaced {
        match self.subjects.changes_since(self.seen) {
            Changed::Nothing => Replaced::Some(BTreeSet::new()),
            Changed::All(newest) => {
                self.table.replace_all(self.subjects.all());
                self.seen = Some(newest);
                Replaced::All
            }
            Changed::Some(newest, names) => {
                for (name, subject) in self.subjects.named(&names) {
                    self.table.replace(&name, subject);
                }
                self.seen = Some(newest);
                Replaced::Some(names)
            }
        }
    }

    /// Measures all busy instances, and reports the findings.
    fn measure(&mut self) {
        let replaced = self.update_table();
        if let Some(orders) = self.state.orders_since(self.signaller.version()) {
            self.signaller.apply_orders(orders);
        }
        let costs = self.table.measure(&self.switch, monotonic_ns());
        if self.signaller.marks() {
            self.table.find_cores();
        }
        self.signaller.choose_rings(&self.switch, &mut self.table);
        self.state.change(|figures| {
            match &replaced {
                Replaced::All => figures.instances.clear(),
                Replaced::Some(names) => {
                    for name in names {
                        figures.instances.remove(name);
                    }
                }
            }
            figures.instances.extend(costs);
            self.signaller.report(figures);
            figures.own_cpu_ns = own_cpu_ns();
        });
    }

    /// The time until the next measurement, after one that took `took` of CPU time.
    fn pause(&self, took: Duration) -> Duration {
        let (usual, rest) = if self.is_any_busy() {
            (BUSY, REST)
        } else if self.signaller.is_on() {
            (IDLE_ON, REST_IDLE)
        } else {
            (IDLE, REST_IDLE)
        };
        usual.max(took * rest)
    }

    /// Updates the signals until `end`, or sleeps if no instance needs any.
    fn signal_until(&mut self, end: Instant) {
        if !self.signaller.is_on() || !self.is_any_busy() {
            self.signaller.clear_signals(&self.switch);
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            return;
        }
        while Instant::now() < end {
            let before_ns = own_cpu_ns();
            let waits = self
                .signaller
                .update(&self.switch, &self.table, monotonic_ns());
            let usual = if waits { UPDATE } else { UPDATE_EMPTY };
            std::thread::sleep(usual.max(used_since(before_ns) * UPDATE_REST));
        }
    }

    fn is_any_busy(&self) -> bool {
        !self.table.busy().is_empty()
    }
}

/// CPU time that this thread has used since its clock showed `before_ns`.
fn used_since(before_ns: u64) -> Duration {
    Duration::from_nanos(own_cpu_ns().saturating_sub(before_ns))
}

/// CPU time of this thread in nanoseconds.
fn own_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
