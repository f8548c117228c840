//! The compared architectures, and the numbers of NFs and frame lengths.

use super::population::{Buffers, Plan, Waiting};
use super::wired_entry::Entry;
use crate::report::Report;
use crate::roles::work::Waits;
use nfluid_switch::Wake;

/// A number of NFs that costs CPU time while idle, and takes longer to measure.
pub const MANY: u32 = 1000;
/// Latency is measured at this fraction of the achieved rate.
pub const MODERATE: f64 = 0.5;

/// An architecture.
pub struct Architecture {
    /// Prefix of the figure ids: the experiment's id, or the id, a dot and a name of the architecture.
    pub id: &'static str,
    pub title: &'static str,
    pub waiting: Waiting,
    pub buffers: Buffers,
    pub entry: Entry,
}

/// Numbers of NFs and frame lengths to measure.
pub struct Sizes {
    pub nfs: Vec<u32>,
    /// Frame lengths; figure ids omit the first length.
    pub lens: Vec<usize>,
    pub rounds: usize,
    /// Seconds with [`MANY`] NFs; fewer NFs take half the time.
    pub seconds: f64,
    /// Measures sleeping NFs also without traffic.
    pub idle: bool,
}

impl Waiting {
    /// NFs sleep until they are rung, by each frame.
    pub const SLEEPING: Waiting = Waiting {
        waits: Waits::Sleeping,
        wake: Wake::AT_ONCE,
        list: None,
    };
}

impl Sizes {
    /// Returns the numbers and lengths of all architectures.
    pub fn common(report: &Report) -> Self {
        Sizes {
            nfs: report.choose(vec![2, 4, 10, 40, 100, 400, 1000, 2000, 8000], vec![2, 100]),
            lens: report.choose(vec![700, 64, 1514], vec![700]),
            rounds: report.effort(3, 2),
            seconds: report.effort(1.0, 0.2),
            idle: false,
        }
    }

    pub fn seconds(&self, nfs: u32) -> f64 {
        if nfs >= MANY {
            self.seconds
        } else {
            self.seconds / 2.0
        }
    }
}

impl Architecture {
    /// Returns the plan of the architecture's population.
    pub fn plan(&self, nfs: u32) -> Plan {
        Plan {
            nfs,
            waiting: self.waiting,
            buffers: self.buffers,
            is_wired: self.entry != Entry::Port,
            first_switch: 0,
        }
    }
}
