//! The facts about an instance that the meter of costs needs.

use nfluid_control::model::{PortRef, Program};
use nfluid_sandbox::cgroup::CpuClock;
use std::ops::Range;

/// An instance, for the meter.
#[derive(Debug)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// What runs in it: another program is another instance to the meter.
    pub program: Program,
    /// Its ports, and the numbers of their queues.
    pub ports: Vec<(PortRef, Range<u32>)>,
    /// The CPU time of its control group; absent: the host counts none.
    pub clock: Option<CpuClock>,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// Process and thread that make its calls and no other's.
    pub io: Option<(u32, i32)>,
}

impl Subject {
    /// The numbers of all its rings.
    pub fn rings(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.iter().flat_map(|(_, ids)| ids.clone())
    }
}
