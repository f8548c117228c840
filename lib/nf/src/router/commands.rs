//! The operator's commands, and the gauges among the metrics.

use super::Router;
use super::config::is_link_local;
use super::hops::Target;
use super::neighbour::State;
use super::routes_text::Prefix;
use crate::function::{CommandError, Metric, Nanos};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use serde_json::{Map, Value, json};

/// Most entries that a listing shows.
const LISTED_MAX: usize = 1000;
/// Most routes that a listing looks at: neighbours' host routes are passed over.
const SCANNED_MAX: usize = 100_000;

const COMMANDS: &[&str] = &[
    "routes [PREFIX]",
    "lookup ADDRESS",
    "neighbours [PORT]",
    "flush-neighbours [PORT]",
    "counters",
];

impl Router {
    pub(super) fn run_command(
        &mut self,
        now: Nanos,
        name: &str,
        args: &[String],
    ) -> Result<Value, CommandError> {
        match (name, args) {
            ("routes", []) => Ok(self.list_routes(None)),
            ("routes", [prefix]) => {
                let within = Prefix::parse(prefix).map_err(CommandError::BadArgument)?;
                Ok(self.list_routes(Some(within)))
            }
            ("lookup", [address]) => {
                let address = address.parse().map_err(|_| {
                    CommandError::BadArgument(format!("'{address}' is not an IP address"))
                })?;
                Ok(self.look_up(address))
            }
            ("neighbours", []) => Ok(self.list_neighbours(now, None)),
            ("neighbours", [port]) => Ok(self.list_neighbours(now, Some(self.port_named(port)?))),
            ("flush-neighbours", []) => Ok(self.flush_neighbours(None)),
            ("flush-neighbours", [port]) => {
                let port = self.port_named(port)?;
                Ok(self.flush_neighbours(Some(port)))
            }
            ("counters", []) => Ok(self.list_counters()),
            ("routes" | "lookup" | "neighbours" | "flush-neighbours" | "counters", _) => {
                let usage = COMMANDS
                    .iter()
                    .find(|usage| usage.split(' ').next() == Some(name));
                let usage = usage.copied().unwrap_or_default();
                Err(CommandError::BadArgument(format!("usage: {usage}")))
            }
            _ => Err(CommandError::Unknown(COMMANDS)),
        }
    }

    fn port_named(&self, name: &str) -> Result<u8, CommandError> {
        let found = self.ports.iter().position(|port| port.name == name);
        found.map(|at| at as u8).ok_or_else(|| {
            let known: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
            let known = known.join(", ");
            CommandError::BadArgument(format!("there is no port '{name}'; there are: {known}"))
        })
    }

    fn port_name(&self, port: u8) -> &str {
        self.ports
            .get(usize::from(port))
            .map_or("", |port| &port.name)
    }

    /// Returns true if the route is there for a neighbour and not for the configuration.
    fn is_host_route(&self, to: Prefix, target: Target) -> bool {
        let Target::Neighbour { port, address } = target else {
            return false;
        };
        address == to.address
            && self
                .neighbours
                .get(port, address)
                .is_some_and(|n| n.host_route)
    }

    /// Routes within a prefix, all of both versions without one.
    fn list_routes(&self, within: Option<Prefix>) -> Value {
        let everything = ["0.0.0.0/0", "::/0"]
            .map(Prefix::parse)
            .into_iter()
            .flatten();
        let ranges: Vec<Prefix> = match within {
            Some(prefix) => Vec::from([prefix]),
            None => everything.collect(),
        };
        let mut listed = Vec::new();
        let mut more = false;
        for range in ranges {
            let inside = self
                .fib
                .routes_from(range)
                .take_while(|(to, _)| range.holds(to.address));
            for (scanned, (to, target)) in inside.enumerate() {
                if listed.len() >= LISTED_MAX || scanned >= SCANNED_MAX {
                    more = true;
                    break;
                }
                if !self.is_host_route(to, target) {
                    listed.push(self.describe_route(to, target));
                }
            }
        }
        json!({"routes": listed, "more": more, "total": self.configured_routes()})
    }

    fn configured_routes(&self) -> usize {
        self.fib.route_count()
            - self
                .neighbours
                .iter()
                .filter(|(.., n)| n.host_route)
                .count()
    }

