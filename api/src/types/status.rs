//! The existing objects and their states.

use super::{Counters, FastPathStatus, PausedTraffic};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;

/// Versions of the daemon and of the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The daemon's version.
    pub version: String,
    /// The API's version, `v1`.
    pub api: String,
    /// The version of the kernel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// The data plane's variants in use, chosen by probing the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data_plane: Vec<String>,
}

/// The daemon as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// All desired objects exist.
    #[default]
    Ok,
    /// A desired object is missing; the reasons name it.
    Degraded,
}

/// The health of the daemon: all desired objects exist, or some are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// The health status.
    pub status: HealthStatus,
    /// The reasons why the status is not [`HealthStatus::Ok`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// The instance is being created.
    #[default]
    Starting,
    /// The instance runs.
    Running,
    /// The instance runs, and has failed its health check.
    Unhealthy,
    /// The instance is paused until it is resumed.
    Paused,
    /// The instance has ended; a restart is due.
    Waiting,
    /// The instance has ended, and its policy asks for no restart.
    Stopped,
    /// The instance crashed more often than its policy allows.
    Failed,
}

impl InstanceState {
    /// Returns the name as it appears in JSON.
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
    /// Name of the instance.
    pub name: String,
    /// The built-in NF's name, or the path of the user's program.
    pub nf: String,
    /// The engine and its object that the instance belongs to, as the engine has named them; absent: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Isolation tier: `process`, or `xdp` for a program on interfaces.
    pub tier: String,
    /// State of the instance.
    pub state: InstanceState,
    /// The reason for the failed health check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// The treatment of frames for the instance while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_traffic: Option<PausedTraffic>,
    /// Process id on the host while the instance runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Time since the last start, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// Restarts since the instance was created.
    pub restarts: u64,
    /// Time of the last start with nothing of what came before, in milliseconds since 1970-01-01 UTC: an upgrade in place and another
    /// daemon keep it, a restart does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// The last end of the instance, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// The last end of the instance as numbers, for as long as the instance does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// I/O model, which determines the party that executes the switch: `inline`, `split`, `merge` or `mix`; `xdp` for
    /// fast paths, which need none.
    #[serde(default = "inline")]
    pub io: String,
    /// The trust group whose members share the memory of frames; absent: the instance has its own memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Condition for waking the sleeping instance; absent: every frame wakes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<WakeStatus>,
    /// The flavor.
    pub flavor: String,
    /// Slots per ring.
    pub ring: u32,
    /// The group of tenants that the instance is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Promised share, in percent of one core; in a group, the proportion there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// CPU cap, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_percent: Option<f64>,
    /// Guaranteed CPU share, independent of the load of the neighbours, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee_percent: Option<f64>,
    /// Placement policy: `free`, `pinned`, `spread` or `packed`.
    #[serde(default = "free")]
    pub placement: String,
    /// The core that the placement has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Time slice on a core that others want as well, in microseconds; absent: the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<u64>,
    /// CPUs that the instance can use; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Memory limit, in bytes.
    pub memory_limit_bytes: u64,
    /// The ports, `instance.port`, in the NF's order.
    pub ports: Vec<String>,
    /// State of the fast path on its interfaces; only in tier `xdp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<FastPathStatus>,
    /// The configuration.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExitStatus {
    /// Its exit status, if it ended by itself and its parent was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the kernel killed it because it reached its memory limit.
    #[serde(default)]
    pub out_of_memory: bool,
}

/// The condition for waking a sleeping instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WakeStatus {
    /// Number of frames at one of the ports.
    pub frames: u32,
    /// Maximum time after the first of these frames, in microseconds.
    pub after_us: u64,
}

/// The value for responses of daemons that do not send it.
fn inline() -> String {
    "inline".to_owned()
}

/// The value for responses of daemons that do not send it.
fn free() -> String {
    "free".to_owned()
}

