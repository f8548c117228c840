//! CPU time and memory of a cgroup.

use super::root::Directories;
use super::{CgroupError, Controller, control_file};
use std::path::Path;

/// CPU time and memory of a cgroup since it was created. `None`: the kernel or the host's controllers do not count
/// the quantity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupStats {
    /// CPU time in nanoseconds (microsecond steps where v2 counts it).
    pub cpu_usage_ns: Option<u64>,
    /// Number of periods in which the cap was used up.
    pub throttled_periods: Option<u64>,
    /// Time for which runnable tasks were throttled by the cap, summed over CPUs, in nanoseconds.
    pub throttled_ns: Option<u64>,
    /// Memory charged now, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most memory ever charged, in bytes (v2: since kernel 5.19).
    pub memory_bytes_peak: Option<u64>,
    /// Number of processes that were killed because the memory limit was reached.
    pub oom_kills: Option<u64>,
    /// Number of processes and threads now.
    pub pids: Option<u64>,
}

pub(super) fn read(group: &Directories) -> Result<CgroupStats, CgroupError> {
    let mut stats = CgroupStats::default();
    read_cpu(group, &mut stats)?;
    match group.seat(Controller::Memory) {
        Some(seat) if seat.v2 => read_memory_v2(&seat.path, &mut stats)?,
        Some(seat) => read_memory_v1(&seat.path, &mut stats)?,
        None => {}
    }
    if let Some(seat) = group.seat(Controller::Pids) {
        stats.pids = optional_number(&seat.path.join("pids.current"))?;
    }
    Ok(stats)
}

fn read_cpu(group: &Directories, stats: &mut CgroupStats) -> Result<(), CgroupError> {
    if let Some(seat) = group.seat(Controller::CpuAcct) {
        stats.cpu_usage_ns = optional_number(&seat.path.join("cpuacct.usage"))?;
    } else if let Some(v2) = &group.v2 {
        let text = control_file::read_optional(&v2.join("cpu.stat"))?.unwrap_or_default();
        stats.cpu_usage_ns = control_file::keyed(&text, "usage_usec").map(|us| us * 1000);
    }
    if let Some(seat) = group.seat(Controller::Cpu) {
        let text = control_file::read_optional(&seat.path.join("cpu.stat"))?.unwrap_or_default();
        stats.throttled_periods = control_file::keyed(&text, "nr_throttled");
        stats.throttled_ns = if seat.v2 {
            control_file::keyed(&text, "throttled_usec").map(|us| us * 1000)
        } else {
            control_file::keyed(&text, "throttled_time")
        };
    }
    Ok(())
}

fn read_memory_v2(directory: &Path, stats: &mut CgroupStats) -> Result<(), CgroupError> {
    stats.memory_bytes = optional_number(&directory.join("memory.current"))?;
    stats.memory_bytes_peak = optional_number(&directory.join("memory.peak"))?;
    let events = control_file::read_optional(&directory.join("memory.events"))?;
    stats.oom_kills = control_file::keyed(&events.unwrap_or_default(), "oom_kill");
    Ok(())
}

fn read_memory_v1(directory: &Path, stats: &mut CgroupStats) -> Result<(), CgroupError> {
    stats.memory_bytes = optional_number(&directory.join("memory.usage_in_bytes"))?;
    stats.memory_bytes_peak = optional_number(&directory.join("memory.max_usage_in_bytes"))?;
    let events = control_file::read_optional(&directory.join("memory.oom_control"))?;
    stats.oom_kills = control_file::keyed(&events.unwrap_or_default(), "oom_kill");
    Ok(())
}

fn optional_number(path: &Path) -> Result<Option<u64>, CgroupError> {
    if path.exists() {
        control_file::read_number(path).map(Some)
    } else {
        Ok(None)
    }
}
