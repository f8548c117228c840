//! Time that a process had: in which it ran, or did not want to.

use crate::instance::{STATE, ran_and_waited, stat_word};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Threads that are looked at: more than an instance may have.
const THREADS_MAX: usize = 512;

/// Follows the threads of a process. Threads of child processes are not followed.
#[derive(Debug)]
pub struct OwnTime {
    pid: u32,
    looked_at: Instant,
    threads: HashMap<u32, ThreadTimes>,
}

/// Times of a thread, since it was started (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default)]
struct ThreadTimes {
    ran: Duration,
    /// The time for which the thread was ready to run, but not running. The kernel reports it when the thread runs
    /// again, not before.
    waited: Duration,
    /// At the moment.
    is_ready: bool,
}

impl OwnTime {
    /// Follows process `pid`, from now on.
    pub fn of(pid: u32) -> Self {
        OwnTime {
            pid,
            looked_at: Instant::now(),
            threads: threads(pid),
        }
    }

    /// Time since the last look in which every thread of it either ran or had no wish to: of the thread that had least. At
    /// most as long as the look is ago; nothing if the process is gone.
    pub fn since_last(&mut self) -> Duration {
        let threads = threads(self.pid);
        let now = Instant::now();
        let passed = now.duration_since(std::mem::replace(&mut self.looked_at, now));
        let before = std::mem::replace(&mut self.threads, threads);
        let known = self.threads.iter().filter_map(|(tid, times)| {
            let before = before.get(tid)?;
            Some(times.had_since(before, passed))
        });
        known.min().unwrap_or_default()
    }
}

impl ThreadTimes {
    fn had_since(&self, before: &ThreadTimes, passed: Duration) -> Duration {
        let ran = self.ran.saturating_sub(before.ran);
        if self.is_ready {
            // The kernel does not report for how long the thread has waited already.
            return ran.min(passed);
        }
        let waited = self.waited.saturating_sub(before.waited);
        passed.saturating_sub(waited).max(ran).min(passed)
    }
}

fn threads(pid: u32) -> HashMap<u32, ThreadTimes> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten().take(THREADS_MAX);
    let times = tasks.filter_map(|task| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        Some((tid, read(&task.path())?))
    });
    times.collect()
}

/// Returns `None` if the thread has ended.
fn read(task: &Path) -> Option<ThreadTimes> {
    let (ran, waited) = ran_and_waited(task)?;
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    Some(ThreadTimes {
        ran,
        waited,
        is_ready: stat_word(&stat, STATE)? == "R",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ran: u64, waited: u64, is_ready: bool) -> ThreadTimes {
        ThreadTimes {
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
            is_ready,
        }
    }

    // promise: 5.16
    #[test]
    fn own_time_excludes_waiting_for_a_core() {
        let before = times(100, 100, false);
        let had = |now: ThreadTimes| now.had_since(&before, Duration::from_millis(1_000));
        for (now, expected) in [
            (times(100, 100, false), 1_000),
            (times(600, 100, false), 1_000),
            (times(105, 1_090, false), 10),
            (times(105, 2_000, false), 5),
            (times(103, 100, true), 3),
            (times(9_999, 100, true), 1_000),
            (times(0, 0, false), 1_000),
        ] {
            assert_eq!(had(now), Duration::from_millis(expected), "{now:?}");
        }
    }

    #[test]
    fn a_process_that_sleeps_has_all_the_time_and_one_that_is_gone_none() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let asleep = || read(Path::new(&format!("/proc/{}", child.id())));
        while asleep().is_none_or(|times| times.is_ready) {
            std::thread::yield_now();
        }
        let mut own = OwnTime::of(child.id());
        std::thread::sleep(Duration::from_millis(30));
        let had = own.since_last();
        assert!(had > Duration::ZERO && own.looked_at.elapsed() < Duration::from_secs(60));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(own.since_last(), Duration::ZERO);
    }
}
