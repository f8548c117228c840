//! Links and chains: connections of ports.

use super::PortRef;
use crate::matching::MatchRule;
use serde::Serialize;

/// A connection of two ports: what one sends, the other receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Link(pub PortRef, pub PortRef);

impl Link {
    /// The link's name: `a--b`, the ends in order, so that it does not depend on how it is written.
    pub fn name(&self) -> String {
        let (a, b) = if self.0 <= self.1 {
            (&self.0, &self.1)
        } else {
            (&self.1, &self.0)
        };
        format!("{a}--{b}")
    }
}

/// An ordered list of NFs between two end points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Where traffic enters.
    pub from: PortRef,
    /// Where it leaves, and where the answers enter.
    pub to: PortRef,
    /// The instances in between.
    pub via: Vec<Hop>,
    /// Which frames that enter at `from` take the chain; empty: all.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<MatchRule>,
    /// Which frames that enter at `to` take the chain backwards; absent: the mirrored `rules`.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub return_rules: Option<Vec<MatchRule>>,
}

impl Chain {
    /// Which frames that enter at `to` take the chain backwards; empty: all.
    pub fn effective_return_rules(&self) -> Vec<MatchRule> {
        match &self.return_rules {
            Some(rules) => rules.clone(),
            None => self.rules.iter().map(MatchRule::mirrored).collect(),
        }
    }
}

/// One instance of a chain and the ports by which the chain crosses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The instance.
    pub instance: String,
    /// The port towards the chain's `from`.
    #[serde(rename = "in")]
    pub input: String,
    /// The port towards the chain's `to`.
    #[serde(rename = "out")]
    pub output: String,
}

impl Hop {
    /// The port towards the chain's `from`.
    pub fn input_port(&self) -> PortRef {
        PortRef::instance(&self.instance, &self.input)
    }

    /// The port towards the chain's `to`.
    pub fn output_port(&self) -> PortRef {
        PortRef::instance(&self.instance, &self.output)
    }
}
