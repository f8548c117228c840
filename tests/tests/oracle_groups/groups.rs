//! The same groups in the languages of nfluid, of Neutron and of nftables.

use super::connection::MACS;
use nfluid_testbed::random::Random;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The groups; the guarded port is in the first two.
pub const GROUPS: [&str; 3] = ["web", "base", "store"];
/// The guarded port's addresses.
pub const OWN: [&str; 2] = ["10.0.0.5", "2001:db8::5"];
/// The link-local address of the guarded port's hardware address, 02:00:00:00:00:0a.
pub const LINK_LOCAL: &str = "fe80::ff:fe00:a";
/// Addresses of other ports: each group has two of them, some are in none.
pub const OTHERS: [[&str; 2]; 4] = [
    ["10.0.0.6", "2001:db8::6"],
    ["10.0.1.7", "2001:db8:1::7"],
    ["10.0.1.8", "2001:db8:1::8"],
    ["192.0.2.9", "2001:db8:2::9"],
];
const PREFIXES: [[&str; 2]; 3] = [
    ["10.0.0.0/24", "2001:db8::/64"],
    ["10.0.1.0/24", "2001:db8:1::/48"],
    ["10.0.0.0/8", "2001:db8::/32"],
];

/// A rule in each language.
pub struct Rule {
    yaml: String,
    nft: String,
    /// Neutron has one rule for each family.
    neutron: Vec<Value>,
}

impl Rule {
    fn random(random: &mut Random) -> Rule {
        let is_in = random.one_in(2);
        let family = random.below(3) as usize;
        let mut yaml = format!("direction: {}", if is_in { "in" } else { "out" });
        let mut nft = format!("meta mark {} ct state new", if is_in { 2 } else { 1 });
        let mut neutron = Map::new();
        let direction = if is_in { "ingress" } else { "egress" };
        neutron.insert("direction".into(), direction.into());
        let word = |family: usize| ["ip", "ip6"][family];
        if family < 2 {
            let _ = write!(yaml, ", family: {}", ["ipv4", "ipv6"][family]);
            let _ = write!(nft, " meta nfproto {}", ["ipv4", "ipv6"][family]);
        }
        let side = if is_in { "saddr" } else { "daddr" };
        // A set of addresses is of one family.
        match random.below(3) {
            1 if family < 2 => {
                let prefix = random.pick(&PREFIXES)[family];
                let _ = write!(yaml, ", remote: '{prefix}'");
                let key = ["dest_ip_prefix", "source_ip_prefix"][usize::from(is_in)];
                neutron.insert(key.into(), prefix.into());
                let _ = write!(nft, " {} {side} {prefix}", word(family));
            }
            2 if family < 2 => {
                let group = random.pick(&GROUPS);
                let _ = write!(yaml, ", remote_group: {group}");
                neutron.insert("remote_group_id".into(), group.into());
                let _ = write!(nft, " {} {side} @{group}{family}", word(family));
            }
            _ => {}
        }
        let mut families: &[&str] = [&["IPv4"][..], &["IPv6"], &["IPv4", "IPv6"]][family];
        match random.below(6) {
            0 => {}
            1 | 2 => with_ports(random, "tcp", &mut yaml, &mut nft, &mut neutron),
            3 => with_ports(random, "udp", &mut yaml, &mut nft, &mut neutron),
            4 => {
                let is_v6 = icmp(random, family, &mut yaml, &mut nft, &mut neutron);
                families = if is_v6 { &["IPv6"] } else { &["IPv4"] };
            }
            _ => {
                let number = random.pick(&[50, 200]);
                neutron.insert("protocol".into(), number.to_string().into());
                let _ = write!(yaml, ", protocol: {number}");
                let _ = write!(nft, " meta l4proto {number}");
            }
        }
        Rule {
            yaml: format!("{{ {yaml} }}"),
            nft: format!("{nft} accept"),
            neutron: families
                .iter()
                .map(|family| {
                    let mut rule = neutron.clone();
                    rule.insert("ethertype".into(), (*family).into());
                    rule.into()
                })
                .collect(),
        }
    }
}

