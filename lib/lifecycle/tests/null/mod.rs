//! Tier `null`: instances that do nothing, and count what is done to them. A tier is this folder, and a row in the bed's
//! catalogue.

mod runtime;
mod workload;

pub use runtime::NullRuntime;

use nfluid_api::types::PausedTraffic;
use nfluid_control::supervise::Exit;
use nfluid_control::tier::{Capabilities, Isolation, PortKind, Row, Tier};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Instances of this tier are not isolated.
pub const ISOLATION: Isolation = Isolation("null");

/// The row of this tier.
pub const TIER: Tier = Tier(&Row {
    name: "null",
    isolation: ISOLATION,
    ports: &[PortKind::Rings],
    capabilities: Capabilities {
        boots_kernel: false,
        own_stack: false,
        has_process: true,
        hands_over: true,
        on_demand: false,
        queues: true,
        hosted: false,
    },
});

/// The externally visible state of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of its process, while it runs.
    pub pid: Option<u32>,
    /// The end of its process, until the daemon has noted it.
    pub exit: Option<Exit>,
    /// True if the instance is stopped.
    pub is_frozen: bool,
    /// True if its ports are open.
    pub is_up: bool,
    /// The pause in its record on the disk.
    pub paused_on_disk: Option<PausedTraffic>,
    /// True if a new process of an upgrade runs beside it.
    pub has_successor: bool,
    /// Processes that were started for it.
    pub starts: u32,
    /// Times that its rings were taken back.
    pub reclaims: u32,
}

/// All instances of a test, and the calls that are to fail.
#[derive(Default)]
pub struct World {
    /// The instances that exist, by name.
    pub instances: BTreeMap<String, Seen>,
    /// Calls that fail, by the name of the method, until they are taken out.
    pub failing: BTreeSet<&'static str>,
    pids: u32,
}

impl World {
    fn pid(&mut self) -> u32 {
        self.pids += 1;
        self.pids
    }
}

/// The world, which a test looks at while instances live in it.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// Locks the world.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the externally visible state of an instance.
    pub fn seen(&self, name: &str) -> Seen {
        self.lock().instances.get(name).cloned().unwrap_or_default()
    }

    /// Ends the process of an instance.
    pub fn crash(&self, name: &str, exit: Exit) {
        if let Some(seen) = self.lock().instances.get_mut(name)
            && seen.pid.is_some()
        {
            seen.exit = Some(exit);
        }
    }

    /// Fails if the method is to.
    fn check(&self, method: &'static str) -> anyhow::Result<()> {
        anyhow::ensure!(!self.lock().failing.contains(method), "{method} fails");
        Ok(())
    }
}
