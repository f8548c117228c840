//! Configuration of a router, checked: ports with addresses, routes, neighbours, limits.

use super::neighbour::Limits;
use super::route_list::{self, RouteEntry, RouteList};
use super::routes_text::Prefix;
use crate::bucket::Rate;
use crate::config;
use crate::function::{ConfigError, Nanos, PortInfo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfluid_wire::MacAddr;
use serde::Deserialize;
use serde_json::Value;

/// Most ports of a router.
pub(super) const PORTS_MAX: usize = 8;
/// Most addresses of a port.
const ADDRESSES_MAX: usize = 64;
/// Smallest MTU of a link that carries IPv4 (RFC 791) and IPv6 (RFC 8200 section 5).
const MTU_MIN: (u16, u16) = (68, 1280);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    addresses: BTreeMap<String, Vec<String>>,
    routes: Vec<RouteEntry>,
    routes_text: String,
    neighbours: Vec<NeighbourDocument>,
    neighbour_table: TableDocument,
    icmp_errors: Rate,
    source_routed: SourceRouted,
    redirects: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighbourDocument {
    port: String,
    address: IpAddr,
    mac: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TableDocument {
    entries_per_port: u32,
    waiting_per_neighbour: u32,
    waiting: u32,
    reachable_s: u32,
    stale_s: u32,
}

/// Treatment of packets with a source route option (RFC 7126 sections 4.3 and 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SourceRouted {
    /// Dropped and counted.
    #[default]
    Drop,
    /// Forwarded to their destination; the router is never a hop of the source route itself.
    Forward,
}

impl Default for Document {
    fn default() -> Self {
        Document {
            addresses: BTreeMap::new(),
            routes: Vec::new(),
            routes_text: String::new(),
            neighbours: Vec::new(),
            neighbour_table: TableDocument::default(),
            icmp_errors: Rate::default(),
            source_routed: SourceRouted::Drop,
            redirects: true,
        }
    }
}

impl Default for TableDocument {
    fn default() -> Self {
        TableDocument {
            entries_per_port: 1024,
            waiting_per_neighbour: 3,
            waiting: 256,
            reachable_s: 30,
            stale_s: 600,
        }
    }
}

/// A port and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub name: String,
    pub mac: MacAddr,
    pub mtu: u16,
    /// Addresses with the length of their network; the first is the primary one.
    pub v4: Vec<(Ipv4Addr, u8)>,
    /// Global addresses with the length of their network.
    pub v6: Vec<(Ipv6Addr, u8)>,
    /// Configured, or made from the MAC address (RFC 4291 appendix A). `None`: the MTU is too
    /// small for IPv6.
    pub link_local: Option<Ipv6Addr>,
}

impl Port {
    /// Returns true if the address is on the port's link.
    pub(super) fn is_on_link(&self, address: IpAddr) -> bool {
        self.network_of(address).is_some() || is_link_local(address) && self.link_local.is_some()
    }

    /// The Subnet-Router anycast addresses of the port's networks (RFC 4291 section 2.6.1). A network of two addresses has none
    /// (RFC 6164).
    pub(super) fn anycasts(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        let networks = self.addresses().filter(|own| own.length < 127);
        let addresses = networks.filter_map(|own| match own.network().address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        addresses.filter(|address| !self.owns((*address).into()))
    }

    /// The port's own address in the network that holds `address`.
    pub(super) fn network_of(&self, address: IpAddr) -> Option<IpAddr> {
        self.addresses()
            .find(|own| own.holds(address))
            .map(|own| own.address)
    }

    /// All addresses but the link-local one.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Prefix> + '_ {
        let v4 = self.v4.iter().map(|(a, length)| (IpAddr::V4(*a), *length));
        let v6 = self.v6.iter().map(|(a, length)| (IpAddr::V6(*a), *length));
        v4.chain(v6)
            .map(|(address, length)| Prefix { address, length })
    }

    /// Returns true if the address is one of the port's own, the link-local one included.
    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.link_local.is_some_and(|own| own == address)
            || self.addresses().any(|own| own.address == address)
    }
}

/// Returns true if the address is an IPv6 link-local one, `fe80::/10`.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// A configuration that has been checked whole.
#[derive(Debug)]
pub(super) struct Config {
    pub ports: Vec<Port>,
    pub routes: RouteList,
    pub neighbours: BTreeMap<(u8, IpAddr), MacAddr>,
    pub limits: Limits,
    pub icmp_errors: Rate,
    pub source_routed: SourceRouted,
    pub redirects: bool,
}

impl Config {
    /// Reads and checks a configuration for these ports.
    pub(super) fn parse(value: &Value, ports: &[PortInfo]) -> Result<Config, ConfigError> {
        let document: Document = config::parse(value)?;
        if ports.len() > PORTS_MAX {
            let message = format!("a router has at most {PORTS_MAX} ports");
            return Err(ConfigError::at("ports", message));
        }
        let ports = read_ports(&document.addresses, ports)?;
        let routes = route_list::read(&ports, &document.routes, &document.routes_text)?;
        let neighbours = read_neighbours(&document.neighbours, &ports)?;
        let limits = read_limits(&document.neighbour_table)?;
        Ok(Config {
            ports,
            routes,
            neighbours,
            limits,
            icmp_errors: document.icmp_errors,
            source_routed: document.source_routed,
            redirects: document.redirects,
        })
    }
}

