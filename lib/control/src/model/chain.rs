//! Links and chains: connections of ports.

use super::PortRef;
use crate::matching::MatchRule;
use serde::Serialize;

/// A connection of two ports: frames that one port sends are received by the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Link(pub PortRef, pub PortRef);

impl Link {
    /// Returns the link's name: `a--b`, with the ends in sorted order, so that the name does not depend on their order
    /// in the document.
    pub fn name(&self) -> String {
        let (a, b) = if self.0 <= self.1 {
            (&self.0, &self.1)
        } else {
            (&self.1, &self.0)
        };
        format!("{a}--{b}")
    }

    /// Returns true if an end of the link is a port of an instance.
    pub fn is_of(&self, instance: &str) -> bool {
        [&self.0, &self.1]
            .into_iter()
            .any(|port| port.owner() == Some(instance))
    }
}

/// An ordered list of NFs between two end points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// The end where traffic enters.
    pub from: PortRef,
    /// The end where traffic leaves, and where the return traffic enters.
    pub to: PortRef,
    /// The instances in between.
    pub via: Vec<Hop>,
    /// Frames that enter at `from` take the chain if a rule matches; empty: all frames.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<MatchRule>,
    /// Frames that enter at `to` take the chain backwards if a rule matches; absent: the mirrored `rules`.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub return_rules: Option<Vec<MatchRule>>,
}

impl Chain {
    /// Returns true if the chain begins or ends at a port of an instance.
    pub fn ends_at(&self, instance: &str) -> bool {
        [&self.from, &self.to]
            .into_iter()
            .any(|port| port.owner() == Some(instance))
    }

    /// Returns true if frames of the chain cross an instance.
    pub fn crosses(&self, instance: &str) -> bool {
        self.via.iter().any(|hop| hop.instance == instance)
    }

    /// Returns the rules for frames that enter at `to` and take the chain backwards; empty: all frames.
    pub fn effective_return_rules(&self) -> Vec<MatchRule> {
        match &self.return_rules {
            Some(rules) => rules.clone(),
            None => self.rules.iter().map(MatchRule::mirrored).collect(),
        }
    }
}

/// An instance of a chain and the ports by which the chain crosses it.
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
    /// Returns the port towards the chain's `from`.
    pub fn input_port(&self) -> PortRef {
        PortRef::instance(&self.instance, &self.input)
    }

    /// Returns the port towards the chain's `to`.
    pub fn output_port(&self) -> PortRef {
        PortRef::instance(&self.instance, &self.output)
    }
}
