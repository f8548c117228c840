//! Interfaces of a network stack that one program has alone: taps with addresses and routes.

use crate::error::NetdevError;
use crate::netlink::{Netlink, Prefix};
use crate::netns::NetNs;
use crate::tap::open_tap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::{fs, io};

/// Ways in which a segment could give an interface addresses and routes that nobody asked for (RFC 4862, ip-sysctl).
const BY_ITSELF: [&str; 2] = ["accept_ra", "autoconf"];

/// The settings of an interface.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its longest IP packet in bytes.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<Prefix>,
    /// Destinations that are reached by way of it, and the routers on the way.
    pub routes: Vec<(Prefix, Option<IpAddr>)>,
}

/// Makes interfaces in a namespace that has none but the loopback interface, and puts all of them up. Returns their taps in
/// the same order: what the stack sends can be read there. Nothing is configured by what neighbours advertise.
///
/// # Errors
/// The kernel refuses a setting, which the error names, with the interface.
pub fn make(namespace: &NetNs, all: &[Settings]) -> Result<Vec<OwnedFd>, NetdevError> {
    namespace.within(|| {
        let netlink = Netlink::open()?;
        if let Some(loopback) = netlink.link("lo")? {
            netlink.set_up(loopback.index, true)?;
        }
        all.iter()
            .map(|settings| make_one(&netlink, settings))
            .collect()
    })
}

fn make_one(netlink: &Netlink, settings: &Settings) -> Result<OwnedFd, NetdevError> {
    let name = &settings.name;
    let tap = open_tap(name)?;
    let missing = NetdevError::system(format!("looking for the tap {name}"));
    let link = netlink.link(name)?;
    let link = link.ok_or_else(|| missing(io::Error::from(io::ErrorKind::NotFound)))?;
    for what in BY_ITSELF {
        match fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{what}"), "0") {
            // Without IPv6 there is nothing to switch off.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let failed = NetdevError::system(format!("switching '{what}' of {name} off"));
                return Err(failed(error));
            }
            _ => {}
        }
    }
    netlink.set_mac(link.index, settings.mac)?;
    netlink.set_mtu(link.index, settings.mtu)?;
    netlink.set_up(link.index, true)?;
    for address in &settings.addresses {
        netlink.add_address(link.index, *address)?;
    }
    for (to, via) in &settings.routes {
        netlink.add_route(link.index, *to, *via)?;
    }
    Ok(tap)
}
