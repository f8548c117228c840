//! The I/O models, and the cores and caps of their measurements.

use crate::host::cpu::ANY_CORE;
use crate::roles::work::Waits;
use serde::{Deserialize, Serialize};

/// An I/O model: which thread runs the switch for an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Model {
    /// The sending thread of the NF itself.
    Inline,
    /// An I/O thread on its own core; without work it polls or sleeps.
    Split { polls: bool },
    /// An I/O thread per NF, on the NF's core.
    Merge,
    /// An I/O thread per NF, unpinned.
    Mix,
}

/// Core of the NF, and core of its traffic.
const NF_CORE: usize = 0;
const TRAFFIC_CORE: usize = 1;

impl Model {
    /// All models.
    pub const ALL: [Model; 5] = [
        Model::Inline,
        Model::Split { polls: false },
        Model::Split { polls: true },
        Model::Merge,
        Model::Mix,
    ];

    /// Returns the model's name in figure ids.
    pub fn name(self) -> &'static str {
        match self {
            Model::Inline => "inline",
            Model::Split { polls: false } => "split",
            Model::Split { polls: true } => "split-polling",
            Model::Merge => "merge",
            Model::Mix => "mix",
        }
    }

    /// Returns true for both forms of a split.
    pub fn is_split(self) -> bool {
        matches!(self, Model::Split { .. })
    }

    /// Returns the core of a split's I/O thread: an otherwise unused core, if there is one.
    pub fn io_core() -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores > 2 { 2 } else { TRAFFIC_CORE }
    }

    /// Returns the core of the traffic's process, and its behaviour while it waits. If a split's thread shares that
    /// core, the traffic yields, and may also run where the NF's cap leaves time.
    pub fn traffic(self) -> (usize, Waits) {
        match self {
            Model::Split { .. } if Self::io_core() == TRAFFIC_CORE => (ANY_CORE, Waits::Yielding),
            Model::Mix => (TRAFFIC_CORE, Waits::Yielding),
            _ => (TRAFFIC_CORE, Waits::Spinning),
        }
    }

    /// Returns a description of the thread that runs the switch, and its core.
    pub fn place(self) -> &'static str {
        match self {
            Model::Inline => "the NF's process runs the switch itself",
            Model::Split { polls: false } => {
                "I/O thread on another core than the NF, asleep when idle"
            }
            Model::Split { polls: true } => "I/O thread on another core than the NF, polling",
            Model::Merge => "I/O thread of the NF pinned to the NF's core",
            Model::Mix => "I/O thread of the NF unpinned",
        }
    }

    /// As [`Model::place`], with the caps of [`io_threads`](crate::setups::io_threads).
    pub fn conditions(self) -> String {
        let capped = if self.is_split() {
            "; both capped at 50 % of a core"
        } else {
            ""
        };
        format!("{}{capped}", self.place())
    }

    /// Returns the NF's core.
    pub fn nf_core() -> usize {
        NF_CORE
    }
}
