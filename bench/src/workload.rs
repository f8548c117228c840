//! Workload of a measurement: an NF with its configuration, and the traffic that exercises all of it. The NF's process
//! and the sender's process both derive configuration and traffic from the same few parameters.

use crate::traffic::{Flow, numbered};
use nfluid_control::document::read_unchecked;
use nfluid_control::guards::{guard_of, with_guards};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Number of flows of traffic whose flows do not matter.
const FLOWS: u32 = 1000;
/// Number of destinations where they matter: more than any cache holds.
const DESTINATIONS: usize = 1 << 20;
/// Networks and port of the traffic through firewalls: see [`numbered`].
const NET_FROM: &str = "10.0.0.0/16";
const NET_TO: &str = "10.1.0.0/16";
const PORT: u16 = 53;
/// From this number of routes on, prefix lengths and order are those of the Internet.
const MANY_ROUTES: usize = 1000;

/// An NF with its configuration, and the traffic that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// A bridge from port to port.
    Bridge,
    /// A firewall of `rules` rules, of which only the last matches, and `flows` flows (at most 65,536).
    Firewall { rules: u32, flows: u32 },
    /// A router of `routes` routes through four neighbours.
    Router { routes: usize },
    /// The guard of a port whose security group has `rules` rules, of which only the last matches, and `flows` flows.
    Guard { rules: u32, flows: u32 },
    /// A NAT with `flows` UDP flows from inside, a hundred per host.
    Nat { flows: u32 },
}

impl Workload {
    /// Returns the NF's name in the catalogue.
    pub fn nf(self) -> &'static str {
        match self {
            Workload::Bridge => "bridge",
            Workload::Firewall { .. } | Workload::Guard { .. } => "firewall",
            Workload::Router { .. } => "router",
            Workload::Nat { .. } => "nat",
        }
    }

    /// Returns the NF's configuration.
    pub fn config(self) -> Value {
        match self {
            Workload::Bridge => Value::Null,
            Workload::Firewall { rules, .. } => json!({ "rules": firewall_rules(rules) }),
            Workload::Guard { rules, .. } => guard_config(rules),
            Workload::Router { routes } => router_config(routes),
            Workload::Nat { .. } => json!({ "pool": ["203.0.113.1"], "seed": 1 }),
        }
    }

    /// Returns the flows of the traffic that the NF forwards, in the order in which they are sent.
    pub fn flows(self) -> Vec<Flow> {
        match self {
            Workload::Bridge => (0..FLOWS).map(numbered).collect(),
            Workload::Firewall { flows, .. } | Workload::Guard { flows, .. } => {
                (0..flows).map(numbered).collect()
            }
            Workload::Router { routes } => routed_flows(routes),
            Workload::Nat { flows } => (0..flows).map(inside_flow).collect(),
        }
    }

    /// Describes the traffic for a figure's conditions.
    pub fn traffic(self) -> String {
        match self {
            Workload::Router { routes } if routes >= MANY_ROUTES => {
                format!("{DESTINATIONS} random destinations")
            }
            Workload::Bridge | Workload::Router { .. } => format!("{FLOWS} flows"),
            Workload::Firewall { flows, .. }
            | Workload::Guard { flows, .. }
            | Workload::Nat { flows } => format!("{flows} flows"),
        }
    }
}

/// Returns rules that nearly match: the source always, the destination or the port only in the last rule.
fn firewall_rules(rules: u32) -> String {
    let mut text = String::new();
    for (from, to, port) in near_misses(rules) {
        let _infallible = writeln!(text, "deny udp from {from} to {to} {port}");
    }
    let _infallible = writeln!(text, "allow udp from {NET_FROM} to {NET_TO} {PORT}");
    text
}

/// Returns the destination and port of each rule of a security group: those of the traffic in the last rule only.
pub fn group_rules(rules: u32) -> impl Iterator<Item = (String, u16)> {
    let near = near_misses(rules).map(|(_, to, port)| (to, port));
    near.chain([(NET_TO.to_owned(), PORT)])
}

/// Returns source, destination and port for all of so many rules but the last: either the destination is not that of the traffic, or the port.
pub fn near_misses(rules: u32) -> impl Iterator<Item = (&'static str, String, u16)> {
    (1..rules).map(|i| match i % 2 {
        0 => {
            let to = format!("10.{}.{}.0/24", 2 + i % 200, i / 200 % 256);
            ("10.0.0.0/8", to, PORT)
        }
        _ => (NET_FROM, NET_TO.to_owned(), (1000 + i % 50_000) as u16),
    })
}

