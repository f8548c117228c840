//! The destination of each port's frames: the deployment from the point of view of the data plane.
//!
//! A port has one destination: a switch, another port, or a classifier that selects a port by rules. Links and chains
//! are the user's words for groups of such destinations.

use crate::matching::MatchRule;
use crate::model::{Attachment, Chain, Deployment, PortRef};
use crate::template::{ClientBy, Template};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The destination of frames that the port's owner sends (for an uplink: frames that its interface receives).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// A switch: the destination address decides.
    Switch(SwitchPort),
    /// The port that takes all frames.
    Port(PortRef),
    /// The port of the first entry that matches. A frame without a match is dropped and counted. Entries are in order
    /// of precedence.
    Classify(Vec<Classified>),
}

/// An attachment to a switch with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchPort {
    /// The switch.
    pub switch: String,
    /// Access VLAN; absent: trunk.
    pub vlan: Option<u16>,
    /// True: the switch learns source addresses. False: the switch drops frames whose source is not the port's own
    /// address.
    pub learn: bool,
}

/// An entry of a classifier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Classified {
    /// The chain that the entry belongs to, for the chain's counters.
    pub chain: String,
    /// A frame takes this entry if any of the rules matches; empty: every frame.
    pub rules: Vec<MatchRule>,
    /// Destination; absent: the frame is dropped and counted, since the port could not be created. Such a frame must
    /// not match a later entry: it would bypass the chain's NFs.
    pub to: Option<PortRef>,
    /// Instead of one port, each client has a port of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
}

/// Clients of a template that send or receive the frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Clients {
    /// The template.
    pub template: String,
    /// The property that distinguishes clients.
    pub by: ClientBy,
    /// True for frames to clients, false for frames from clients.
    pub back: bool,
}

impl Destination {
    /// Returns every port that frames can reach with this destination.
    pub fn targets(&self) -> impl Iterator<Item = &PortRef> {
        let (one, many) = match self {
            Destination::Switch(_) => (None, [].as_slice()),
            Destination::Port(to) => (Some(to), [].as_slice()),
            Destination::Classify(entries) => (None, entries.as_slice()),
        };
        one.into_iter()
            .chain(many.iter().filter_map(|entry| entry.to.as_ref()))
    }

    /// Returns the switch, if the destination is one.
    pub fn switch(&self) -> Option<&str> {
        match self {
            Destination::Switch(place) => Some(&place.switch),
            _ => None,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Switch(place) => {
                write!(f, "switch {}", place.switch)?;
                if let Some(vlan) = place.vlan {
                    write!(f, " vlan {vlan}")?;
                }
                Ok(())
            }
            Destination::Port(to) => write!(f, "port {to}"),
            Destination::Classify(entries) => {
                let rules: usize = entries.iter().map(|entry| entry.rules.len().max(1)).sum();
                write!(f, "classifier ({rules} rules)")
            }
        }
    }
}

/// The destination of every port that has one.
pub type Wiring = BTreeMap<PortRef, Destination>;

/// Computes the wiring of a valid deployment.
pub fn wiring(deployment: &Deployment) -> Wiring {
    let mut wiring = Wiring::new();
    for (name, uplink) in deployment.uplinks.iter() {
        if let Some(attachment) = &uplink.attachment {
            let place = switch_port(attachment, true);
            wiring.insert(PortRef::Uplink(name.into()), place);
        }
    }
    for (name, instance) in deployment.instances.iter() {
        for (port, spec) in instance.ports.iter() {
            if let Some(attachment) = &spec.attachment {
                let place = switch_port(attachment, false);
                wiring.insert(PortRef::instance(name, port), place);
            }
        }
    }
    for link in &deployment.links {
        wiring.insert(link.0.clone(), Destination::Port(link.1.clone()));
        wiring.insert(link.1.clone(), Destination::Port(link.0.clone()));
    }
    for (name, chain) in deployment.chains.iter() {
        wire_chain(&mut wiring, name, chain);
    }
    for (name, template) in deployment.templates.iter() {
        wire_template(&mut wiring, name, template);
    }
    for destination in wiring.values_mut() {
        simplify(destination);
    }
    wiring
}

fn switch_port(attachment: &Attachment, learn_by_default: bool) -> Destination {
    Destination::Switch(SwitchPort {
        switch: attachment.switch.clone(),
        vlan: attachment.vlan,
        learn: attachment.learn.unwrap_or(learn_by_default),
    })
}

fn wire_chain(wiring: &mut Wiring, name: &str, chain: &Chain) {
    let entry = chain
        .via
        .first()
        .map_or_else(|| chain.to.clone(), |hop| hop.input_port());
    let exit = chain
        .via
        .last()
        .map_or_else(|| chain.from.clone(), |hop| hop.output_port());
    let entry_of = |rules, to| Classified {
        chain: name.into(),
        rules,
        to: Some(to),
        clients: None,
    };
    let back = chain.effective_return_rules();
    classify(wiring, &chain.from, entry_of(chain.rules.clone(), entry));
    classify(wiring, &chain.to, entry_of(back, exit));
    let mut before = chain.from.clone();
    for hop in &chain.via {
        wiring.insert(hop.input_port(), Destination::Port(before));
        before = hop.output_port();
    }
    let mut after = chain.to.clone();
    for hop in chain.via.iter().rev() {
        wiring.insert(hop.output_port(), Destination::Port(after));
        after = hop.input_port();
    }
}

/// Adds the wiring of a template: frames from clients on one side, frames to clients on the other. The host knows the
/// instance of each client.
fn wire_template(wiring: &mut Wiring, name: &str, template: &Template) {
    let entry_of = |rules, back| Classified {
        chain: name.into(),
        rules,
        to: None,
        clients: Some(Clients {
            template: name.into(),
            by: template.client,
            back,
        }),
    };
    let (forward, back) = (template.forward_rules(), template.return_rules());
    classify(wiring, &template.from, entry_of(forward, false));
    classify(wiring, &template.to, entry_of(back, true));
}

fn classify(wiring: &mut Wiring, at: &PortRef, entry: Classified) {
    match wiring.get_mut(at) {
        Some(Destination::Classify(entries)) => entries.push(entry),
        _ => {
            wiring.insert(at.clone(), Destination::Classify(vec![entry]));
        }
    }
}

/// Replaces a classifier with a single entry for all frames by a direct connection, which needs no look-up.
fn simplify(destination: &mut Destination) {
    if let Destination::Classify(entries) = destination
        && let [only] = entries.as_slice()
        && only.rules.is_empty()
        && let Some(to) = &only.to
    {
        *destination = Destination::Port(to.clone());
    }
}
