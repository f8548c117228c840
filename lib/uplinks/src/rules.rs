//! Entries of the wiring as rules of the switch's classifier.

use nfluid_control::matching::MatchRule;
use nfluid_control::template::ClientBy;
use nfluid_switch::classifier::{Prefix, Rule, VlanMatch};
use nfluid_switch::client::{self, ClientRule};
use nfluid_wiring::Entry;

/// Converts the field that distinguishes clients, for the switch.
pub fn client_by(by: ClientBy) -> client::ClientBy {
    match by {
        ClientBy::Address => client::ClientBy::Address,
        ClientBy::Vlan => client::ClientBy::Vlan,
        ClientBy::Mac => client::ClientBy::Mac,
    }
}

/// Returns the classifier's table: every rule of every entry, in order.
pub fn rules(entries: &[Entry]) -> Vec<Rule> {
    let mut table = Vec::new();
    for entry in entries {
        let clients = entry.clients.map(|clients| ClientRule {
            template: clients.template,
            by: client_by(clients.by),
            back: clients.back,
        });
        let with_clients = |one: &MatchRule| Rule {
            clients,
            ..rule(one, entry.to)
        };
        if entry.rules.is_empty() {
            table.push(with_clients(&MatchRule::default()));
        }
        table.extend(entry.rules.iter().map(with_clients));
    }
    table
}

fn rule(one: &MatchRule, to: Option<u32>) -> Rule {
    let prefix = |net: ipnet::IpNet| Prefix {
        address: net.addr(),
        len: net.prefix_len(),
    };
    Rule {
        ether: one.ether.map(|ether| ether.0),
        vlan: one.vlan.map_or(VlanMatch::Any, VlanMatch::Id),
        src: one.src.map(prefix),
        dst: one.dst.map(prefix),
        proto: one.proto.map(|proto| proto.0),
        sport: one.sport.map(|range| range.first..=range.last),
        dport: one.dport.map(|range| range.first..=range.last),
        to,
        clients: None,
    }
}
