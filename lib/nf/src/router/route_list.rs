//! The routes of a configuration: read from the list and from the text, checked, sorted, connected
//! networks and own addresses among them.

use super::config::{Port, find_port, is_link_local};
use super::hops::Target;
use super::routes_text::{self, Kind, Prefix, RouteLine};
use crate::function::ConfigError;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use serde::Deserialize;

/// Most routes, own addresses and connected networks included.
const ROUTES_MAX: usize = 2 << 20;
/// An entry of the list, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteEntry {
    to: String,
    via: Option<IpAddr>,
    port: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// A route: address, prefix length, index into [`RouteList::targets`].
pub(super) type Route<A> = (A, u8, u32);

/// All routes of a configuration.
#[derive(Debug)]
pub(super) struct RouteList {
    pub targets: Vec<Target>,
    /// Sorted by address, then length; no prefix twice.
    pub v4: Vec<Route<u32>>,
    /// As `v4`.
    pub v6: Vec<Route<u128>>,
}

/// Reads the routes: those that the ports' addresses make, the list, the text.
pub(super) fn read(
    ports: &[Port],
    list: &[RouteEntry],
    text: &str,
) -> Result<RouteList, ConfigError> {
    let mut reader = RouteReader::new(ports);
    reader.own_routes()?;
    for (index, entry) in list.iter().enumerate() {
        reader.list_entry(index, entry)?;
    }
    for (line, text) in (1..).zip(text.lines()) {
        reader.text_line(line, text)?;
    }
    Ok(RouteList {
        targets: reader.targets,
        v4: sorted(reader.v4, |bits| Ipv4Addr::from_bits(bits).into())?,
        v6: sorted(reader.v6, |bits| Ipv6Addr::from_bits(bits).into())?,
    })
}

/// Where a route was written, for an error about it.
#[derive(Clone, Copy, Debug)]
enum Origin {
    List(usize),
    Line(u32),
    Addresses,
}

impl Origin {
    fn error(self, message: String) -> ConfigError {
        match self {
            Origin::List(index) => ConfigError::at(format!("routes[{index}]"), message),
            Origin::Line(line) => ConfigError::at("routes_text", message).on_line(line),
            Origin::Addresses => ConfigError::at("addresses", message),
        }
    }
}

/// A route to hosts on a port's link. A route to one host leads to that neighbour.
fn on_link(to: Prefix, port: u8) -> Target {
    let Prefix { address, length } = to;
    match (address, length) {
        (IpAddr::V4(_), 32) | (IpAddr::V6(_), 128) => Target::Neighbour { port, address },
        _ => Target::Connected { port },
    }
}

/// Collects routes; a target that many routes share is kept once.
struct RouteReader<'a> {
    ports: &'a [Port],
    targets: Vec<Target>,
    index: BTreeMap<Target, u32>,
    v4: Vec<(u32, u8, u32, Origin)>,
    v6: Vec<(u128, u8, u32, Origin)>,
}

impl<'a> RouteReader<'a> {
    fn new(ports: &'a [Port]) -> Self {
        RouteReader {
            ports,
            targets: Vec::new(),
            index: BTreeMap::new(),
            v4: Vec::new(),
            v6: Vec::new(),
        }
    }

    /// The ports' own addresses, their networks, and those networks' broadcast addresses.
    fn own_routes(&mut self) -> Result<(), ConfigError> {
        let mut networks = BTreeMap::new();
        for (port, at) in self.ports.iter().zip(0u8..) {
            for own in port.addresses() {
                let host = if own.address.is_ipv4() { 32 } else { 128 };
                let local = Prefix {
                    length: host,
                    ..own
                };
                self.add(local, Target::Local { port: at }, Origin::Addresses)?;
                let network = own.network();
                if own.length == host {
                    continue;
                }
                match networks.insert(network, at) {
                    Some(before) if before == at => continue,
                    Some(_) => {
                        let message = format!(
                            "network {}/{} is on two ports",
                            network.address, network.length
                        );
                        return Err(ConfigError::at(format!("addresses.{}", port.name), message));
                    }
                    None => self.add(network, Target::Connected { port: at }, Origin::Addresses)?,
                }
                if let IpAddr::V6(address) = network.address
                    && port.anycasts().any(|anycast| anycast == address)
                {
                    let anycast = Prefix {
                        length: host,
                        ..network
                    };
                    self.add(anycast, Target::Local { port: at }, Origin::Addresses)?;
                }
                if let (IpAddr::V4(address), 0..=30) = (network.address, network.length) {
                    let host_bits = !super::lpm4::masked(u32::MAX, network.length);
                    let last = Ipv4Addr::from_bits(address.to_bits() | host_bits);
                    let last = Prefix {
                        address: last.into(),
                        length: 32,
                    };
                    self.add(last, Target::Broadcast, Origin::Addresses)?;
                }
            }
        }
        Ok(())
    }