fn read_ports(
    addresses: &BTreeMap<String, Vec<String>>,
    ports: &[PortInfo],
) -> Result<Vec<Port>, ConfigError> {
    if let Some(unknown) = addresses
        .keys()
        .find(|name| ports.iter().all(|port| port.name != **name))
    {
        let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let message = format!(
            "there is no port '{unknown}'; there are: {}",
            known.join(", ")
        );
        return Err(ConfigError::at("addresses", message));
    }
    let mut seen = BTreeSet::new();
    let mut read = Vec::new();
    for info in ports {
        let path = |index| format!("addresses.{}[{index}]", info.name);
        let mut port = Port {
            name: info.name.clone(),
            mac: info.mac,
            mtu: info.mtu,
            v4: Vec::new(),
            v6: Vec::new(),
            link_local: (info.mtu >= MTU_MIN.1).then(|| eui64_link_local(info.mac)),
        };
        let document = addresses.get(&info.name).map_or(&[][..], Vec::as_slice);
        if document.len() > ADDRESSES_MAX {
            let message = format!("a port has at most {ADDRESSES_MAX} addresses");
            return Err(ConfigError::at(path(ADDRESSES_MAX), message));
        }
        for (index, text) in document.iter().enumerate() {
            let own = Prefix::parse_interface(text)
                .and_then(|own| check_own_address(own, info))
                .map_err(|why| ConfigError::at(path(index), why))?;
            if !is_link_local(own.address) && !seen.insert(own.address) {
                let message = format!("{} is configured twice", own.address);
                return Err(ConfigError::at(path(index), message));
            }
            match own.address {
                IpAddr::V4(address) => port.v4.push((address, own.length)),
                IpAddr::V6(address) if is_link_local(own.address) => {
                    port.link_local = Some(address);
                }
                IpAddr::V6(address) => port.v6.push((address, own.length)),
            }
        }
        read.push(port);
    }
    Ok(read)
}

/// Refuses addresses that no interface can have.
fn check_own_address(own: Prefix, port: &PortInfo) -> Result<Prefix, String> {
    let Prefix { address, length } = own;
    let usable = match address {
        IpAddr::V4(v4) => {
            let host_bits = !super::lpm4::masked(u32::MAX, length);
            let all_ones = length < 31 && v4.to_bits() & host_bits == host_bits;
            !(v4.octets()[0] == 0 || v4.is_loopback() || v4.octets()[0] >= 224 || all_ones)
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast()),
    };
    if !usable {
        return Err(format!(
            "{address}/{length} cannot be the address of a port"
        ));
    }
    let smallest = if address.is_ipv4() {
        MTU_MIN.0
    } else {
        MTU_MIN.1
    };
    if port.mtu < smallest {
        return Err(format!(
            "port '{}' has an MTU of {}, {address} needs at least {smallest}",
            port.name, port.mtu
        ));
    }
    Ok(own)
}

/// RFC 4291 appendix A: the modified EUI-64 identifier under `fe80::/64`.
fn eui64_link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}

pub(super) fn find_port(ports: &[Port], name: &str) -> Result<u8, String> {
    let found = ports.iter().position(|port| port.name == name);
    found
        .map(|at| at as u8)
        .ok_or_else(|| format!("there is no port '{name}'"))
}

fn read_neighbours(
    document: &[NeighbourDocument],
    ports: &[Port],
) -> Result<BTreeMap<(u8, IpAddr), MacAddr>, ConfigError> {
    let mut read = BTreeMap::new();
    for (index, neighbour) in document.iter().enumerate() {
        let fail = |key: &str, why| ConfigError::at(format!("neighbours[{index}].{key}"), why);
        let address = neighbour.address;
        let port = find_port(ports, &neighbour.port).map_err(|why| fail("port", why))?;
        let mac: MacAddr = neighbour
            .mac
            .parse()
            .map_err(|why| fail("mac", format!("{why}")))?;
        if !mac.is_unicast() {
            return Err(fail(
                "mac",
                format!("{mac} is not the address of one station"),
            ));
        }
        let on = &ports[usize::from(port)];
        if !on.is_on_link(address) || on.owns(address) {
            let why = format!(
                "{address} is no neighbour on the link of port '{}'",
                on.name
            );
            return Err(fail("address", why));
        }
        if read.insert((port, address), mac).is_some() {
            return Err(fail("address", format!("{address} is configured twice")));
        }
    }
    Ok(read)
}

fn read_limits(table: &TableDocument) -> Result<Limits, ConfigError> {
    let bounds = [
        ("entries_per_port", table.entries_per_port, 4, 65_536),
        ("waiting_per_neighbour", table.waiting_per_neighbour, 1, 64),
        ("waiting", table.waiting, 1, 4096),
        ("reachable_s", table.reachable_s, 1, 86_400),
        ("stale_s", table.stale_s, 1, 604_800),
    ];
    for (key, value, fewest, most) in bounds {
        if !(fewest..=most).contains(&value) {
            let message = format!("{value} is not between {fewest} and {most}");
            return Err(ConfigError::at(format!("neighbour_table.{key}"), message));
        }
    }
    Ok(Limits {
        entries_per_port: table.entries_per_port as usize,
        waiting_per_neighbour: table.waiting_per_neighbour as usize,
        waiting: table.waiting as usize,
        reachable: Nanos::from_secs(table.reachable_s.into()),
        stale: Nanos::from_secs(table.stale_s.into()),
    })
}
