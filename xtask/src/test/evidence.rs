//! Evidence of a failed test: its output, the kernel's messages during the test, and the daemon's logs and journal from
//! the test harness. One failure on a machine that is gone afterwards must be enough to find the cause.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use super::job::file_name;

/// The longest record of the kernel's log (`CONSOLE_EXT_LOG_MAX` in its sources).
const RECORD_BYTES_MAX: usize = 8192;

/// A time in microseconds since boot, as in the kernel's messages.
#[derive(Clone, Copy)]
pub struct KernelClock(u64);

impl KernelClock {
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        let [seconds, nanos] =
            [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
        Self(seconds * 1_000_000 + nanos / 1000)
    }
}

/// Writes the output of a failed job and the kernel's messages into the job's folder below `folder`. Prints the
/// messages.
pub fn keep(folder: &Path, job: &str, transcript: &[String], began: KernelClock) {
    let folder = folder.join(file_name(job));
    let kernel = kernel_messages(began);
    let kept = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("output.txt"), transcript.join("\n")))
        .and_then(|()| fs::write(folder.join("kernel.txt"), kernel.join("\n")));
    if let Err(error) = kept {
        eprintln!("xtask: keeping what {job} said: {error}");
    }
    if !kernel.is_empty() {
        println!("the kernel said while {job} ran, and others beside it:");
        kernel.iter().for_each(|line| println!("  k {line}"));
    }
}

/// Returns true if a failed test has left evidence.
pub fn is_there(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns the kernel's messages since a time; none if this process may not read them.
fn kernel_messages(since: KernelClock) -> Vec<String> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(nonblocking).unwrap_or(0);
    let Ok(log) = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open("/dev/kmsg")
    else {
        return Vec::new();
    };
    records(log)
        .iter()
        .filter_map(|record| message(record, since))
        .collect()
}

/// Each read is one record; the end is EAGAIN.
fn records(mut log: File) -> Vec<String> {
    let mut records = Vec::new();
    let mut buffer = vec![0; RECORD_BYTES_MAX];
    loop {
        match log.read(&mut buffer) {
            Ok(length) if length > 0 => {
                records.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
            // The record was overwritten before it was read: the next record can be read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            _ => return records,
        }
    }
}

/// Returns the text of `priority,sequence,microseconds,flags;text`, unless the message is older than `since`.
fn message(record: &str, since: KernelClock) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let stamp: u64 = head.split(',').nth(2)?.parse().ok()?;
    let text = text.lines().next()?;
    (stamp >= since.0).then(|| format!("{:.3} {text}", stamp as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_the_jobs_time_are_kept() {
        let record = "6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n";
        let line = message(record, KernelClock(5_000_000));
        assert_eq!(
            line.as_deref(),
            Some("5.141 NET: Registered protocol family 10")
        );
        assert_eq!(message(record, KernelClock(6_000_000)), None);
        assert_eq!(message("nonsense", KernelClock(0)), None);
    }

    #[test]
    fn what_a_failed_job_printed_is_kept_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_there(folder.path()));
        let lines = ["a".to_owned(), "b".to_owned()];
        keep(
            folder.path(),
            "platform_x: a_test",
            &lines,
            KernelClock::now(),
        );
        let kept = fs::read_to_string(folder.path().join("platform_x.a_test/output.txt"));
        assert_eq!(kept.unwrap(), "a\nb");
        assert!(is_there(folder.path()));
    }
}
