//! What exists and how it is.

use super::{Counters, FastPathStatus, PausedTraffic};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;

/// What answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The daemon's version.
    pub version: String,
    /// The API's version, `v1`.
    pub api: String,
    /// The kernel that it runs on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Which forms of the data plane run (chosen by probing the kernel).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data_plane: Vec<String>,
}

/// The daemon as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// Everything desired is there.
    #[default]
    Ok,
    /// Something desired is not there; the reasons say what.
    Degraded,
}

/// Whether everything desired is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// The verdict.
    pub status: HealthStatus,
    /// Why it is not [`HealthStatus::Ok`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Being made.
    #[default]
    Starting,
    /// Runs.
    Running,
    /// Runs, and has failed its health check.
    Unhealthy,
    /// Stands still until it is unpaused.
    Paused,
    /// Ended; a restart is due.
    Waiting,
    /// Ended, and its policy asks for no restart.
    Stopped,
    /// Crashed more often than its policy bears.
    Failed,
}

impl InstanceState {
    /// The name as it appears in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            InstanceState::Starting => "starting",
            InstanceState::Running => "running",
            InstanceState::Unhealthy => "unhealthy",
            InstanceState::Paused => "paused",
            InstanceState::Waiting => "waiting",
            InstanceState::Stopped => "stopped",
            InstanceState::Failed => "failed",
        }
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceStatus {
    /// Its name.
    pub name: String,
    /// The built-in NF's name, or the path of the user's program.
    pub nf: String,
    /// How it is isolated: `process`, or `xdp` for a program on interfaces.
    pub tier: String,
    /// Where it is in its life.
    pub state: InstanceState,
    /// Why it has failed its health check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// What becomes of frames for it while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_traffic: Option<PausedTraffic>,
    /// Process id on the host while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Time since it last started, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// Restarts since it was created.
    pub restarts: u64,
    /// How it last ended, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// Who executes the switch for it: `inline`, `split`, `merge` or `mix`; `xdp` for those that need none.
    #[serde(default = "inline")]
    pub io: String,
    /// The trust group whose members it shares the memory of frames with; absent: it has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// When it is woken if it sleeps; absent: for each frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<WakeStatus>,
    /// Its flavor.
    pub flavor: String,
    /// Slots per ring.
    pub ring: u32,
    /// The group of tenants that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Promised share, in percent of one core; in a group its proportion there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Hard cap of one core, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_percent: Option<f64>,
    /// What it gets whatever those beside it do, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee_percent: Option<f64>,
    /// Who decides on which core it runs: `free`, `pinned`, `spread` or `packed`.
    #[serde(default = "free")]
    pub placement: String,
    /// The core that its placement has put it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// How long it runs at a time beside others, in microseconds; absent: as the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<u64>,
    /// CPUs that it may run on; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Memory limit, in bytes.
    pub memory_limit_bytes: u64,
    /// Its ports, `instance.port`, in the NF's order.
    pub ports: Vec<String>,
    /// What it does on its interfaces; only in tier `xdp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<FastPathStatus>,
    /// Its configuration.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// When an instance that sleeps is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WakeStatus {
    /// As soon as so many frames wait at one of its ports.
    pub frames: u32,
    /// At the latest so long after the first of them, in microseconds.
    pub after_us: u64,
}

/// What a daemon means that does not say.
fn inline() -> String {
    "inline".to_owned()
}

/// What a daemon means that does not say.
fn free() -> String {
    "free".to_owned()
}

/// Whether a port carries traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    /// It does.
    Up,
    /// Its owner does not run, or its interface is gone.
    #[default]
    Down,
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PortState::Up => "up",
            PortState::Down => "down",
        })
    }
}

/// A port of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortStatus {
    /// `instance.port`.
    pub name: String,
    /// Its MAC address.
    pub mac: String,
    /// Whether it carries traffic.
    pub state: PortState,
    /// Where its frames go, in words: `switch lan vlan 10`, `port nat1.in`, `classifier (3 rules)`.
    pub destination: String,
    /// Slots per ring.
    pub ring: u32,
    /// Queues among which the frames for it are spread by flow, each with a ring of its own.
    #[serde(default = "one_queue")]
    pub queues: u16,
    /// Traffic since it was made.
    pub counters: Counters,
}

/// What a daemon means that does not say.
fn one_queue() -> u16 {
    1
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SwitchStatus {
    /// Its name.
    pub name: String,
    /// The ports on it.
    pub ports: Vec<String>,
    /// How long a learned address is kept, in seconds.
    pub ageing_s: u64,
    /// Addresses that it knows now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<u64>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkStatus {
    /// `a--b`.
    pub name: String,
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Up when both ends are.
    pub state: PortState,
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainStatus {
    /// Its name.
    pub name: String,
    /// Where it starts.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// The instances in between, in order.
    pub via: Vec<String>,
    /// The rules that send traffic into it at `from`; empty: everything.
    pub rules: Vec<String>,
    /// The rules that send traffic into it at `to`; empty: everything.
    pub return_rules: Vec<String>,
    /// Up when every port on the way is.
    pub state: PortState,
}

/// An uplink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UplinkStatus {
    /// Its name.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The network namespace that the interface is in, if not the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// `xdp` or `tap`.
    pub kind: String,
    /// The mode in use (`native`, `generic`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Why this mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_reason: Option<String>,
    /// Whether it carries traffic.
    pub state: PortState,
    /// Why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its MAC address.
    pub mac: String,
    /// Where its frames go, as for a port.
    pub destination: String,
    /// Process that sends for it, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// CPU time of that process in seconds; what XDP takes in the kernel is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// What its NIC classifies, where it is to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<SteeringStatus>,
    /// Traffic since it was made.
    pub counters: Counters,
}

/// Classification by a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteeringStatus {
    /// `nic` or `hybrid`.
    pub mode: String,
    /// Receive queues that are a port's own.
    pub queues: u32,
    /// Rules of chains that the NIC obeys.
    pub rules: u32,
    /// Entries of the NIC's table that they take.
    pub flows: u32,
    /// Rules that the uplink's XDP program obeys.
    pub rules_by_xdp: u32,
    /// Why the first of these is not the NIC's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Frames that the NIC has classified.
    pub frames: u64,
    /// Frames that entered otherwise: classified by XDP.
    pub frames_by_xdp: u64,
}

/// The end of an instance's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// Lines, oldest first.
    pub lines: Vec<String>,
    /// Pass this as `since` to get what comes later.
    pub next: u64,
}

/// A command to an NF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Its name, for example `top-talkers`.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

/// An NF's answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CommandResponse {
    /// Whatever the NF says.
    pub output: Value,
}
