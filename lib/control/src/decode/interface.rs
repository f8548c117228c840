//! `kind: interface`: ports that are interfaces of the kernel's stack.

use super::access::entries;
use super::fields::{Fields, read};
use crate::interface::{ENTRIES_MAX, Interface, Route, SERVERS_MAX};
use crate::quantity::ValueError;
use crate::report::Report;
use crate::yaml::Node;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const KINDS: [(&str, ()); 1] = [("interface", ())];

/// Reads the settings of a port that is an interface; `None`: it is none.
pub fn interface(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<Interface> {
    let kind = fields.choice("kind", &KINDS, report);
    let addresses = fields.get("addresses");
    let routes = fields.get("routes");
    let dns = fields.get("dns");
    if kind.is_none() {
        for (node, path) in addresses.iter().chain(&routes).chain(&dns) {
            report.error_at(
                node.mark,
                path,
                "only an interface has addresses, routes and name servers",
                "add 'kind: interface' to the port, or remove it",
            );
        }
        return None;
    }
    let addresses = addresses.map(|(node, path)| {
        entries(node, &path, ENTRIES_MAX, report, |node, path, report| {
            read(node, path, report, address)
        })
    });
    let routes = routes.map(|(node, path)| entries(node, &path, ENTRIES_MAX, report, route));
    let dns = dns.map(|(node, path)| {
        entries(node, &path, SERVERS_MAX, report, |node, path, report| {
            read(node, path, report, |word| host(word, "name server"))
        })
    });
    Some(Interface {
        addresses: addresses.unwrap_or_default(),
        routes: routes.unwrap_or_default(),
        dns: dns.unwrap_or_default(),
    })
}

/// Reads a destination, and the router on the way there.
fn route(node: &Node, path: &str, report: &mut Report<'_>) -> Option<Route> {
    let mut fields = Fields::new(node, path, report)?;
    let via = fields.get("via");
    let has_via = via.is_some();
    let via = via.and_then(|(node, path)| read(node, &path, report, |word| host(word, "router")));
    let to = fields.get("to");
    if to.is_none() {
        let remedy =
            "write '{ to: 192.0.2.0/24, via: 198.51.100.1 }', or '{ to: default, via: ... }'";
        report.error_at(node.mark, path, "'to' is missing", remedy);
    }
    let to = to.and_then(|(node, path)| read(node, &path, report, |word| destination(word, via)));
    fields.finish(report);
    (via.is_some() == has_via).then_some(())?;
    Some(Route { to: to?, via })
}

/// Parses a host's address with the length of its network's prefix.
fn address(text: &str) -> Result<IpNet, ValueError> {
    match text.parse::<IpNet>() {
        Ok(net) if is_for_hosts(net.addr()) => Ok(net),
        _ => Err(ValueError::new(
            format!(
                "'{}' is no address of a host with a prefix",
                text.escape_debug()
            ),
            "write '192.0.2.1/24', or '2001:db8::1/64'",
        )),
    }
}

fn is_for_hosts(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
}

pub fn host(text: &str, what: &str) -> Result<IpAddr, ValueError> {
    text.parse()
        .ok()
        .filter(|address| is_for_hosts(*address))
        .ok_or_else(|| {
            ValueError::new(
                format!("'{}' is no address of a {what}", text.escape_debug()),
                "write '192.0.2.1', or '2001:db8::1'",
            )
        })
}

/// Parses a network, or `default`, which is of the router's family.
fn destination(text: &str, via: Option<IpAddr>) -> Result<IpNet, ValueError> {
    if text == "default" {
        return Ok(match via {
            Some(IpAddr::V6(_)) => Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0).into(),
            _ => Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into(),
        });
    }
    let wrong = |why: &str| {
        ValueError::new(
            format!("'{}' is {why}", text.escape_debug()),
            "write 'default', '192.0.2.0/24' or '2001:db8::/32'",
        )
    };
    let net: IpNet = text.parse().map_err(|_| wrong("no network"))?;
    if net.addr() != net.network() {
        return Err(wrong("an address within a network"));
    }
    if via.is_some_and(|via| via.is_ipv4() != net.addr().is_ipv4()) {
        return Err(wrong("of another family than its router"));
    }
    Ok(net)
}
