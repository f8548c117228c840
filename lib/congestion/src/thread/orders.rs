//! Orders for the congestion thread, from the deployment.

use crate::Settings;
use nfluid_control::congestion::Congestion as Desired;
use nfluid_control::inventory::Ways;
use nfluid_control::model::PortRef;

/// Orders for the congestion thread.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    /// Raised with every change.
    pub version: u64,
    /// The law of each core.
    pub settings: Settings,
    /// Chains refuse frames at their entry.
    pub backpressure: bool,
    /// Both directions of every chain.
    pub directions: Vec<DirectionOrder>,
}

/// A direction of a chain.
#[derive(Clone, Debug)]
pub struct DirectionOrder {
    /// The chain.
    pub chain: String,
    /// True: from the chain's `from` to its `to`.
    pub forward: bool,
    /// The ports by which frames enter its instances, in order.
    pub inputs: Vec<PortRef>,
}

impl DirectionOrder {
    /// The instances on it, in order.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().filter_map(PortRef::owner)
    }
}

impl Orders {
    /// Takes over the settings of a deployment. An invalid law was refused when the document was read; here an invalid law is
    /// no law.
    pub fn set_laws(&mut self, desired: &Desired) {
        let law = |law: nfluid_control::congestion::Law| law.checked().ok().flatten();
        let cores = desired.cores.iter();
        self.settings = Settings {
            law: law(desired.law),
            cores: cores.map(|(core, of)| (*core, law(*of))).collect(),
        };
        self.backpressure = desired.backpressure;
    }

    /// Takes over the chains of a deployment, both directions of each.
    pub fn set_ways(&mut self, ways: &Ways) {
        self.directions = ways
            .iter()
            .flat_map(|(name, hops)| {
                let forward = hops.iter().map(|hop| hop.input_port());
                let back = hops.iter().rev().map(|hop| hop.output_port());
                [(true, forward.collect()), (false, back.collect())].map(|(forward, inputs)| {
                    DirectionOrder {
                        chain: name.clone(),
                        forward,
                        inputs,
                    }
                })
            })
            .collect();
    }
}
