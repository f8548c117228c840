//! The I/O threads of the platform, as the daemon knows them.

use super::{IoProcess, IoStatus};
use crate::RESTART;
use nfluid_control::events::Events;
use nfluid_control::io::{IoModel, IoSettings};
use nfluid_control::quantity::Millis;
use nfluid_control::supervise::Supervisor;
use nfluid_sandbox::ProcessIdentity;
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot};
use nfluid_switch::Switch;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Where the process of the I/O threads has its files.
#[derive(Clone, Debug)]
pub struct IoPaths {
    /// Pinned maps of the platform.
    pub pin: PathBuf,
    /// Record of the process.
    pub record: PathBuf,
    /// Socket on which the process listens for the daemon.
    pub socket: PathBuf,
    /// Standard error of the process.
    pub errors: PathBuf,
}

/// The resources of the I/O threads' process.
pub struct IoMeans {
    /// Name of the platform.
    pub platform: String,
    /// Log filter of the process.
    pub log: String,
    /// The files of the process.
    pub paths: IoPaths,
    /// The platform's cgroup.
    pub cgroups: CgroupRoot,
    /// The switch.
    pub switch: Arc<Switch>,
    /// Where events are reported.
    pub events: Arc<dyn Events>,
    /// Origin of the supervisors' clock.
    pub started: Instant,
}

/// The process that has the I/O threads, and the instances whose calls each thread makes.
pub struct IoThreads {
    pub(super) means: IoMeans,
    /// The settings of the threads.
    pub(super) settings: IoSettings,
    /// The process; absent: no instance needs it, or it has ended and is due to be started.
    pub(super) process: Option<IoProcess>,
    pub(super) cgroup: Option<Cgroup>,
    /// The time of the next start.
    pub(super) supervisor: Supervisor,
    /// The last end of the process, or the reason why it could not be started again.
    pub(super) last_exit: Option<String>,
    /// The threads, by instance.
    pub(super) threads: IoStatus,
}

impl IoThreads {
    /// None yet.
    pub fn new(means: IoMeans) -> Self {
        IoThreads {
            means,
            settings: IoSettings::default(),
            process: None,
            cgroup: None,
            supervisor: Supervisor::new(RESTART, Millis(0)),
            last_exit: None,
            threads: IoStatus::new(),
        }
    }

    /// Returns the settings of the threads.
    pub fn settings(&self) -> &IoSettings {
        &self.settings
    }

    /// The process, while it runs.
    pub fn process(&self) -> Option<&IoProcess> {
        self.process.as_ref()
    }

    /// The cgroup of the process.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// The threads, by instance.
    pub fn threads(&self) -> &IoStatus {
        &self.threads
    }

    /// Process and thread that make the calls of this instance and of no other: split workers are shared, and have cores of
    /// their own.
    pub fn own_thread(&self, name: &str) -> Option<(u32, i32)> {
        let thread = self.threads.get(name)?;
        let process = self.process.as_ref().map(IoProcess::pid)?;
        let is_own = thread.model != IoModel::Split;
        is_own.then_some((process, thread.tid))
    }
}

/// Record of the process, by which a later daemon finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IoRecord {
    /// The process.
    pub process: ProcessIdentity,
}
