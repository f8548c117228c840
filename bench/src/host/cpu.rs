//! CPU time of others.

use anyhow::Context;
use std::fs;

/// Ticks per second in /proc/stat: USER_HZ, the same on x86-64 and arm64.
const TICKS: f64 = 100.0;
/// The column of a line of /proc/stat, after its name (proc(5)).
const SOFTIRQ: usize = 6;

/// CPU time of all threads of a process in seconds, to the nanosecond.
///
/// # Errors
/// When there is no such process.
pub fn process_seconds(pid: u32) -> anyhow::Result<f64> {
    let mut sum = 0;
    let threads = format!("/proc/{pid}/task");
    for task in fs::read_dir(&threads).with_context(|| format!("reading {threads}"))? {
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            // The thread has just ended.
            continue;
        };
        let first = text.split_whitespace().next().context("schedstat")?;
        sum += first.parse::<u64>().context("schedstat")?;
    }
    Ok(sum as f64 / 1e9)
}

/// Time that all cores have spent in the kernel's soft interrupts, in seconds, to the tick.
///
/// # Errors
/// When /proc/stat cannot be read.
pub fn softirq_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    softirq_ticks(&text).map(|ticks| ticks as f64 / TICKS)
}

fn softirq_ticks(stat: &str) -> anyhow::Result<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks = line.and_then(|line| line.split_whitespace().nth(SOFTIRQ));
    Ok(ticks
        .context("/proc/stat without soft interrupts")?
        .parse()?)
}

/// Kernel threads whose name begins so.
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
        assert_eq!(softirq_ticks(stat).expect("a column"), 77);
        assert!(softirq_ticks("cpu0 1 2 3").is_err());
    }

    #[test]
    fn this_process_has_used_some_time() {
        let used = process_seconds(std::process::id()).expect("it exists");
        assert!(used > 0.0);
    }
}