fn with_ports(
    random: &mut Random,
    protocol: &str,
    yaml: &mut String,
    nft: &mut String,
    neutron: &mut Map<String, Value>,
) {
    neutron.insert("protocol".into(), protocol.into());
    let _ = write!(yaml, ", protocol: {protocol}");
    let _ = write!(nft, " meta l4proto {protocol}");
    for (key, field) in [("ports", "dport"), ("source_ports", "sport")] {
        if random.one_in(if key == "ports" { 2 } else { 6 }) {
            let range = random.pick(&["80", "80-81", "1-67", "82-65535", "443"]);
            let _ = write!(yaml, ", {key}: {range}");
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let prefix = ["source_", ""][usize::from(key == "ports")];
            for (end, port) in [("min", low), ("max", high)] {
                let port: u16 = port.parse().expect("a port");
                neutron.insert(format!("{prefix}port_range_{end}"), port.into());
            }
            let _ = write!(nft, " {protocol} {field} {range}");
        }
    }
}

/// Returns true for ICMPv6.
fn icmp(
    random: &mut Random,
    family: usize,
    yaml: &mut String,
    nft: &mut String,
    neutron: &mut Map<String, Value>,
) -> bool {
    let is_v6 = family == 1 || family == 2 && random.one_in(2);
    let (protocol, word, kinds) = match is_v6 {
        true => ("icmpv6", "icmpv6", [128, 128]),
        false => ("icmp", "icmp", [8, 13]),
    };
    let number = if is_v6 { 58 } else { 1 };
    let _ = write!(yaml, ", protocol: {protocol}");
    let _ = write!(nft, " meta l4proto {number}");
    neutron.insert("protocol".into(), number.to_string().into());
    let kind = random.pick(&kinds);
    match random.below(3) {
        0 => {}
        1 => {
            let _ = write!(yaml, ", icmp: {kind}");
            neutron.insert("port_range_min".into(), kind.into());
            let _ = write!(nft, " {word} type {kind}");
        }
        _ => {
            let code = random.below(2);
            let _ = write!(yaml, ", icmp: {kind}/{code}");
            neutron.insert("port_range_min".into(), kind.into());
            neutron.insert("port_range_max".into(), code.into());
            let _ = write!(nft, " {word} type {kind} {word} code {code}");
        }
    }
    is_v6
}

/// The rules of each group.
pub fn random_groups(random: &mut Random) -> Vec<Vec<Rule>> {
    let mut rules = || {
        let count = random.below(6);
        (0..count).map(|_| Rule::random(random)).collect()
    };
    GROUPS.map(|_| rules()).into()
}

/// The groups that each port is in: the guarded one first.
fn memberships() -> [&'static [&'static str]; 5] {
    [
        &["web", "base"],
        &["store"],
        &["store", "web"],
        &["base"],
        &[],
    ]
}

fn addresses(port: usize) -> [&'static str; 2] {
    match port {
        0 => OWN,
        other => OTHERS[other - 1],
    }
}

pub fn document(groups: &[Vec<Rule>]) -> String {
    let mut text = "version: 1\nswitches: { lan: {} }\nsecurity_groups:\n".to_owned();
    for (name, rules) in GROUPS.iter().zip(groups) {
        let rules: Vec<&str> = rules.iter().map(|rule| rule.yaml.as_str()).collect();
        let _ = writeln!(text, "  {name}: {{ rules: [{}] }}", rules.join(", "));
    }
    text += "instances:\n";
    for (at, groups) in memberships().iter().enumerate() {
        let [v4, v6] = addresses(at);
        let _ = writeln!(
            text,
            "  i{at}: {{ nf: bridge, ports: {{ p: {{ switch: lan, mac: '02:00:00:00:00:{:02x}', security_groups: [{}], \
             allowed_addresses: ['{v4}', '{v6}'] }}, q: {{}} }} }}",
            0x0a + at,
            groups.join(", ")
        );
    }
    text
}

