//! Cost of the kernel's receive side: the run time of XDP programs.
//!
//! The programs run in the kernel's softirq, whose time is charged to the task that is on the core. The kernel
//! measures the time on request (`BPF_ENABLE_STATS`), for every eBPF program of the host, at some 20 ns a run: so the
//! measurement is requested for short windows only, and the cost of a frame within a window stands for the others.

use crate::program::{program_by_id, program_info};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// Runs of a program that were measured, and their total time. Both only grow while a process measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTime {
    /// Frames.
    pub runs: u64,
    /// Time of all of them.
    pub time: Duration,
}

impl ProgramTime {
    /// Since `earlier`.
    #[must_use]
    pub fn since(self, earlier: ProgramTime) -> ProgramTime {
        ProgramTime {
            runs: self.runs.saturating_sub(earlier.runs),
            time: self.time.saturating_sub(earlier.time),
        }
    }

    /// Nanoseconds per frame, if there were `least` or more.
    pub fn ns_per_run(self, least: u64) -> Option<f64> {
        (self.runs >= least.max(1)).then(|| self.time.as_nanos() as f64 / self.runs as f64)
    }
}

/// As long as it lives, the kernel measures.
#[derive(Debug)]
pub struct TimeKeeping {
    _fd: OwnedFd,
}

impl TimeKeeping {
    /// Has the kernel begin.
    ///
    /// # Errors
    /// EINVAL before Linux 5.8, EPERM without CAP_SYS_ADMIN.
    pub fn begin() -> io::Result<Self> {
        // SAFETY: it takes a number and returns a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the kernel has just made it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { _fd: fd })
    }
}

/// Returns the measurements of program `id`; `None` if there is no such program.
pub fn program_time(id: u32) -> Option<ProgramTime> {
    let program = program_by_id(id)?;
    let info = program_info(&program, &mut [])?;
    Some(ProgramTime {
        runs: info.run_cnt,
        time: Duration::from_nanos(info.run_time_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::ProgramTime;
    use std::time::Duration;

    #[test]
    fn a_cost_needs_enough_frames() {
        let time = |runs, ns| ProgramTime {
            runs,
            time: Duration::from_nanos(ns),
        };
        let between = time(30, 3_000).since(time(10, 1_000));
        assert_eq!(between.ns_per_run(20), Some(100.0));
        assert_eq!(between.ns_per_run(21), None);
        assert_eq!(time(0, 0).ns_per_run(0), None);
        assert_eq!(time(1, 1).since(time(2, 2)), time(0, 0), "a new program");
    }
}
