//! An instance of the platform, as its life has brought it.

use crate::record::Record;
use crate::workload::Workload;
use nfluid_api::types::InstanceState;
use nfluid_control::quantity::Millis;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::supervise::Supervisor;
use std::io;
use std::time::{Duration, Instant};

/// Weight of a new figure in the mean load.
const NEW: f64 = 0.4;

/// The state of health, as the checks have found it.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// Why the instance is unhealthy, if it is.
    pub unhealthy: Option<String>,
    /// How often the instance was found unhealthy since this daemon checks it.
    pub times: u64,
}

/// Load of an instance: the part of a core that it would use if it had the core for itself.
#[derive(Default)]
pub struct Load {
    /// CPU time and waiting time of its threads, and when they were read.
    seen: Option<(Duration, Instant)>,
    /// The mean, as a part of a core.
    pub mean: Option<f64>,
}

impl Load {
    /// Takes a new reading in: the time for which the threads have run and waited.
    pub fn measure(&mut self, used: Option<Duration>) {
        let Some(used) = used else {
            self.seen = None;
            return;
        };
        let now = Instant::now();
        if let Some((before, then)) = self.seen.replace((used, now)) {
            let passed = now.duration_since(then).as_secs_f64().max(1e-3);
            let load = used.saturating_sub(before).as_secs_f64() / passed;
            let mean = self.mean.get_or_insert(load);
            *mean += NEW * (load - *mean);
        }
    }
}

/// An instance of the platform.
pub struct Running {
    /// What the instance was made from.
    pub spec: InstanceSpec,
    /// What runs.
    pub workload: Box<dyn Workload>,
    /// Whether and when the instance is started again.
    pub supervisor: Supervisor,
    /// The core that its placement has put it on.
    pub core: Option<u32>,
    /// Its load on that core.
    pub load: Load,
    /// When it was put on its core, on the supervisor's clock.
    pub moved_at: Millis,
    /// Where it is in its life.
    pub state: InstanceState,
    /// Its health.
    pub condition: Condition,
    /// How it ended last.
    pub last_exit: Option<String>,
    /// When its process started, or was adopted.
    pub since: Instant,
}

impl Running {
    /// An instance that runs from now on.
    pub fn new(
        spec: InstanceSpec,
        workload: Box<dyn Workload>,
        core: Option<u32>,
        now: Millis,
    ) -> Self {
        Running {
            supervisor: Supervisor::new(spec.restart, now),
            spec,
            workload,
            core,
            load: Load::default(),
            moved_at: now,
            state: InstanceState::Running,
            condition: Condition::default(),
            last_exit: None,
            since: Instant::now(),
        }
    }

    /// Number of its process, while it has one.
    pub fn pid(&self) -> Option<u32> {
        self.workload.pid()
    }

    /// Returns true if it has a process.
    pub fn has_process(&self) -> bool {
        self.pid().is_some()
    }

    /// Its record.
    pub fn record(&self) -> &Record {
        self.workload.record()
    }

    /// Returns true if it is paused.
    pub fn is_paused(&self) -> bool {
        self.record().paused.is_some()
    }

    /// Returns true if it has a process that answers the daemon.
    pub fn answers(&self) -> bool {
        self.has_process() && !self.is_paused()
    }

    /// Changes its record and writes it down.
    ///
    /// # Errors
    /// The record is as before.
    pub fn change_record(&mut self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        let before = self.record().clone();
        change(self.workload.record_mut());
        let saved = self.workload.save_record();
        if saved.is_err() {
            *self.workload.record_mut() = before;
        }
        saved
    }

    /// Numbers of its ports, every queue of them.
    pub fn port_numbers(&self) -> impl Iterator<Item = u32> {
        self.workload.ports().iter().map(|port| port.number)
    }
}

/// Milliseconds on the supervisor's clock.
pub fn supervisor_time(started: Instant) -> Millis {
    Millis(started.elapsed().as_millis() as u64)
}
