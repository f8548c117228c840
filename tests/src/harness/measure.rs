//! CPU time of groups, measured so that a busy or temporarily suspended machine does not falsify the result.

use super::patience::PATIENCE;
use nfluid_sandbox::cgroup::Cgroup;
use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Largest number of tries of a measurement.
const TRIES: usize = 5;
/// CPU time that starting a group's processes may take.
const START: Duration = Duration::from_millis(100);
/// CPU time over which two groups are compared.
const COMPARED: Duration = Duration::from_secs(2);

/// Repeats a measurement until its result `holds`, at most `TRIES` times; returns the first result that holds.
///
/// For measurements that something else on the machine can disturb: a core that is taken away during the measurement,
/// or a neighbour that starts or ends. A real fault fails every time; a disturbance hardly ever occurs that many times
/// in a row. Repetition does not justify wider bounds or shorter measurements than possible.
///
/// # Panics
/// If the result never holds.
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

/// Returns the CPU time that a group has used.
///
/// # Panics
/// If the group is gone.
pub fn cpu_time(cgroup: &Cgroup) -> Duration {
    let stats = cgroup.stats().expect("statistics of a cgroup that exists");
    Duration::from_nanos(stats.cpu_usage_ns.expect("every host counts CPU time"))
}

/// Returns the share of `one` in the CPU time of both groups, over two seconds of CPU time. Both groups must always be
/// busy.
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

/// Returns the CPU time that an always busy group uses, as a fraction of one core, over at least `time`.
///
/// The measurement begins and ends at moments at which the group runs again. A group with a cap has by then paid for
/// the CPU time beyond its quota (as after a late tick): it may have used exactly the quotas of the time between.
///
/// # Panics
/// If the group is gone.
pub fn load_of(cgroup: &Cgroup, time: Duration) -> f64 {
    let begin = Edge::next(cgroup);
    sleep(time);
    let end = Edge::next(cgroup);
    // If this thread was late, the result is too small, never too large.
    (end.used - begin.used).as_secs_f64() / (end.runs - begin.stands).as_secs_f64()
}

/// A moment at which a group continues to run.
struct Edge {
    /// CPU time that the group has used before.
    used: Duration,
    /// A time not after that moment.
    stands: Instant,
    /// A time not before that moment.
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

/// Waits until `is_so` returns true, for at most [`PATIENCE`]; after a timeout the measured value is wrong and fails
/// the test.
fn within_patience(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() && start.elapsed() < PATIENCE {
        sleep(Duration::from_millis(5));
    }
}
