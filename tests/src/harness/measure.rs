//! What groups get of the CPUs, measured so that a machine that is busy, or taken away for a while, does not make it wrong.

use super::patience::PATIENCE;
use nfluid_sandbox::cgroup::Cgroup;
use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a measurement is made at most.
const TRIES: usize = 5;
/// What starting a group's processes may take of its CPU time.
const START: Duration = Duration::from_millis(100);
/// CPU time over which two groups are compared.
const COMPARED: Duration = Duration::from_secs(2);

/// Measures until what was found `holds`, a few times at most; what was found then.
///
/// For what something else on the machine can disturb: a core that is taken away in the middle, a neighbour that comes or
/// goes. A real fault fails every time; what disturbs does so hardly ever that many times in a row. It is no reason for a
/// bound that is wider, or a measurement that is shorter, than it could be.
///
/// # Panics
/// If it never holds.
pub fn one_holds<T: Debug>(
    what: &str,
    mut measure: impl FnMut() -> T,
    holds: impl Fn(&T) -> bool,
) -> T {
    let mut others = Vec::new();
    while others.len() < TRIES {
        let found = measure();
        if holds(&found) {
            return found;
        }
        others.push(found);
    }
    panic!("{what}: {others:?}");
}

/// The CPU time that a group has used.
///
/// # Panics
/// If the group is gone.
pub fn cpu_time(cgroup: &Cgroup) -> Duration {
    let stats = cgroup.stats().expect("statistics of a cgroup that exists");
    Duration::from_nanos(stats.cpu_usage_ns.expect("every host counts CPU time"))
}

/// The part of the CPU time that `one` gets, of what both get, while both use two seconds. Both always want it.
///
/// # Panics
/// If a group is gone.
pub fn part_of(one: &Cgroup, other: &Cgroup) -> f64 {
    for cgroup in [one, other] {
        let started = cpu_time(cgroup) + START;
        within_patience(|| cpu_time(cgroup) >= started);
    }
    let before = [cpu_time(one), cpu_time(other)];
    let used = || [cpu_time(one) - before[0], cpu_time(other) - before[1]];
    within_patience(|| used().iter().sum::<Duration>() > COMPARED);
    let [one, other] = used().map(|time| time.as_secs_f64());
    one / (one + other)
}

/// The CPU time that a group uses which always wants it, as a part of one core, over at least `time`.
///
/// It begins and ends when the group runs on. If it has a cap, it has paid by then for what it used beyond its quota, as
/// when a tick came late: the quotas of that time are what it may have used.
///
/// # Panics
/// If the group is gone.
pub fn load_of(cgroup: &Cgroup, time: Duration) -> f64 {
    let begin = Edge::next(cgroup);
    sleep(time);
    let end = Edge::next(cgroup);
    // On a machine where this thread was late, less than it was.
    (end.used - begin.used).as_secs_f64() / (end.runs - begin.stands).as_secs_f64()
}

/// A moment at which a group runs on.
struct Edge {
    /// The CPU time that it has used before.
    used: Duration,
    /// Not after that moment.
    stands: Instant,
    /// Not before it.
    runs: Instant,
}

impl Edge {
    fn next(cgroup: &Cgroup) -> Self {
        let start = Instant::now();
        let used = cpu_time(cgroup);
        let mut stands = Instant::now();
        loop {
            sleep(Duration::from_millis(1));
            let runs = cpu_time(cgroup) > used;
            let now = Instant::now();
            if runs || start.elapsed() > PATIENCE {
                break Edge {
                    used,
                    stands,
                    runs: now,
                };
            }
            stands = now;
        }
    }
}

/// Until something is so, or it will not be: what is measured then is wrong, and says so.
fn within_patience(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() && start.elapsed() < PATIENCE {
        sleep(Duration::from_millis(5));
    }
}
