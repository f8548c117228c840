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

/// The switches by which a stack forwards between its interfaces (ip-sysctl).
const FORWARDING: [&str; 2] = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];

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
/// the same order: what the stack sends can be read there. Nothing is configured by what neighbours advertise. Packets for
/// others are forwarded if `is_router`.
///
/// # Errors
/// The kernel refuses a setting, which the error names, with the interface.
pub fn make(
    namespace: &NetNs,
    all: &[Settings],
    is_router: bool,
) -> Result<Vec<OwnedFd>, NetdevError> {
    namespace.within(|| {
        for switch in FORWARDING.into_iter().filter(|_| is_router) {
            set(switch, "1")?;
        }
        let netlink = Netlink::open()?;
        if let Some(loopback) = netlink.link("lo")? {
            netlink.set_up(loopback.index, true)?;
        }
        all.iter()
            .map(|settings| make_one(&netlink, settings))
            .collect()
    })
}

/// Sets a switch of the calling thread's stack. A stack without IPv6 has none of it.
fn set(switch: &str, value: &str) -> Result<(), NetdevError> {
    match fs::write(format!("/proc/sys/net/{switch}"), value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetdevError::system(format!(
            "setting {switch} to {value}"
        ))(error)),
        _ => Ok(()),
    }
}

fn make_one(netlink: &Netlink, settings: &Settings) -> Result<OwnedFd, NetdevError> {
    let name = &settings.name;
    let tap = open_tap(name)?;
    let missing = NetdevError::system(format!("looking for the tap {name}"));
    let link = netlink.link(name)?;
    let link = link.ok_or_else(|| missing(io::Error::from(io::ErrorKind::NotFound)))?;
    for what in BY_ITSELF {
        set(&format!("ipv6/conf/{name}/{what}"), "0")?;
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
