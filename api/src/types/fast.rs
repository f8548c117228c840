//! Fast paths: instances of tier `xdp`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Most rules of the kernel's that are listed.
pub const KERNEL_RULES_MAX: usize = 100;
/// Most applications that are listed; metrics have all of them.
pub const APPLICATIONS_MAX: usize = 50;

/// What a fast path does, and what it leaves to its slow path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastPathStatus {
    /// Where it is.
    pub interfaces: Vec<FastInterface>,
    /// The interfaces' network namespace; absent: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Who gets the packets that it does not decide: `kernel`, or `tap NAME, back NAME`, where a program or an uplink has them.
    pub slow_path: String,
    /// Packets by what became of them, and by whom: `drop` and `send` are the fast path's own doing, what it `pass`es is in
    /// order as far as it knows, `up` is handed up to the slow path for the reason named behind it.
    pub packets: BTreeMap<String, u64>,
    /// A firewall's rule set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<FastRules>,
    /// A balancer's services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<FastService>,
    /// What an inspector has found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection: Option<FastInspection>,
}

/// What flows carry, by an inspector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastInspection {
    /// The version of nDPI that classifies, or did last.
    pub library: String,
    /// The process of the slow path; absent: there is none, and what the fast path does not know passes unclassified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often such a process has died.
    pub deaths: u64,
    /// Flows that are remembered.
    pub flows: u64,
    /// Those of them that the fast path has.
    pub flows_fast: u64,
    /// How often a flow stayed with the slow path because the fast path's table was full.
    pub flows_refused: u64,
    /// Packets that have passed unclassified, for there was no room for a copy.
    pub unseen: u64,
    /// The applications with the most bytes, whichever way their packets took: the first fifty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<FastApplication>,
}

/// What was counted of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastApplication {
    /// nDPI's name of it.
    pub name: String,
    /// Flows.
    pub flows: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
}

/// An interface with a fast path on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastInterface {
    /// Its name.
    pub name: String,
    /// `native`, `generic` or `tc`; absent: the interface is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `egress`: it sees what goes out; absent: what comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Why this mode, or why it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The instances on it, in the order in which packets meet them; empty: there is no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
}

/// Who decides a firewall's rules, over all interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastRules {
    /// By the fast path.
    pub fast: u64,
    /// They cannot match what comes in here.
    pub never: u64,
    /// They only count.
    pub no_effect: u64,
    /// By the kernel.
    pub kernel: u64,
    /// Why everything behind connection tracking is left to the kernel, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_behind: Option<String>,
    /// Why everything that is not dropped is left to the kernel, although it may be sent on by others behind the firewall: what the
    /// kernel alone may stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// Those that the kernel decides, and why: the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_kernel: Vec<KernelRule>,
}

/// A rule that the fast path does not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelRule {
    /// The interface for which it is so.
    pub interface: String,
    /// Family and name of its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its handle; absent: the chain's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<u64>,
    /// Why.
    pub reason: String,
}

/// A service of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastService {
    /// Its name.
    pub name: String,
    /// Where clients find it.
    pub at: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Its servers.
    pub servers: Vec<FastServer>,
}

/// A server of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastServer {
    /// Where it listens.
    pub at: String,
    /// `up`, `draining` or `down`.
    pub state: String,
    /// Why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its weight among those that are up, as it is configured.
    pub weight: u32,
    /// Its load, where weights follow loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<FastLoad>,
    /// Packets sent to it.
    pub packets: u64,
}

/// The load of a server, as its agent tells it, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastLoad {
    /// In percent of what it can give at most, smoothed; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// Percent of its configured weight that is in force.
    pub weight_percent: u32,
    /// How often its agent has said nothing, or nothing that can be true.
    pub failures: u64,
    /// What was wrong with that the last time; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
