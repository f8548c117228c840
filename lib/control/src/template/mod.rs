//! Instances that are there while somebody needs them: a template is what every client of an uplink gets one of - an instance, or
//! a chain of several - made when its first frame comes and ended when it has been silent for a while
//! ([ADR 14](../../../../docs/adr/0014-on-demand.md)).

mod guest;

pub use guest::{Guest, Resolved, UnknownVariable, bytes_of_client};

use crate::matching::{EtherType, MatchRule};
use crate::model::{Instance, PortRef};
use crate::quantity::Millis;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// How long a client may be silent before its instance is ended, if the template does not say.
pub const IDLE_DEFAULT: Millis = Millis::secs(2);
/// Shortest and longest that a template may say.
pub const IDLE_BOUNDS: (Millis, Millis) = (Millis(100), Millis::secs(86_400));
/// Most clients at once of a template that does not say.
pub const MOST_DEFAULT: u32 = 1000;
/// Instances made per second for a template that does not say.
pub const PER_SECOND_DEFAULT: u32 = 100;
/// Bounds of both.
pub const COUNT_BOUNDS: (i64, i64) = (1, 16_000);
/// Most instances of a client.
pub const STAGES_MAX: usize = 8;
/// Between a template's and a client's name in the name of an instance, and before the number of a further one: no other
/// instance has it in its name.
pub const AT: char = '@';
/// What a configuration may have in `${...}`.
pub const VARIABLES: [&str; 3] = ["client", "name", "template"];

/// When the instances of a template are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activate {
    /// When a client's first frame comes.
    OnDemand,
}

/// What tells clients apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientBy {
    /// Their IP address: the source of frames that come in at `from`, the destination of those that come in at `to`.
    #[default]
    Address,
    /// The VLAN that they are in, on both sides.
    Vlan,
    /// Their MAC address, as [`ClientBy::Address`].
    Mac,
}

/// A template, as a user writes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Template {
    /// When its instances are made.
    pub activate: Activate,
    /// Where clients come from: an uplink.
    pub from: PortRef,
    /// Where their frames go, and where frames for them come from: an uplink.
    pub to: PortRef,
    /// Whose frames are clients': those that match one of these; empty: all.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<MatchRule>,
    /// What tells clients apart.
    pub client: ClientBy,
    /// Most clients at once.
    pub most: u32,
    /// Most instances made per second; as many may be made at once.
    pub per_second: u32,
    /// How long a client may be silent.
    #[serde(serialize_with = "as_text")]
    pub idle: Millis,
    /// What each gets.
    #[serde(flatten)]
    pub stages: Stages,
}

/// What each client of a template gets, in the order in which its frames cross it: one instance (`instance`, `in` and `out` of
/// the template), or several (`via`).
#[derive(Clone, Debug, PartialEq)]
pub struct Stages(pub Vec<Stage>);

/// An instance that each client gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// The port that gets what comes from the client.
    #[serde(rename = "in")]
    pub input: String,
    /// The port that gets what is for it.
    #[serde(rename = "out")]
    pub output: String,
    /// What it is. Texts of its configuration may say `${client}`, `${name}` and `${template}`.
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
    /// Which frames that come in at `from` are clients'.
    pub fn forward_rules(&self) -> Vec<MatchRule> {
        match self.client {
            ClientBy::Address => with_addresses(&self.rules),
            _ => self.rules.clone(),
        }
    }

    /// Which frames that come in at `to` are for clients.
    pub fn return_rules(&self) -> Vec<MatchRule> {
        let rules = self.forward_rules();
        rules.iter().map(MatchRule::mirrored).collect()
    }
}

/// Only frames with an address have a sender by address: others are left to the rules behind.
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
