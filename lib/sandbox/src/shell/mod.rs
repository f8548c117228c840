//! Shells: prepared instances without a program yet.
//!
//! [`Shell::prepare`] makes everything that does not depend on the network function: process, namespaces, cgroup,
//! root directory, privileges. The rest, [`Shell::launch`], is one message and one exec; its cost does not depend on
//! how many instances there are. A daemon keeps a pool of shells per flavor; [`spawn`] prepares and launches in a
//! row.
//!
//! A shell is a child of the process that prepared it, and ends by itself when that process dies. An instance does not:
//! it goes on, becomes a child of init, and is found again by [`crate::Instance::adopt`]. Under a service manager this
//! takes `KillMode=process`.
//!
//! # Forking from a daemon with threads
//! The shell is a copy of the memory of the process that forks it, made by one clone3 without CLONE_VM, and until it
//! executes its program it runs only what [`crate::child`] allows itself. A daemon whose memory may grow has a
//! [`crate::Zygote`] do it.

pub(crate) mod message;
pub(crate) mod step;

mod launching;
mod preparing;

pub use launching::{Barriers, Spawned};
pub use preparing::Shell;
pub use step::Step;

use crate::error::{Errno, OsError};
use crate::identity::KernelId;
use crate::instance::{Ended, InstanceError};
use crate::launch::Launch;
use crate::polling::poll_readable;
use crate::spec::ShellSpec;
use message::Report;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Longest time of a step of the set-up before it counts as stuck. Each step is a few system calls.
const STEP_WAIT: Duration = Duration::from_secs(20);

/// Reason for which there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// An operation on the parent's side failed.
    #[error("instance {name}: {source}")]
    Os {
        /// The instance.
        name: String,
        /// The kernel's refusal.
        source: OsError,
    },
    /// A step of the set-up failed in the instance.
    #[error("instance {name}: cannot {step}: {errno}{remedy}", step = step.text(), remedy = told(step.remedy(*errno)))]
    Step {
        /// The instance.
        name: String,
        /// Which step.
        step: Step,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The set-up died.
    #[error(
        "instance {name}: the set-up was {how}; if by signal 9, the instance's memory limit is too small to start in"
    )]
    Died {
        /// The instance.
        name: String,
        /// The way in which the set-up ended.
        how: Ended,
    },
    /// The set-up does not answer.
    #[error(
        "instance {name}: the set-up did not answer for {seconds} s and was killed; is its cgroup frozen or without CPU?"
    )]
    Stuck {
        /// The instance.
        name: String,
        /// For how long.
        seconds: u64,
    },
    /// A dynamically linked program for an empty root directory.
    #[error(
        "instance {name}: {program} needs the loader {interpreter}, and the instance's root directory is empty; \
         give it library directories, or link it statically"
    )]
    NoLoader {
        /// The instance.
        name: String,
        /// The program.
        program: PathBuf,
        /// The interpreter that the program needs.
        interpreter: PathBuf,
    },
    /// The launch asks for what cannot be.
    #[error("instance {name}: {what}")]
    BadLaunch {
        /// The instance.
        name: String,
        /// The defect.
        what: String,
    },
    /// The instance's cgroup.
    #[error("instance {name}: {source}")]
    Cgroup {
        /// The instance.
        name: String,
        /// The cgroup's error.
        source: crate::cgroup::CgroupError,
    },
    /// The process that forks shells.
    #[error("instance {name}: {source}")]
    Zygote {
        /// The instance.
        name: String,
        /// The zygote's error.
        source: crate::zygote::ZygoteError,
    },
    /// The Landlock rules.
    #[error("instance {name}: cannot make Landlock rules: {source}")]
    Landlock {
        /// The instance.
        name: String,
        /// The error of the rules.
        source: landlock::RulesetError,
    },
    /// The started process.
    #[error("instance {name}: {source}")]
    Instance {
        /// The instance.
        name: String,
        /// The instance's error.
        source: InstanceError,
    },
}

fn told(remedy: &str) -> String {
    if remedy.is_empty() {
        String::new()
    } else {
        format!("; {remedy}")
    }
}

/// Prepares a shell and launches a program in it.
///
/// # Errors
/// [`SpawnError`]. Nothing is left behind except the cgroup, which is the caller's.
pub fn spawn(shell: &ShellSpec<'_>, launch: &Launch<'_>) -> Result<Spawned, SpawnError> {
    Shell::prepare(shell)?.launch(launch)
}

/// A report of the set-up.
enum Heard {
    Report(Report),
    /// The socket was closed: the program runs, or the set-up died.
    Closed,
    Nothing,
}

fn hear(control: &OwnedFd) -> Result<Heard, Errno> {
    if !poll_readable(control.as_fd(), STEP_WAIT)? {
        return Ok(Heard::Nothing);
    }
    let mut bytes = [0u8; Report::BYTES];
    match rustix::io::read(control, &mut bytes) {
        Ok(0) | Err(Errno::CONNRESET) => Ok(Heard::Closed),
        Ok(length) => {
            let report = bytes.get(..length).and_then(Report::decode);
            report.map(Heard::Report).ok_or(Errno::BADMSG)
        }
        Err(errno) => Err(errno),
    }
}

/// Writes the one-line user and group maps of a user namespace (user_namespaces(7)).
fn write_maps(pid: u32, inside: (u32, u32), id: KernelId) -> Result<(), OsError> {
    for (file, inside) in [("uid_map", inside.0), ("gid_map", inside.1)] {
        let path = format!("/proc/{pid}/{file}");
        let map = format!("{inside} {id} 1");
        std::fs::write(&path, &map).map_err(|error| {
            OsError::from_io("write", format!("{map:?} to {path}"), &error)
                .remedy("the daemon needs root, with CAP_SETUID and CAP_SETGID, and /proc mounted")
        })?;
    }
    Ok(())
}