/// The state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    /// The port carries traffic.
    Up,
    /// The port's owner does not run, or its interface is gone.
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
    /// MAC address.
    pub mac: String,
    /// State of the port.
    pub state: PortState,
    /// Destination of frames from the port, in words: `switch lan vlan 10`, `port nat1.in`, `classifier (3 rules)`.
    pub destination: String,
    /// Slots per ring.
    pub ring: u32,
    /// Queues among which received frames are spread by flow, each with a ring of its own.
    #[serde(default = "one_queue")]
    pub queues: u16,
    /// Traffic since the port was created.
    pub counters: Counters,
}

/// The value for responses of daemons that do not send it.
fn one_queue() -> u16 {
    1
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SwitchStatus {
    /// Name of the switch.
    pub name: String,
    /// The attached ports.
    pub ports: Vec<String>,
    /// Ageing time of a learned address, in seconds.
    pub ageing_s: u64,
    /// Number of addresses that the switch knows now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<u64>,
    /// The engine that has made it, and the engine's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecurityGroupStatus {
    /// Name of the group.
    pub name: String,
    /// Number of its rules.
    pub rules: u32,
    /// The ports in the group.
    pub ports: Vec<String>,
    /// Addresses of these ports, which rules of other groups mean by the group's name.
    pub addresses: Vec<String>,
    /// The engine that has made it, and the engine's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkStatus {
    /// `a--b`.
    pub name: String,
    /// The first end.
    pub a: String,
    /// The second end.
    pub b: String,
    /// Up if both ends are up.
    pub state: PortState,
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainStatus {
    /// Name of the chain.
    pub name: String,
    /// The end where traffic enters.
    pub from: String,
    /// The end where traffic leaves.
    pub to: String,
    /// The instances in between, in order.
    pub via: Vec<String>,
    /// The rules for frames that enter the chain at `from`; empty: all frames.
    pub rules: Vec<String>,
    /// The rules for frames that enter the chain at `to`; empty: all frames.
    pub return_rules: Vec<String>,
    /// Up if every port on the way is up.
    pub state: PortState,
}

/// An uplink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UplinkStatus {
    /// Name of the uplink.
    pub name: String,
    /// The engine that has made it, and the engine's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The interface.
    pub interface: String,
    /// Network namespace of the interface, if not the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// `xdp` or `tap`.
    pub kind: String,
    /// The XDP mode in use (`native`, `generic`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The reason for this mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_reason: Option<String>,
    /// Frames that the uplink lets in: `plain`, `checksums` (their checksums may be left to be computed) or `super` (they
    /// may also be left to be cut into packets).
    #[serde(default)]
    pub frames: String,
    /// The reason why no other frames come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_reason: Option<String>,
    /// Memory for frames longer than a slot in bytes.
    #[serde(default)]
    pub long_bytes: u64,
    /// State of the uplink.
    pub state: PortState,
    /// The reason why the uplink is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// MAC address.
    pub mac: String,
    /// Destination of received frames, as for a port.
    pub destination: String,
    /// Process that transmits for the uplink, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// CPU time of that process in seconds, without the time of XDP in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Classification by the NIC, if the uplink asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<SteeringStatus>,
    /// Traffic since the uplink was created.
    pub counters: Counters,
}

/// Classification by a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SteeringStatus {
    /// `nic` or `hybrid`.
    pub mode: String,
    /// Receive queues that belong to a port.
    pub queues: u32,
    /// Rules of chains that the NIC applies.
    pub rules: u32,
    /// Entries of the NIC's table that these rules use.
    pub flows: u32,
    /// Rules that the uplink's XDP program applies.
    pub rules_by_xdp: u32,
    /// The reason why the NIC does not apply the first of these rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Frames that the NIC has classified.
    pub frames: u64,
    /// Frames that entered without classification by the NIC: XDP has classified them.
    pub frames_by_xdp: u64,
}

/// The last lines of an instance's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// Lines, oldest first.
    pub lines: Vec<String>,
    /// The value for `since` in the next request.
    pub next: u64,
}

/// A command for an NF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Name of the command, for example `top-talkers`.
    pub name: String,
    /// Arguments of the command.
    #[serde(default)]
    pub args: Vec<String>,
}

/// An NF's response to a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CommandResponse {
    /// The NF's response.
    pub output: Value,
}