    fn describe_route(&self, to: Prefix, target: Target) -> Value {
        let mut route = Map::new();
        route.insert("to".into(), format!("{}/{}", to.address, to.length).into());
        let (kind, port, via) = match target {
            Target::None => ("none", None, None),
            Target::Neighbour { port, address } => ("unicast", Some(port), Some(address)),
            Target::Connected { port } => ("connected", Some(port), None),
            Target::Local { port } => ("local", Some(port), None),
            Target::Broadcast => ("broadcast", None, None),
            Target::Blackhole => ("blackhole", None, None),
            Target::Unreachable => ("unreachable", None, None),
        };
        route.insert("type".into(), kind.into());
        if let Some(via) = via {
            route.insert("via".into(), via.to_string().into());
        }
        if let Some(port) = port {
            route.insert("port".into(), self.port_name(port).into());
        }
        route.into()
    }

    /// Returns the treatment of packets for an address.
    fn look_up(&self, address: IpAddr) -> Value {
        if is_link_local(address) || address.is_multicast() {
            return json!({"address": address.to_string(), "type": "not routed"});
        }
        let Some((prefix, hop)) = self.fib.covering(address) else {
            return json!({"address": address.to_string(), "type": "none"});
        };
        let target = self.fib.hops.target(hop);
        let next_hop = match target {
            Target::Neighbour { port, address } => Some((port, address)),
            Target::Connected { port } => Some((port, address)),
            _ => None,
        };
        let mut found = self.describe_route(prefix, target);
        found["address"] = address.to_string().into();
        if let Some((port, next_hop)) = next_hop {
            let neighbour = self.neighbours.get(port, next_hop);
            found["neighbour"] = neighbour.map_or("unknown", |n| n.state.name()).into();
            if let Some(known) = neighbour.filter(|n| n.state != State::Incomplete) {
                found["mac"] = known.mac.to_string().into();
            }
        }
        found
    }

    fn list_neighbours(&self, now: Nanos, only: Option<u8>) -> Value {
        let chosen = || {
            self.neighbours
                .iter()
                .filter(|(port, ..)| only.is_none_or(|only| only == *port))
        };
        let listed: Vec<Value> = chosen()
            .take(LISTED_MAX)
            .map(|(port, address, neighbour)| {
                let mut entry = json!({
                    "port": self.port_name(port),
                    "address": address.to_string(),
                    "state": neighbour.state.name(),
                });
                if neighbour.state != State::Incomplete {
                    entry["mac"] = neighbour.mac.to_string().into();
                }
                if neighbour.state != State::Permanent {
                    let left = neighbour.deadline.since(now).0 / 1_000_000;
                    entry["state_ends_in_ms"] = left.into();
                }
                entry
            })
            .collect();
        let total = chosen().count();
        json!({"neighbours": listed, "more": total > LISTED_MAX, "total": total})
    }

    /// Forgets all neighbours that were not configured.
    fn flush_neighbours(&mut self, only: Option<u8>) -> Value {
        let flushed: Vec<(u8, IpAddr)> = self
            .neighbours
            .iter()
            .filter(|(port, _, n)| {
                n.state != State::Permanent && only.is_none_or(|only| only == *port)
            })
            .map(|(port, address, _)| (port, address))
            .collect();
        for (port, address) in &flushed {
            self.forget(*port, *address);
        }
        json!({"flushed": flushed.len()})
    }

    fn list_counters(&self) -> Value {
        let mut all = Map::new();
        self.each_counter(|name, label, value| {
            let key = match label {
                Some((_, text)) => format!("{name}.{text}"),
                None => name.to_string(),
            };
            all.insert(key, value.into());
        });
        all.into()
    }

    fn each_counter(&self, sink: impl FnMut(&'static str, Option<(&'static str, &str)>, u64)) {
        let names = self.ports.iter().map(|port| port.name.as_str());
        self.counters.each(names, sink);
    }

    pub(super) fn report_counters(&self, sink: &mut dyn FnMut(Metric)) {
        self.each_counter(|name, label, value| {
            let metric = Metric::new(name, value);
            sink(match label {
                Some((label, text)) => metric.with(label, text),
                None => metric,
            });
        });
    }

    pub(super) fn report_gauges(&self, sink: &mut dyn FnMut(Metric)) {
        let families = [
            ("ipv4", self.fib.v4.route_count()),
            ("ipv6", self.fib.v6.route_count()),
        ];
        for (family, routes) in families {
            sink(Metric::new("routes", routes as u64).with("family", family));
        }
        let bytes = self.fib.v4.table_bytes() + self.fib.v6.table_bytes();
        sink(Metric::new("route_table_bytes", bytes as u64));
        sink(Metric::new("next_hops", self.fib.hops.count() as u64));
        sink(Metric::new("packets_waiting", self.neighbours.waiting()));
        for state in State::ALL {
            let count = self
                .neighbours
                .iter()
                .filter(|(.., n)| n.state == state)
                .count();
            sink(Metric::new("neighbours", count as u64).with("state", state.name()));
        }
    }
}