/// The same groups as Neutron's agent gives them to a firewall. `port`: the guarded port's number and network there.
pub fn calls(groups: &[Vec<Rule>], (number, net): (u32, u16)) -> Value {
    let mut rules = Map::new();
    let mut members = Map::new();
    for (name, found) in GROUPS.iter().zip(groups) {
        let of_group: Vec<&Value> = found.iter().flat_map(|rule| &rule.neutron).collect();
        rules.insert((*name).into(), json!(of_group));
        let ports = (0..).zip(memberships());
        let in_group = ports.filter(|(_, it)| it.contains(name));
        let addresses: Vec<&str> = in_group.flat_map(|(port, _)| addresses(port)).collect();
        members.insert((*name).into(), json!(addresses));
    }
    let mac = MACS.0.to_string();
    let port = json!({
        "number": number, "net": net, "mac": mac, "addresses": OWN.map(|address| [&mac, address]), "groups": memberships()[0],
    });
    json!({ "rules": rules, "members": members, "ports": { "guarded": port } })
}

/// The same groups in the kernel. `ct state new` is what the guard's `keep-state` is.
pub fn ruleset(groups: &[Vec<Rule>]) -> String {
    let mut text = "flush ruleset\n\
         table bridge side { chain pre { type filter hook prerouting priority -300;\n\
         iifname n0 meta mark set 1\niifname n1 meta mark set 2\n}\n}\ntable inet groups {\n"
        .to_owned();
    for (family, kind) in ["ipv4_addr", "ipv6_addr"].into_iter().enumerate() {
        for group in GROUPS {
            let of_group = (0..)
                .zip(memberships())
                .filter(|(_, it)| it.contains(&group));
            let members: Vec<&str> = of_group.map(|(port, _)| addresses(port)[family]).collect();
            let _ = writeln!(
                text,
                "set {group}{family} {{ type {kind}; elements = {{ {} }} }}",
                members.join(", ")
            );
        }
    }
    let [v4, v6] = OWN;
    let dhcp = [
        format!("meta mark 1 ip saddr {{ 0.0.0.0, {v4} }} udp sport 68 udp dport 67"),
        format!("meta mark 1 ip6 saddr {{ {LINK_LOCAL}, {v6} }} udp sport 546 udp dport 547"),
        "meta mark 2 meta nfproto ipv4 udp sport 67 udp dport 68".to_owned(),
        "meta mark 2 meta nfproto ipv6 udp sport 547 udp dport 546".to_owned(),
    ];
    text += "chain raw { type filter hook prerouting priority raw;\n";
    for packets in &dhcp {
        let _ = writeln!(text, "{packets} notrack");
    }
    let _ = writeln!(
        text,
        "}}\nchain forward {{ type filter hook forward priority 0; policy drop;
         ip saddr 10.0.0.250 udp dport 9 accept
         meta mark 1 meta nfproto ipv4 udp sport 67 udp dport 68 drop
         meta mark 1 meta nfproto ipv6 udp sport 547 udp dport 546 drop
         meta mark 1 icmpv6 type {{ 134, 137 }} drop"
    );
    for packets in &dhcp {
        let _ = writeln!(text, "{packets} accept");
    }
    let _ = writeln!(
        text,
        "meta mark 1 ip saddr != {v4} drop
         meta mark 1 ip6 saddr != {{ {v6}, {LINK_LOCAL} }} drop
         ct state established,related accept"
    );
    for (name, rules) in GROUPS.iter().zip(groups) {
        for rule in rules.iter().filter(|_| memberships()[0].contains(name)) {
            let _ = writeln!(text, "{}", rule.nft);
        }
    }
    text + "}\n}\n"
}
