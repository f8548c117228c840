//! Interfaces of containers: ends of veths in the namespaces of others. The outer ends are in the calling thread's namespace, and
//! their aliases say whose they are.

use crate::error::NetdevError;
use crate::netlink::Netlink;
use crate::netns::NetNs;
use crate::own_stack::{self, Settings, configure_one, find, set};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;

/// Makes an interface in a namespace, gives it its settings, and puts it up, with its outer end `outer`. An outer end of this
/// name and alias that is there already is a remainder, and goes.
///
/// # Errors
/// The kernel refuses: a name is taken, or a setting is impossible. Nothing is left then.
pub fn make(
    namespace: &NetNs,
    (outer, alias): (&str, &str),
    settings: &Settings,
) -> Result<(), NetdevError> {
    remove(outer, alias)?;
    let home = NetNs::open(None)?;
    let netlink = Netlink::open()?;
    namespace.within(|| {
        Netlink::open()?.make_veth(&settings.name, settings.mtu, (outer, home.fd().as_fd()))
    })?;
    let made = netlink
        .link(outer)
        .and_then(|made| made.ok_or_else(|| own_stack::missing(outer)))?;
    let done = set_up(namespace, settings).and_then(|()| {
        // The host has no address of its own on the container's segment.
        set(&format!("ipv6/conf/{outer}/disable_ipv6"), "1")?;
        netlink.set_alias(made.index, alias)?;
        netlink.set_up(made.index, true)
    });
    done.inspect_err(|_| {
        // The first error is the one to be told.
        let _ = netlink.delete(made.index);
    })
}

fn set_up(namespace: &NetNs, settings: &Settings) -> Result<(), NetdevError> {
    namespace.within(|| {
        for what in own_stack::BY_ITSELF {
            set(&format!("ipv6/conf/{}/{what}", settings.name), "0")?;
        }
        if settings.addresses.iter().any(|it| it.0.is_ipv6()) {
            // Runtimes turn it off where nobody needs it.
            set(&format!("ipv6/conf/{}/disable_ipv6", settings.name), "0")?;
        }
        let netlink = Netlink::open()?;
        let link = find(&netlink, &settings.name)?;
        configure_one(&netlink, link.index, settings)
    })
}

/// Removes an outer end with the interface, unless the alias is another: then it is somebody else's.
///
/// # Errors
/// The kernel refuses.
pub fn remove(outer: &str, alias: &str) -> Result<(), NetdevError> {
    let netlink = Netlink::open()?;
    match netlink.link(outer)? {
        Some(link) if link.alias.as_deref() == Some(alias) => netlink.delete(link.index),
        _ => Ok(()),
    }
}

/// Compares an interface with its settings. Returns what is missing, or different; nothing: it is as it was made.
///
/// # Errors
/// The kernel does not say.
pub fn differences(
    namespace: &NetNs,
    (outer, alias): (&str, &str),
    settings: &Settings,
) -> Result<Vec<String>, NetdevError> {
    let mut found = Vec::new();
    let there = Netlink::open()?.link(outer)?;
    let is_own = there.is_some_and(|link| link.alias.as_deref() == Some(alias) && link.up);
    if !is_own {
        found.push(format!("the outer end {outer} is gone, or down"));
    }
    let name = &settings.name;
    let within = namespace.within(|| {
        let Some(link) = Netlink::open()?.link(name)? else {
            return Ok(vec![format!("the interface {name} is gone")]);
        };
        let mut found = Vec::new();
        if !link.up {
            found.push(format!("{name} is down"));
        }
        if link.mac != Some(settings.mac) {
            found.push(format!("{name} has another hardware address"));
        }
        if link.mtu != settings.mtu {
            found.push(format!("{name} has the MTU {}", link.mtu));
        }
        let gone = settings.addresses.iter().filter(|it| !is_here(it.0));
        found.extend(gone.map(|(address, _)| format!("the address {address} is gone")));
        Ok(found)
    })?;
    found.extend(within);
    Ok(found)
}

/// Returns true if the calling thread's namespace has an address.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
