//! The record of an instance, by which a later daemon adopts the instance.

use nfluid_api::types::PausedTraffic;
use nfluid_control::host::TX_SLOTS;
use nfluid_control::io::IoModel;
use nfluid_control::spec::InstanceSpec;
use nfluid_sandbox::ProcessIdentity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::os::fd::RawFd;
use std::time::{SystemTime, UNIX_EPOCH};

/// The record of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The specification from which the instance was made, as JSON. A later daemon adopts the instance only if the
    /// specification is the same.
    pub spec: String,
    /// Platform-wide number of its first port; the others follow.
    pub first_port: u32,
    /// Number of its ports, counting each queue.
    #[serde(default)]
    pub ports: u32,
    /// Number of its pool.
    pub pool: u32,
    /// TX slots of each of its ports. Absent: the instance was made when all ports had the same number.
    #[serde(default = "tx_slots_of_old")]
    pub tx_slots: u32,
    /// Slots for long frames of each of its ports; empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long: Vec<u32>,
    /// Index of its kernel user.
    pub user: u32,
    /// Time of its last start with nothing of what came before, in milliseconds since 1970; 0: a daemon of an older version started it.
    #[serde(default)]
    pub started_ms: u64,
    /// Its process. Absent: the instance was being created.
    pub process: Option<ProcessIdentity>,
    /// Seed of its hash tables, so that an outsider cannot aim at one bucket.
    #[serde(default)]
    pub seed: u64,
    /// The instances whose doorbells the instance holds, by port.
    #[serde(rename = "bells")]
    pub doorbells: Vec<Option<String>>,
    /// Descriptor number of the I/O thread's doorbell in the instance. Absent: a daemon of an older version made the
    /// instance, without this doorbell.
    #[serde(default, rename = "io_bell")]
    pub io_doorbell: Option<RawFd>,
    /// CPU time that the instance used before it was moved to its present group.
    #[serde(default)]
    pub former_cpu_ns: u64,
    /// Time for which the cap held the instance back before that move.
    #[serde(default)]
    pub former_throttled_ns: u64,
    /// Frames that came to the ports of members that are gone, by port.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub came_to_members: BTreeMap<String, Came>,
    /// Name of its cgroup in the directory of its group. Absent: the cgroup is named after the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The core that its placement has put it on.
    #[serde(default)]
    pub core: Option<u32>,
    /// The treatment of its frames while the instance is paused. Absent: the instance is not paused.
    #[serde(default)]
    pub paused: Option<PausedTraffic>,
    /// The process that is taking over from the present one. The two processes settle which of them has the ports.
    #[serde(default)]
    pub successor: Option<ProcessIdentity>,
    /// The party that makes the instance's system calls. Not part of the specification, since it changes while the
    /// instance runs.
    #[serde(default)]
    pub io: IoModel,
}

/// Returns the time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_millis() as u64)
}

fn tx_slots_of_old() -> u32 {
    TX_SLOTS
}

impl Record {
    /// Creates the record of an instance that is made from `spec`, with `tx_slots` TX slots for each port, and owns
    /// nothing yet.
    ///
    /// # Errors
    /// The specification cannot be written as JSON.
    pub fn new(spec: &InstanceSpec, tx_slots: u32) -> serde_json::Result<Self> {
        Ok(Record {
            spec: serde_json::to_string(spec)?,
            started_ms: now_ms(),
            ports: spec.queues(),
            io: spec.io,
            tx_slots,
            long: if spec.ports.iter().any(|port| port.long > 0) {
                spec.ports.iter().map(|port| port.long).collect()
            } else {
                Vec::new()
            },
            ..Record::default()
        })
    }

    /// Returns a specification with the slots for long frames that the instance has.
    pub fn made_of(&self, spec: &InstanceSpec) -> InstanceSpec {
        let mut made = spec.clone();
        let long = self.long.iter().copied().chain(std::iter::repeat(0));
        for (port, long) in made.ports.iter_mut().zip(long) {
            port.long = long;
        }
        made
    }
}

/// Frames that have come to a port at an end of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    /// Frames that the port received.
    pub received: u64,
    /// Frames for the port that were refused: the chain is congested.
    pub refused: u64,
}

impl AddAssign for Came {
    fn add_assign(&mut self, other: Self) {
        self.received = self.received.saturating_add(other.received);
        self.refused = self.refused.saturating_add(other.refused);
    }
}
