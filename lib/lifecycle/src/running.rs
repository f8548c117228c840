//! An instance in the table: its workload, its policy and its history.

use crate::record::Record;
use crate::workload::Workload;
use nfluid_api::types::{ExitStatus, InstanceState, PausedTraffic};
use nfluid_control::quantity::Millis;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::supervise::Supervisor;
use std::io;
use std::time::{Duration, Instant};

/// Weight of a new figure in the mean load.
const NEW: f64 = 0.4;

/// The health of an instance, as the checks have found it.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// The reason why the instance is unhealthy, if it is.
    pub unhealthy: Option<String>,
    /// Number of times that this daemon has found the instance unhealthy.
    pub times: u64,
}

/// The load of an instance: the part of a core that the instance would use if it had the core for itself.
#[derive(Default)]
pub struct Load {
    /// CPU time and waiting time of the threads, with the time of the reading.
    seen: Option<(Duration, Instant)>,
    /// The mean, as a part of a core.
    pub mean: Option<f64>,
}

impl Load {
    /// Adds a reading: the time for which the threads have run and waited.
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
    /// The specification from which the instance was made.
    pub spec: InstanceSpec,
    /// The running part of the instance.
    pub workload: Box<dyn Workload>,
    /// The restart policy and its state.
    pub supervisor: Supervisor,
    /// The core that its placement has put it on.
    pub core: Option<u32>,
    /// The load on that core.
    pub load: Load,
    /// Time on the supervisor's clock at which the instance was put on its core.
    pub moved_at: Millis,
    /// The state in the instance's life.
    pub state: InstanceState,
    /// Its health.
    pub condition: Condition,
    /// The description of its last exit.
    pub last_exit: Option<String>,
    /// Its last exit as numbers.
    pub exit: Option<ExitStatus>,
    /// Traffic of a pause that was ended although the instance could not be thawed.
    pub(crate) still_frozen: Option<PausedTraffic>,
    /// True from the request to end until the process is gone: the supervisor does not count this exit as a crash.
    pub is_ending: bool,
    /// Time at which its process started, or was adopted.
    pub since: Instant,
}

impl Running {
    /// Creates the entry of an instance that runs from now on.
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
            exit: None,
            still_frozen: None,
            is_ending: false,
            since: Instant::now(),
        }
    }

    /// Returns the number of its process, if it has one.
    pub fn pid(&self) -> Option<u32> {
        self.workload.pid()
    }

    /// Returns true if it has a process.
    pub fn has_process(&self) -> bool {
        self.pid().is_some()
    }

    /// Returns its record.
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

    /// Changes its record and writes the record.
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

    /// Returns the numbers of its ports, counting each queue.
    pub fn port_numbers(&self) -> impl Iterator<Item = u32> {
        self.workload.ports().iter().map(|port| port.number)
    }
}

/// Returns the milliseconds on the supervisor's clock.
pub fn supervisor_time(started: Instant) -> Millis {
    Millis(started.elapsed().as_millis() as u64)
}
