//! The I/O models, and the cores and caps with which each is measured.

use crate::peer::Peer;
use crate::roles::{ANY_CORE, Role, Task, Waits};
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use serde::{Deserialize, Serialize};

/// Who runs the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Model {
    /// The sender.
    Inline,
    /// A thread on a core of its own, which polls or sleeps when nothing is to be done.
    Split { polls: bool },
    /// A thread per NF on the NF's core.
    Merge,
    /// A thread per NF anywhere.
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

    /// As in figures.
    pub fn name(self) -> &'static str {
        match self {
            Model::Inline => "inline",
            Model::Split { polls: false } => "split",
            Model::Split { polls: true } => "split-polling",
            Model::Merge => "merge",
            Model::Mix => "mix",
        }
    }

    /// Is it a split?
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

    /// Starts the process whose I/O threads serve `instances` while it runs; none in the inline model.
    pub fn start(
        self,
        scratch: &Scratch,
        instances: &[&ScratchInstance],
    ) -> anyhow::Result<Option<Peer>> {
        self.start_on(Self::io_core(), scratch, instances)
    }

    /// The same; a split's thread is on `core`.
    pub fn start_on(
        self,
        core: usize,
        scratch: &Scratch,
        instances: &[&ScratchInstance],
    ) -> anyhow::Result<Option<Peer>> {
        if self == Model::Inline {
            return Ok(None);
        }
        let role = Role {
            core,
            task: Task::Io { model: self },
        };
        Peer::start_io(scratch, instances, &role).map(Some)
    }

    /// Caps that give both sides of a split one core's worth together: the NF's process and the I/O
    /// thread's get half a core each. The other models need none: everything is on one core.
    pub fn cap(self, shares: &mut Cgroups, nf: &Peer, io: Option<&Peer>) -> anyhow::Result<()> {
        let (true, Some(io)) = (self.is_split(), io) else {
            return Ok(());
        };
        let half = Share::from_percent(50)?;
        shares.add(&[nf.pid()], Some(half), None)?;
        shares.add(&[io.pid()], Some(half), None)
    }

    /// Who runs the switch, and where.
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

    /// The same, with the caps of [`Model::cap`].
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
