//! The I/O threads of the platform, as the daemon knows them.

use nfluid_control::io::IoSettings;
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::Supervisor;
use nfluid_process::RESTART;
use nfluid_process::io::{IoProcess, IoStatus};
use nfluid_sandbox::ProcessIdentity;
use nfluid_sandbox::cgroup::Cgroup;
use serde::{Deserialize, Serialize};

/// The process that has the I/O threads, and who makes whose calls.
pub struct IoSide {
    /// How threads are to be.
    pub settings: IoSettings,
    /// The process; absent: no instance needs it, or it has ended and is due to be started.
    pub process: Option<IoProcess>,
    /// Its cgroup.
    pub cgroup: Option<Cgroup>,
    /// When it is started again.
    pub supervisor: Supervisor,
    /// How it ended, or why it could not be started again.
    pub last_exit: Option<String>,
    /// The threads, by instance.
    pub threads: IoStatus,
}

impl IoSide {
    /// None yet.
    pub fn new() -> Self {
        IoSide {
            settings: IoSettings::default(),
            process: None,
            cgroup: None,
            supervisor: Supervisor::new(RESTART, Millis(0)),
            last_exit: None,
            threads: IoStatus::new(),
        }
    }
}

/// What is written down of the process, so that a later daemon finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoRecord {
    /// Which it is.
    pub process: ProcessIdentity,
}
