//! Fast paths: instances of tier `xdp`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Maximum number of the kernel's rules that are listed.
pub const KERNEL_RULES_MAX: usize = 100;
/// Maximum number of applications that are listed; metrics have all of them.
pub const APPLICATIONS_MAX: usize = 50;

/// The state of a fast path, and the packets that it leaves to its slow path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastPathStatus {
    /// The interfaces of the fast path.
    pub interfaces: Vec<FastInterface>,
    /// The interfaces' network namespace; absent: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The receiver of packets that the fast path does not decide: `kernel`, or `tap NAME, back NAME` if a program or
    /// an uplink has the taps.
    pub slow_path: String,
    /// Packets by verdict and by origin. `drop` and `send` are the fast path's own decisions. `pass`: the packet is
    /// in order as far as the fast path knows. `up`: the packet goes to the slow path, for the reason named behind
    /// it.
    pub packets: BTreeMap<String, u64>,
    /// A firewall's rule set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<FastRules>,
    /// A balancer's services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<FastService>,
    /// The findings of an inspector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection: Option<FastInspection>,
}

/// The applications of flows, by an inspector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastInspection {
    /// The version of nDPI that classifies, or classified last.
    pub library: String,
    /// The process of the slow path. Absent: there is no process, and packets that the fast path does not know pass
    /// unclassified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Number of such processes that have died.
    pub deaths: u64,
    /// Flows that are stored.
    pub flows: u64,
    /// Number of these flows that the fast path has in its table.
    pub flows_fast: u64,
    /// Number of times that a flow stayed with the slow path because the fast path's table was full.
    pub flows_refused: u64,
    /// Packets that passed unclassified, since there was no room for a copy.
    pub unseen: u64,
    /// The applications with the most bytes on the fast and the slow path together: the first fifty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<FastApplication>,
}

/// The counters of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastApplication {
    /// nDPI's name of the application.
    pub name: String,
    /// Flows.
    pub flows: u64,
    /// Packets of these flows.
    pub packets: u64,
    /// Bytes of these packets, with Ethernet headers.
    pub bytes: u64,
}

/// An interface with a fast path on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastInterface {
    /// Name of the interface.
    pub name: String,
    /// `native`, `generic` or `tc`; absent: the interface is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `egress`: the fast path sees outgoing packets. Absent: incoming packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The reason for this mode, or for its absence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The instances on the interface, in the order in which packets pass them. Empty: no other instance is on the
    /// interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
}

/// The number of a firewall's rules by the party that decides them, over all interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastRules {
    /// Rules that the fast path decides.
    pub fast: u64,
    /// Rules that cannot match packets that come in here.
    pub never: u64,
    /// Rules that only count.
    pub no_effect: u64,
    /// Rules that the kernel decides.
    pub kernel: u64,
    /// The reason why everything behind connection tracking is left to the kernel, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_behind: Option<String>,
    /// The reason why packets that are not dropped are left to the kernel, although other fast paths behind the
    /// firewall could forward them: rules that only the kernel can apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// The rules that the kernel decides, with reasons: the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_kernel: Vec<KernelRule>,
}

/// A rule that the fast path does not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelRule {
    /// The interface that this entry concerns.
    pub interface: String,
    /// Family and name of the rule's table.
    pub table: String,
    /// The rule's chain.
    pub chain: String,
    /// The rule's handle; absent: the chain's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<u64>,
    /// The reason.
    pub reason: String,
}

/// A service of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastService {
    /// Name of the service.
    pub name: String,
    /// The address at which clients reach it.
    pub at: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The servers of the service.
    pub servers: Vec<FastServer>,
}

/// A server of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastServer {
    /// The address on which it listens.
    pub at: String,
    /// `up`, `draining` or `down`.
    pub state: String,
    /// The reason why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Configured weight among the servers that are up.
    pub weight: u32,
    /// Load of the server, if weights follow loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<FastLoad>,
    /// Packets sent to the server.
    pub packets: u64,
}

/// The load of a server, as reported by its agent, and the resulting weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastLoad {
    /// Load in percent of the server's capacity, smoothed. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// Percent of its configured weight that is in force.
    pub weight_percent: u32,
    /// Number of missing or impossible reports of its agent.
    pub failures: u64,
    /// The fault of the last report. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
