//! The record of an instance: a later daemon adopts the instance by it.

use nfluid_api::types::PausedTraffic;
use nfluid_control::host::TX_SLOTS;
use nfluid_control::io::IoModel;
use nfluid_control::spec::InstanceSpec;
use nfluid_sandbox::ProcessIdentity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::os::fd::RawFd;

/// One instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The specification from which it was made, as JSON: only an instance of the same
    /// specification is adopted.
    pub spec: String,
    /// Platform-wide number of its first port; the others follow.
    pub first_port: u32,
    /// Number of its ports, queues counted.
    #[serde(default)]
    pub ports: u32,
    /// Number of its pool.
    pub pool: u32,
    /// TX slots of each of its ports; absent: it was made when all had as many.
    #[serde(default = "tx_slots_of_old")]
    pub tx_slots: u32,
    /// Index of its kernel user.
    pub user: u32,
    /// Its process; absent: it was being made.
    pub process: Option<ProcessIdentity>,
    /// Seed of its hash tables, so that nobody outside can aim at one bucket.
    #[serde(default)]
    pub seed: u64,
    /// The instances whose doorbells the instance was given, by port.
    #[serde(rename = "bells")]
    pub doorbells: Vec<Option<String>>,
    /// Descriptor under which the instance has the doorbell of its I/O thread; absent: a daemon of an older version has made
    /// the instance, and gave it none.
    #[serde(default, rename = "io_bell")]
    pub io_doorbell: Option<RawFd>,
    /// CPU time that it used before it was moved to the group in which it is.
    #[serde(default)]
    pub former_cpu_ns: u64,
    /// Time that it was held back by its cap before that.
    #[serde(default)]
    pub former_throttled_ns: u64,
    /// What came to the ports of members of it that have gone, by port.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub came_to_members: BTreeMap<String, Came>,
    /// Its cgroup, in the directory of its group; absent: it is called after the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The core that its placement has put it on.
    #[serde(default)]
    pub core: Option<u32>,
    /// It is paused, and this becomes of frames for it.
    #[serde(default)]
    pub paused: Option<PausedTraffic>,
    /// The process that is taking its place. Which of the two has the ports, they settle by themselves.
    #[serde(default)]
    pub successor: Option<ProcessIdentity>,
    /// Who makes its calls. It is not part of the specification: it changes while the instance runs.
    #[serde(default)]
    pub io: IoModel,
}

fn tx_slots_of_old() -> u32 {
    TX_SLOTS
}

impl Record {
    /// The record of an instance that is made from `spec`, with so many TX slots for each port, and has nothing yet.
    ///
    /// # Errors
    /// When the specification cannot be written as JSON.
    pub fn of(spec: &InstanceSpec, tx_slots: u32) -> serde_json::Result<Self> {
        Ok(Record {
            spec: serde_json::to_string(spec)?,
            ports: spec.ports.iter().map(|port| u32::from(port.queues)).sum(),
            io: spec.io,
            tx_slots,
            ..Record::default()
        })
    }
}

/// What has come to a port that is an end of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    /// Frames that it got.
    pub received: u64,
    /// Frames for it that were refused: the chain is held up.
    pub refused: u64,
}

impl AddAssign for Came {
    fn add_assign(&mut self, other: Self) {
        self.received = self.received.saturating_add(other.received);
        self.refused = self.refused.saturating_add(other.refused);
    }
}
