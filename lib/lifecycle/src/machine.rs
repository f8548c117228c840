//! The machine's CPUs and memory.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a reading of the machine is reused. CPUs and memory change seldom, and the creation of an instance
/// reads them several times.
const HOLDS: Duration = Duration::from_millis(500);

/// A value that was read from the host, with the time of the reading.
type Read<T> = Mutex<Option<(Instant, T)>>;

static CPUS: Read<Vec<u32>> = Mutex::new(None);
static MEMORY_BYTES: Read<u64> = Mutex::new(None);

/// Returns a recent reading, or a new one by `read`.
fn lately<T: Clone>(kept: &Read<T>, read: impl FnOnce() -> T) -> T {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    match &*kept {
        Some((when, value)) if when.elapsed() < HOLDS => value.clone(),
        _ => kept.insert((Instant::now(), read())).1.clone(),
    }
}

fn read_cpus() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let range = |part: &str| -> Vec<u32> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => (first..=last).collect(),
            _ => Vec::new(),
        }
    };
    text.trim().split(',').flat_map(range).collect()
}

/// Returns the value of `MemTotal` in /proc/meminfo. The kernel counts much else for each read of that file.
fn read_memory_bytes() -> u64 {
    let all = rustix::system::sysinfo();
    all.totalram * u64::from(all.mem_unit)
}

/// Returns the numbers of the CPUs that are online.
pub fn cpus() -> Vec<u32> {
    lately(&CPUS, read_cpus)
}

/// Returns the number of CPUs on which instances may run; at least 1.
pub fn cpu_count() -> usize {
    cpus().len().max(1)
}

/// Returns the machine's memory in bytes.
pub fn memory_bytes() -> u64 {
    lately(&MEMORY_BYTES, read_memory_bytes)
}

/// Returns the bytes of memory that programs can still allocate without taking memory from others. `None` if the
/// kernel does not report them.
pub fn memory_available() -> Option<u64> {
    memory("MemAvailable:")
}

/// Returns a value of /proc/meminfo in bytes.
fn memory(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
