//! Instances on demand. A template describes the instance, or the chain of several, that each client of an uplink gets.
//! The instances are created when the client's first frame arrives, and ended when the client has been silent for a
//! while ([ADR 14](../../../../docs/adr/0014-on-demand.md)).

mod guest;

pub use guest::{Guest, Resolved, UnknownVariable, bytes_of_client};

use crate::matching::{EtherType, MatchRule};
use crate::model::{Instance, PortRef};
use crate::quantity::Millis;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Default time of silence after which the instances of a client are ended.
pub const IDLE_DEFAULT: Millis = Millis::secs(2);
/// Minimum and maximum time of silence.
pub const IDLE_BOUNDS: (Millis, Millis) = (Millis(100), Millis::secs(86_400));
/// Default maximum number of simultaneous clients of a template.
pub const MOST_DEFAULT: u32 = 1000;
/// Default number of instances created per second for a template.
pub const PER_SECOND_DEFAULT: u32 = 100;
/// Bounds of the number of clients, and of the instances per second.
pub const COUNT_BOUNDS: (i64, i64) = (1, 16_000);
/// Maximum number of instances of a client.
pub const STAGES_MAX: usize = 8;
/// Separates the template's and the client's name in the name of an instance, and precedes the number of a further
/// instance. Names of other instances do not contain it.
pub const AT: char = '@';
/// Variables that a configuration can contain in `${...}`.
pub const VARIABLES: [&str; 3] = ["client", "name", "template"];

/// The event that creates the instances of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activate {
    /// The first frame of a client.
    OnDemand,
}

/// The property that distinguishes clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientBy {
    /// IP address: the source of frames that enter at `from`, the destination of frames that enter at `to`.
    #[default]
    Address,
    /// VLAN, on both sides.
    Vlan,
    /// MAC address, source or destination as with [`ClientBy::Address`].
    Mac,
}

/// A template as it is written in a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Template {
    /// The event that creates the instances.
    pub activate: Activate,
    /// The uplink of the clients.
    pub from: PortRef,
    /// The uplink that frames from clients leave by, and that frames for clients enter by.
    pub to: PortRef,
    /// Frames that belong to clients: those that match one of these rules; empty: all.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<MatchRule>,
    /// The property that distinguishes clients.
    pub client: ClientBy,
    /// Maximum number of simultaneous clients.
    pub most: u32,
    /// Maximum number of instances created per second, which is also the maximum burst.
    pub per_second: u32,
    /// Time of silence after which the instances of a client are ended.
    #[serde(serialize_with = "as_text")]
    pub idle: Millis,
    /// The instances of each client.
    #[serde(flatten)]
    pub stages: Stages,
}

/// The instances of each client, in the order in which the client's frames cross them: one instance (`instance`, `in`
/// and `out` of the template), or several (`via`).
#[derive(Clone, Debug, PartialEq)]
pub struct Stages(pub Vec<Stage>);

/// An instance of each client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// The port that receives frames from the client.
    #[serde(rename = "in")]
    pub input: String,
    /// The port that receives frames for the client.
    #[serde(rename = "out")]
    pub output: String,
    /// The instance. Texts of its configuration can contain `${client}`, `${name}` and `${template}`.
    pub instance: Instance,
}

impl Serialize for Stages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [one] = self.0.as_slice() {
            return one.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("via", &self.0)?;
        map.end()
    }
}

fn as_text<S: Serializer>(time: &Millis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

impl Template {
    /// Returns the rules for frames that enter at `from` and belong to clients.
    pub fn forward_rules(&self) -> Vec<MatchRule> {
        match self.client {
            ClientBy::Address => with_addresses(&self.rules),
            _ => self.rules.clone(),
        }
    }

    /// Returns the rules for frames that enter at `to` and are for clients.
    pub fn return_rules(&self) -> Vec<MatchRule> {
        let rules = self.forward_rules();
        rules.iter().map(MatchRule::mirrored).collect()
    }
}

/// Restricts rules to frames with an IP address: only these have a client by address. Other frames are left to the
/// rules behind.
fn with_addresses(rules: &[MatchRule]) -> Vec<MatchRule> {
    let all = [MatchRule::default()];
    let rules = if rules.is_empty() { &all } else { rules };
    let families = |rule: &MatchRule| {
        let is_ip = rule.src.is_some() || rule.dst.is_some() || rule.proto.is_some();
        if is_ip || rule.ether.is_some() {
            return vec![rule.clone()];
        }
        let of = |ether| MatchRule {
            ether: Some(EtherType(ether)),
            ..rule.clone()
        };
        vec![of(0x0800), of(0x86dd)]
    };
    rules.iter().flat_map(families).collect()
}
