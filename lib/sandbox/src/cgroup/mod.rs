//! Control groups: accounting and limits of CPU time and memory.
//!
//! [`Hierarchy::detect`] finds the hierarchies that this host mounts; [`CgroupRoot`] is the platform's own directory
//! in a hierarchy; [`Cgroup`] is the group of an instance. The same calls work on a host with the unified hierarchy
//! (v2, the standard), with the old controllers (v1), and on hybrid hosts, where v2 has no controllers and serves for
//! freezing, killing and attaching network programs while the v1 controllers set the limits.
//!
//! # What a share means
//! A [`Share`] is in per-mille of one core. As a **weight** it decides only between groups that want the CPU at the same
//! time, in proportion; as a **cap** it is a ceiling that holds on an idle host too.
//!
//! | share | v2 `cpu.weight` (1..10000, default 100) | v1 `cpu.shares` (2..262144, default 1024) |
//! |---|---|---|
//! | per-mille `s` | `s`, at most 10000 | `s x 10.24` rounded, at least 2, at most 102400 |
//!
//! The kernel scales `cpu.weight` by 10.24 into the same unit as `cpu.shares`, so that one share means one scheduler
//! weight on every host. Weights compare brothers: the platform's directory has its own weight among the host's other
//! groups ([`CgroupRoot::set_weight`]).
//!
//! A cap is a quota per period: `cpu.max` or `cpu.cfs_quota_us`. The period is 10 ms, so that a capped network function
//! is throttled for milliseconds and not, as with the kernel's default of 100 ms, for most of a tenth of a second; below
//! 10 % of a core the period grows so that the quota stays at the kernel's minimum of 1 ms.
//!
//! # What it does not do
//! The module uses no `cpuset`: an instance is pinned by its affinity, which the instance's system call filter
//! protects against widening. No function here looks at the number of groups that exist, except the clean-up of
//! leftovers.

mod clock;
mod control_file;
mod group;
mod hierarchy;
#[cfg(test)]
mod made_up_tests;
mod processes;
mod root;
mod share;
mod stats;

pub use clock::CpuClock;
pub use group::Cgroup;
pub use hierarchy::{Controller, Hierarchy, Layout};
pub use root::CgroupRoot;
pub use share::Share;
pub use stats::CgroupStats;

use crate::error::OsError;
use std::path::PathBuf;

/// Failures of control groups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The host has no cgroup file system mounted.
    #[error(
        "no cgroup file system in /proc/self/mountinfo; mount it: mount -t cgroup2 none /sys/fs/cgroup"
    )]
    NotMounted,
    /// A controller that the operation needs is not available.
    #[error(
        "the cgroup controller `{controller}` is not available in {where_}; boot the kernel with it enabled \
         (cgroup_enable={controller}), let the service manager delegate it (Delegate={controller}), or, on a host of the \
         old hierarchies, mount it (mount -t cgroup -o {controller} none /sys/fs/cgroup/{controller})"
    )]
    MissingController {
        /// The controller's name.
        controller: Controller,
        /// The directory, or "this host".
        where_: String,
    },
    /// A cgroup name that the file system or this crate cannot take.
    #[error(
        "`{name}` cannot be a cgroup's name: use 1 to {NAME_MAX} letters, digits, `-`, `_` or `@`, the first one not `-`"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A share outside of its range.
    #[error("a share of {per_mille} per-mille of a core is outside 1..={max}")]
    BadShare {
        /// The limit that was asked for.
        per_mille: u32,
        /// The largest possible.
        max: u32,
    },
    /// A file of the cgroup file system holds something that this crate does not understand.
    #[error("{path}: unexpected content {content:?}")]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// The content of the file.
        content: String,
    },
    /// The group could not be emptied.
    #[error(
        "cgroup {path} still has processes {pids:?} after they were killed; they are probably stuck in the kernel: \
         see /proc/PID/stack"
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// The processes in the group.
        pids: Vec<u32>,
    },
    /// Freezing did not finish in time.
    #[error(
        "cgroup {path} did not freeze within {seconds} s; a process in it is stuck in the kernel"
    )]
    NotFrozen {
        /// The directory.
        path: PathBuf,
        /// The time of the wait.
        seconds: u64,
    },
}

/// Longest name of a directory in bytes: room for the longest names of objects, and what is added to them.
const NAME_MAX: usize = 200;

/// Checks a name for a directory of the cgroup file system. Dots are refused: the kernel's own files have them.
fn check_name(name: &str) -> Result<(), CgroupError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'@');
    if (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(legal) {
        Ok(())
    } else {
        Err(CgroupError::BadName {
            name: name.chars().take(80).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "cpu.max",
            "-x",
            "a\0b",
            "é",
            &"x".repeat(201),
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "tenant-1_fw", &"x".repeat(200)] {
            assert!(check_name(good).is_ok(), "{good:?}");
        }
    }
}
