//! The I/O models, and the cores and caps with which each is measured.

use crate::host::cpu::ANY_CORE;
use crate::roles::work::Waits;
use serde::{Deserialize, Serialize};

/// An I/O model: which thread runs the switch for an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Model {
    /// The sending thread of the NF itself.
    Inline,
    /// An I/O thread on a core of its own; without work it polls or sleeps.
    Split { polls: bool },
    /// An I/O thread per NF, on the NF's core.
    Merge,
    /// An I/O thread per NF, unpinned.
    Mix,
}

/// Where the NF runs, and where its traffic is made.
const NF_CORE: usize = 0;
const TRAFFIC_CORE: usize = 1;

impl Model {
    /// All of them.
    pub const ALL: [Model; 5] = [
        Model::Inline,
        Model::Split { polls: false },
        Model::Split { polls: true },
        Model::Merge,
        Model::Mix,
    ];

    /// Returns the model's name, as figure ids have it.
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

    /// The core of a split's I/O thread: one that nobody else has, if there is one.
    pub fn io_core() -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores > 2 { 2 } else { TRAFFIC_CORE }
    }

    /// Core of the traffic's process, and what it does while it waits. Where a split's thread has to
    /// share that core, the traffic makes room for it, and may go where the NF's cap leaves room.
    pub fn traffic(self) -> (usize, Waits) {
        match self {
            Model::Split { .. } if Self::io_core() == TRAFFIC_CORE => (ANY_CORE, Waits::Yielding),
            Model::Mix => (TRAFFIC_CORE, Waits::Yielding),
            _ => (TRAFFIC_CORE, Waits::Spinning),
        }
    }

    /// Says who runs the switch, and where.
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

    /// The same, with the caps of [`io_threads`](crate::setups::io_threads).
    pub fn conditions(self) -> String {
        let capped = if self.is_split() {
            "; both capped at 50 % of a core"
        } else {
            ""
        };
        format!("{}{capped}", self.place())
    }

    /// The NF's core.
    pub fn nf_core() -> usize {
        NF_CORE
    }
}
