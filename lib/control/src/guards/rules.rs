//! The rules of a guard, in the firewall's words.
//!
//! As in Neutron's driver for Open vSwitch: first what a port may never say, and what it needs to have an address at all; then
//! connections that are permitted already; then the groups' rules, each of which keeps a state.

use crate::model::{Deployment, Direction, Family, Port, Remote, SecurityRule};
use crate::quantity::Mac;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// All IPv4 addresses, and all IPv6 addresses, as prefixes.
const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];
/// Listener reports and queries, router solicitation and advertisement, neighbour solicitation and advertisement.
const FROM_INSTANCE: &str = "130,131,132,133,135,136,143";
const TO_INSTANCE: &str = "130,131,132,134,135,136";

/// Most addresses of a list in the firewall's rules.
const LIST_MAX: usize = 1024;

/// The addresses of the ports in each group, for those groups that rules name.
pub type Members<'d> = BTreeMap<&'d str, BTreeSet<IpNet>>;

/// Returns the addresses of the ports in each group that a rule names.
pub fn members(deployment: &Deployment) -> Members<'_> {
    let groups = deployment.security_groups.iter();
    let rules = groups.flat_map(|(_, group)| &group.rules);
    let named = rules.filter_map(|rule| match &rule.remote {
        Remote::Group { remote_group } => Some((remote_group.as_str(), BTreeSet::new())),
        _ => None,
    });
    let mut members: Members<'_> = named.collect();
    for (name, group) in deployment.security_groups.iter() {
        if let Some(members) = members.get_mut(name) {
            members.extend(&group.members);
        }
    }
    let instances = deployment.instances.iter();
    for (_, port) in instances.flat_map(|(_, instance)| instance.ports.iter()) {
        for group in port.security_groups.iter().flatten() {
            if let Some(members) = members.get_mut(group.as_str()) {
                members.extend(deployment.addresses_at(port));
            }
        }
    }
    members
}

/// Returns the configuration of the guard of a port whose address is `mac`.
pub fn config(
    deployment: &Deployment,
    members: &Members<'_>,
    port: &Port,
    mac: Option<Mac>,
) -> Value {
    let own = own_addresses(deployment.addresses_at(port).collect(), mac);
    let mut rules = basic_rules(&own);
    let mut permitted = BTreeSet::new();
    for rule in deployment.groups_of(port).flat_map(|group| &group.rules) {
        permitted.extend(lines(rule, members));
    }
    rules.extend(permitted);
    match own.is_empty() {
        true => json!({ "rules": rules }),
        false => json!({ "rules": rules, "own_addresses": own }),
    }
}

/// Returns a port's addresses, with the link-local one that follows from its hardware address (RFC 4291, appendix A). Empty: any.
fn own_addresses(mut own: Vec<IpNet>, mac: Option<Mac>) -> Vec<IpNet> {
    let link_local = mac.map(|Mac([a, b, c, d, e, f])| {
        let identifier = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        let address = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(identifier));
        IpNet::from(IpAddr::from(address))
    });
    if !own.is_empty() {
        own.extend(link_local);
    }
    own
}

/// The rules of every guard.
fn basic_rules(own: &[IpNet]) -> Vec<String> {
    let mut rules = vec![
        "deny udp from any 67 to 0.0.0.0/0 68 out".to_owned(),
        "deny udp from any 547 to ::/0 546 out".to_owned(),
        "deny icmp6 from any to any icmp6types 134,137 out".to_owned(),
    ];
    if own.is_empty() {
        rules.extend([
            "allow udp from any 68 to 0.0.0.0/0 67 out".to_owned(),
            "allow udp from any 546 to ::/0 547 out".to_owned(),
            format!("allow icmp6 from any to any icmp6types {FROM_INSTANCE} out"),
        ]);
    } else {
        let of = |family| {
            let nets = own.iter().filter(move |net| Family::of(net) == family);
            nets.map(IpNet::to_string).collect::<Vec<_>>().join(",")
        };
        let [v4, v6] = [of(Family::Ipv4), of(Family::Ipv6)];
        let comma = if v4.is_empty() { "" } else { "," };
        rules.extend([
            format!("allow udp from 0.0.0.0{comma}{v4} 68 to any 67 out"),
            format!("allow udp from {v6} 546 to any 547 out"),
            format!("allow icmp6 from ::,{v6} to any icmp6types {FROM_INSTANCE} out"),
            format!("deny ip from not {v4}{comma}{v6} to any out"),
        ]);
    }
    rules.extend([
        "allow udp from any 67 to 0.0.0.0/0 68 in".to_owned(),
        "allow udp from any 547 to ::/0 546 in".to_owned(),
        format!("allow icmp6 from any to any icmp6types {TO_INSTANCE} in"),
        "check-state".to_owned(),
    ]);
    rules
}

/// Returns the lines of a rule: none if its group has no addresses, and nobody is permitted; several if it has very many.
fn lines(rule: &SecurityRule, members: &Members<'_>) -> Vec<String> {
    let is_meant = |net: &&IpNet| rule.family.is_none_or(|family| Family::of(net) == family);
    match &rule.remote {
        Remote::Prefix { remote } => vec![line(rule, &remote.to_string())],
        Remote::Group { remote_group } => {
            let nets = members.get(remote_group.as_str());
            let nets = nets.into_iter().flatten().filter(is_meant);
            let nets: Vec<String> = nets.map(IpNet::to_string).collect();
            let lists = nets.chunks(LIST_MAX).map(|nets| nets.join(","));
            lists.map(|list| line(rule, &list)).collect()
        }
        Remote::Anybody {} => {
            let everybody = match rule.family {
                None => "any",
                Some(Family::Ipv4) => EVERYBODY[0],
                Some(Family::Ipv6) => EVERYBODY[1],
            };
            vec![line(rule, everybody)]
        }
    }
}

/// Returns the line of a rule for these addresses.
fn line(rule: &SecurityRule, remote: &str) -> String {
    let own = match (&rule.remote, rule.family) {
        // The version of both addresses is the same; a list of members of both versions needs no more.
        (Remote::Anybody {}, Some(_)) => remote,
        _ => "any",
    };
    let protocol = rule
        .protocol
        .map_or_else(|| "ip".to_owned(), |protocol| protocol.0.to_string());
    let (from, to, direction) = match rule.direction {
        Direction::In => (remote, own, "in"),
        Direction::Out => (own, remote, "out"),
    };
    let mut line = format!("allow {protocol} from {from}");
    let mut add = |text: String| {
        line.push(' ');
        line.push_str(&text);
    };
    if let Some(ports) = rule.source_ports {
        add(ports.to_string());
    }
    add(format!("to {to}"));
    if let Some(ports) = rule.ports {
        add(ports.to_string());
    }
    if let Some(icmp) = rule.icmp {
        let types = match rule.protocol.map(|protocol| protocol.0) {
            Some(58) => "icmp6types",
            _ => "icmptypes",
        };
        add(format!("{types} {icmp}"));
    }
    add(format!("{direction} keep-state"));
    line
}
