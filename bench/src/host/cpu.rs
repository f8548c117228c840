//! CPU time of processes and threads, and the core on which they start.

use anyhow::{Context, ensure};
use nfluid_testbed::CannotRun;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::time::{Duration, Instant};

/// The core of a process that may run on any core.
pub const ANY_CORE: usize = usize::MAX;

/// Ticks per second in /proc/stat: USER_HZ, the same on x86-64 and arm64.
const TICKS: f64 = 100.0;
/// Columns of a line of /proc/stat, after its name (proc(5)): idle time, and soft interrupts.
const IDLE: [usize; 2] = [3, 4];
const SOFTIRQ: usize = 6;
/// Number of columns before those that count guests' time a second time.
const COLUMNS: usize = 7;
/// Longest time until a new thread gets the CPU.
const BEGINS: Duration = Duration::from_secs(60);
/// Interval of checks for the new thread.
const LOOK: Duration = Duration::from_millis(1);

/// Refuses an experiment whose two processes have to run at the same time.
///
/// # Errors
/// [`CannotRun`] with one core.
pub fn require_two_cores() -> Result<(), CannotRun> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        Err(CannotRun("it needs two cores".to_owned()))
    } else {
        Ok(())
    }
}

/// Calls `start` on a core, so that its process starts on that core and never runs elsewhere. The kernel (6.18) weighs
/// a cgroup by its last load on other cores too, so a process that joins a cgroup before it is pinned leaves its group
/// with less than its weight for its whole life.
///
/// # Errors
/// When the core does not exist.
pub fn on<T>(core: usize, start: impl FnOnce() -> T) -> anyhow::Result<T> {
    if core == ANY_CORE {
        return Ok(start());
    }
    let before = sched_getaffinity(None).context("reading the cores of this thread")?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).with_context(|| format!("moving to core {core}"))?;
    let started = start();
    sched_setaffinity(None, &before).context("moving back to all cores")?;
    Ok(started)
}

/// Moves this thread to a core, for good. Returns `None` if the core does not exist.
pub fn pin(core: usize) -> Option<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).ok()
}

/// Returns the CPU time of all threads of a process in seconds, to the nanosecond.
///
/// # Errors
/// When the process does not exist.
pub fn process_seconds(pid: u32) -> anyhow::Result<f64> {
    let mut sum = 0;
    let threads = format!("/proc/{pid}/task");
    for task in fs::read_dir(&threads).with_context(|| format!("reading {threads}"))? {
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            // The thread has just ended.
            continue;
        };
        sum += run_time_ns(&text)?;
    }
    Ok(sum as f64 / 1e9)
}

/// Returns the CPU time of one thread of this process in seconds.
///
/// # Errors
/// When the thread does not exist.
pub fn thread_seconds(thread: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    run_time_ns(&text).map(|ns| ns as f64 / 1e9)
}

/// Waits for the thread of this process with this name, and returns it. A thread sets its name when it starts.
///
/// # Errors
/// When no thread has the name after [`BEGINS`].
pub fn own_thread(name: &str) -> anyhow::Result<u32> {
    let start = Instant::now();
    loop {
        if let Some(thread) = thread_named(name) {
            return Ok(thread);
        }
        ensure!(
            start.elapsed() < BEGINS,
            "this process has no thread {name}"
        );
        std::thread::sleep(LOOK);
    }
}

fn thread_named(name: &str) -> Option<u32> {
    fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .find(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        })
        .and_then(|task| task.file_name().to_str()?.parse().ok())
}

/// The first column of schedstat (Documentation/scheduler/sched-stats.rst).
fn run_time_ns(schedstat: &str) -> anyhow::Result<u64> {
    let first = schedstat.split_whitespace().next().context("schedstat")?;
    first.parse().context("schedstat")
}

/// Returns the busy time of all cores, in seconds, to the tick.
///
/// # Errors
/// When /proc/stat cannot be read.
pub fn busy_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let columns = line
        .context("/proc/stat without processors")?
        .split_whitespace();
    let ticks: Result<Vec<u64>, _> = columns.take(COLUMNS).map(str::parse).collect();
    let busy = ticks?.into_iter().enumerate();
    let busy = busy.filter(|(column, _)| !IDLE.contains(column));
    Ok(busy.map(|(_, ticks)| ticks as f64).sum::<f64>() / TICKS)
}

/// Returns the time of all cores in the kernel's soft interrupts, in seconds, to the tick.
///
/// # Errors
/// When /proc/stat cannot be read.
pub fn softirq_seconds() -> anyhow::Result<f64> {
    softirq("cpu ")
}

/// Returns the CPU time in seconds of soft interrupts that no other process is charged for: that of the threads ksoftirqd;
/// that of all soft interrupts on a kernel that does not charge a process for those that interrupt it.
///
/// # Errors
/// When /proc cannot be read.
pub fn softirq_seconds_uncharged() -> anyhow::Result<f64> {
    let release = rustix::system::uname();
    let config = format!("/boot/config-{}", release.release().to_string_lossy());
    let is_uncharged = fs::read_to_string(config)
        .is_ok_and(|text| text.contains("\nCONFIG_IRQ_TIME_ACCOUNTING=y"));
    if is_uncharged {
        return softirq_seconds();
    }
    let threads = kernel_threads("ksoftirqd/").into_iter();
    threads.map(process_seconds).sum()
}

/// As [`softirq_seconds`], for one core.
///
/// # Errors
/// When /proc/stat cannot be read.
pub fn softirq_seconds_of(core: usize) -> anyhow::Result<f64> {
    softirq(&format!("cpu{core} "))
}

fn softirq(name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    softirq_ticks(&text, name).map(|ticks| ticks as f64 / TICKS)
}

fn softirq_ticks(stat: &str, name: &str) -> anyhow::Result<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name));
    let ticks = line.and_then(|line| line.split_whitespace().nth(SOFTIRQ));
    Ok(ticks
        .context("/proc/stat without soft interrupts")?
        .parse()?)
}

/// Returns the kernel threads whose names begin with `prefix`.
pub fn kernel_threads(prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with(prefix))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{process_seconds, softirq_ticks};

    #[test]
    fn soft_interrupts_are_the_seventh_column() {
        let stat = "cpu  1 2 3 4 5 6 77 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(softirq_ticks(stat, "cpu ").expect("a column"), 77);
        assert_eq!(softirq_ticks(stat, "cpu0 ").expect("a column"), 7);
        assert!(softirq_ticks("cpu0 1 2 3", "cpu ").is_err());
    }

    #[test]
    fn this_process_has_used_some_time() {
        let used = process_seconds(std::process::id()).expect("it exists");
        assert!(used > 0.0);
    }
}
