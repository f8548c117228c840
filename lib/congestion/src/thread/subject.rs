//! Facts about instances that the congestion thread needs.

use nfluid_control::changes::Changed;
use nfluid_control::model::{PortRef, Program};
use nfluid_sandbox::cgroup::CpuClock;
use std::collections::BTreeSet;
use std::ops::Range;

/// The daemon, as the congestion thread sees it.
pub trait Subjects: Send {
    /// Returns the instances that have changed since the change with number `seen`; `None`: since ever.
    fn changes_since(&self, seen: Option<u64>) -> Changed;

    /// Returns all instances.
    fn all(&self) -> Vec<Subject>;

    /// Returns the instances with these names; `None` for an instance that is gone.
    fn named(&self, names: &BTreeSet<String>) -> Vec<(String, Option<Subject>)>;
}

/// An instance whose packets are measured.
#[derive(Debug)]
pub struct Subject {
    /// Name of the instance.
    pub name: String,
    /// The program that runs in the instance. An instance with another program is measured anew.
    pub program: Program,
    /// The ports, and the platform-wide numbers of their queues.
    pub ports: Vec<(PortRef, Range<u32>)>,
    /// The CPU time of the instance's control group; absent: the host counts none.
    pub clock: Option<CpuClock>,
    /// The process, while the instance runs.
    pub pid: Option<u32>,
    /// Process and thread of the I/O thread that works for this instance alone.
    pub io: Option<(u32, i32)>,
}

impl Subject {
    /// The platform-wide numbers of all rings of the instance.
    pub fn rings(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.iter().flat_map(|(_, ids)| ids.clone())
    }
}
