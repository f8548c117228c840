//! I/O threads, which execute the switch for instances that do not do so themselves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The I/O threads of the platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IoStatus {
    /// Cores of the split workers.
    pub cores: Vec<u32>,
    /// Behaviour of the threads when no frames wait: `sleep` or `poll`.
    pub idle: String,
    /// Cap of all threads together, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_percent: Option<f64>,
    /// The process of the threads; absent: no threads exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The reason why no threads exist although instances need them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The CPU time that the threads have used.
    #[serde(flatten)]
    pub stats: IoStats,
}

/// The CPU time that the I/O threads of the platform have used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IoStats {
    /// CPU time of all threads since the first instance needed one, in nanoseconds.
    pub cpu_ns: u64,
    /// Time for which the threads were ready to run but throttled by their cap, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// Each thread.
    pub threads: Vec<IoThread>,
}

/// An I/O thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IoThread {
    /// Name of the thread in the kernel.
    pub name: String,
    /// The I/O model: `split`, `merge` or `mix`.
    pub model: String,
    /// The instances whose system calls the thread makes.
    pub instances: Vec<String>,
    /// The core on which the thread ran last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// CPU time since the thread was started, in nanoseconds.
    pub cpu_ns: u64,
}

impl IoThread {
    /// Returns the instance whose system calls the thread makes, if there is exactly one.
    pub fn only_instance(&self) -> Option<&str> {
        match self.instances.as_slice() {
            [one] if self.model != "split" => Some(one),
            _ => None,
        }
    }
}