/// Returns what the platform configures the guard of a port with.
fn guard_config(rules: u32) -> Value {
    let rule = |(to, port): (String, u16)| json!({ "direction": "out", "protocol": "udp", "ports": port, "remote": to });
    let rules: Vec<Value> = group_rules(rules).map(rule).collect();
    let port =
        json!({ "switch": "lan", "security_groups": ["g"], "allowed_addresses": [NET_FROM] });
    let document = json!({
        "version": 1,
        "switches": { "lan": {} },
        "security_groups": { "g": { "rules": rules } },
        "instances": { "i": { "nf": "counter", "ports": { "p": port } } },
    });
    let deployment = read_unchecked(&document.to_string(), None).unwrap_or_default();
    let whole = with_guards(&deployment);
    let guard = whole.instances.get(&guard_of("i", "p"));
    guard.map_or(Value::Null, |guard| guard.config.clone())
}

fn router_config(routes: usize) -> Value {
    let mut text = String::new();
    for (i, (prefix, length)) in prefixes(routes).into_iter().enumerate() {
        let gateway = 2 + i % 4;
        let _infallible = writeln!(text, "{prefix}/{length} via 10.0.1.{gateway} dev p1");
    }
    let neighbour = |i: u8| {
        let mac = format!("02:aa:00:00:00:{i:02x}");
        json!({ "port": "p1", "address": format!("10.0.1.{i}"), "mac": mac })
    };
    json!({
        "addresses": { "p0": ["10.0.0.1/24"], "p1": ["10.0.1.1/24"] },
        "routes_text": text,
        "neighbours": (2..6).map(neighbour).collect::<Vec<_>>(),
    })
}

/// Returns `count` different prefixes.
fn prefixes(count: usize) -> Vec<(Ipv4Addr, u32)> {
    if count < MANY_ROUTES {
        // Few: one /16 each.
        let prefix = |i: usize| (Ipv4Addr::new(20 + (i >> 8) as u8, i as u8, 0, 0), 16);
        return (0..count).map(prefix).collect();
    }
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let mut seen = HashSet::with_capacity(count);
    let mut list = Vec::with_capacity(count);
    while list.len() < count {
        // As in the Internet's routing table: six in ten are /24.
        let length = match random.next() % 100 {
            0..60 => 24,
            60..72 => 23,
            72..84 => 22,
            84..92 => 20,
            92..97 => 16,
            97 => 19,
            _ => 28,
        };
        let anywhere = 0x0b00_0000 + random.next() as u32 % 0xc000_0000;
        let address = anywhere & (u32::MAX << (32 - length));
        let special = matches!(address >> 24, 127 | 169 | 224..);
        if !special && seen.insert((address, length)) {
            list.push((Ipv4Addr::from_bits(address), length));
        }
    }
    list
}

fn routed_flows(routes: usize) -> Vec<Flow> {
    let prefixes = prefixes(routes);
    let mut random = Xorshift(0x2545_f491_4f6c_dd1d);
    let count = if routes < MANY_ROUTES {
        FLOWS as usize
    } else {
        DESTINATIONS
    };
    let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 1024);
    let flow = |_| {
        let (prefix, length) = prefixes[random.next() as usize % prefixes.len()];
        let host = random.next() as u32 & (u32::MAX >> length);
        let to = Ipv4Addr::from_bits(prefix.to_bits() | host);
        (from, SocketAddrV4::new(to, 53))
    };
    (0..count).map(flow).collect()
}

fn inside_flow(flow: u32) -> Flow {
    let host = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + flow / 100);
    let to = Ipv4Addr::new(198, 51, 100, 1 + (flow % 200) as u8);
    (
        SocketAddrV4::new(host, 10_000 + (flow % 100) as u16),
        SocketAddrV4::new(to, 53),
    )
}

/// Marsaglia's generator: the same numbers in every process and run.
pub struct Xorshift(u64);

impl Xorshift {
    /// Makes a generator from a seed that is not 0.
    pub fn new(seed: u64) -> Self {
        Xorshift(seed)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Workload, prefixes};
    use std::collections::HashSet;

    #[test]
    fn as_many_rules_routes_and_flows_as_asked_for() {
        assert_eq!(super::firewall_rules(10).lines().count(), 10);
        assert_eq!(super::firewall_rules(10_000).lines().count(), 10_000);
        let guard = super::guard_config(100);
        let rules = guard["rules"].as_array().expect("a guard's rules");
        let of_group = rules.iter().filter_map(serde_json::Value::as_str);
        assert_eq!(
            of_group.filter(|rule| rule.ends_with("keep-state")).count(),
            100
        );
        for count in [10, 5000] {
            let different: HashSet<_> = prefixes(count).into_iter().collect();
            assert_eq!(different.len(), count);
        }
        let flows: HashSet<_> = Workload::Nat { flows: 10_000 }
            .flows()
            .into_iter()
            .collect();
        assert_eq!(flows.len(), 10_000);
    }
}
