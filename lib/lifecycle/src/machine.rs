//! The machine's CPUs and memory.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was read of the machine holds for so long. CPUs and memory come and go seldom, and the making of an instance asks for
/// them several times.
const HOLDS: Duration = Duration::from_millis(500);

/// Something that was read of the host, and when.
type Read<T> = Mutex<Option<(Instant, T)>>;

static CPUS: Read<Vec<u32>> = Mutex::new(None);
static MEMORY_BYTES: Read<u64> = Mutex::new(None);

/// What was read lately, or what `read` reads now.
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

/// As `MemTotal` of /proc/meminfo, for which the kernel counts much else.
fn read_memory_bytes() -> u64 {
    let all = rustix::system::sysinfo();
    all.totalram * u64::from(all.mem_unit)
}

/// The numbers of the CPUs that are online.
pub fn cpus() -> Vec<u32> {
    lately(&CPUS, read_cpus)
}

/// On how many CPUs instances may run; at least 1.
pub fn cpu_count() -> usize {
    cpus().len().max(1)
}

/// Bytes of memory of the machine.
pub fn memory_bytes() -> u64 {
    lately(&MEMORY_BYTES, read_memory_bytes)
}

/// Bytes of memory that programs can still get without others losing theirs; unknown on a strange kernel.
pub fn memory_available() -> Option<u64> {
    memory("MemAvailable:")
}

/// A line of /proc/meminfo, in bytes.
fn memory(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