    fn list_entry(&mut self, index: usize, entry: &RouteEntry) -> Result<(), ConfigError> {
        let fail = |key: &str, why| ConfigError::at(format!("routes[{index}].{key}"), why);
        let kind = match entry.kind.as_deref() {
            None => Kind::Forward,
            Some(word) => Kind::parse(word).ok_or_else(|| {
                fail(
                    "type",
                    format!("'{word}' is none of unicast, blackhole, unreachable"),
                )
            })?,
        };
        let to = routes_text::destination(&entry.to, entry.via).map_err(|why| fail("to", why))?;
        let port = entry.port.as_deref();
        let route = RouteLine {
            kind,
            to,
            via: entry.via,
            port,
        };
        self.route(&route, Origin::List(index))
    }

    fn text_line(&mut self, line: u32, text: &str) -> Result<(), ConfigError> {
        let origin = Origin::Line(line);
        match routes_text::parse_line(text).map_err(|why| origin.error(why))? {
            Some(route) => self.route(&route, origin),
            None => Ok(()),
        }
    }

    fn route(&mut self, route: &RouteLine<'_>, origin: Origin) -> Result<(), ConfigError> {
        let target = self.target(route).map_err(|why| origin.error(why))?;
        let address = route.to.address;
        let unroutable = address.is_multicast()
            || address.is_loopback()
            || is_link_local(address)
            || matches!(address, IpAddr::V4(address) if address.octets()[0] >= 240);
        if unroutable {
            return Err(origin.error(format!("{address} is never routed")));
        }
        self.add(route.to, target, origin)
    }

    fn target(&self, route: &RouteLine<'_>) -> Result<Target, String> {
        let port = route
            .port
            .map(|name| find_port(self.ports, name))
            .transpose()?;
        match (route.kind, route.via, port) {
            (Kind::Blackhole, None, None) => Ok(Target::Blackhole),
            (Kind::Unreachable, None, None) => Ok(Target::Unreachable),
            (Kind::Forward, None, Some(port)) => Ok(on_link(route.to, port)),
            (Kind::Forward, Some(via), port) => self.gateway(route.to, via, port),
            (Kind::Forward, None, None) => {
                Err("a route needs a gateway, a port or both: via GATEWAY dev PORT".into())
            }
            _ => Err("a blackhole or unreachable route has no gateway and no port".into()),
        }
    }

    fn gateway(&self, to: Prefix, via: IpAddr, port: Option<u8>) -> Result<Target, String> {
        if via.is_ipv4() != to.address.is_ipv4() {
            return Err(format!(
                "gateway {via} is not of the destination's IP version"
            ));
        }
        if port.is_none() && is_link_local(via) {
            return Err(format!("link-local gateway {via} needs a port: dev PORT"));
        }
        let mut on_link = self
            .ports
            .iter()
            .zip(0u8..)
            .filter(|(_, at)| port.is_none_or(|port| port == *at))
            .filter(|(port, _)| port.is_on_link(via));
        let Some((on, port)) = on_link.next() else {
            return Err(format!(
                "gateway {via} is not in a network of the port, or of any port"
            ));
        };
        if on.owns(via) {
            return Err(format!("gateway {via} is an address of the router itself"));
        }
        Ok(Target::Neighbour { port, address: via })
    }

    fn add(&mut self, to: Prefix, target: Target, origin: Origin) -> Result<(), ConfigError> {
        if self.v4.len() + self.v6.len() >= ROUTES_MAX {
            return Err(origin.error(format!("more than {ROUTES_MAX} routes")));
        }
        let next = self.targets.len() as u32;
        let target = *self.index.entry(target).or_insert_with(|| {
            self.targets.push(target);
            next
        });
        match to.address {
            IpAddr::V4(address) => self.v4.push((address.to_bits(), to.length, target, origin)),
            IpAddr::V6(address) => self.v6.push((address.to_bits(), to.length, target, origin)),
        }
        Ok(())
    }
}

/// Sorts the routes and refuses a prefix that occurs twice, naming the later one.
fn sorted<A: Ord + Copy>(
    mut routes: Vec<(A, u8, u32, Origin)>,
    address: fn(A) -> IpAddr,
) -> Result<Vec<Route<A>>, ConfigError> {
    // Stable: of two equal prefixes the one that was read later comes second.
    routes.sort_by_key(|route| (route.0, route.1));
    let twice = routes
        .windows(2)
        .find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
    if let Some([_, (bits, length, _, origin)]) = twice {
        let message = format!(
            "there is a route to {}/{length} already (configured before, or an address, network or \
             broadcast address of a port)",
            address(*bits)
        );
        return Err(origin.error(message));
    }
    Ok(routes
        .into_iter()
        .map(|(bits, length, target, _)| (bits, length, target))
        .collect())
}
