//! Interfaces of a network stack that one program has alone: ends of veths, with addresses and routes. Their other ends, the outer
//! ones, are in the daemon's namespace: what the stack sends comes in there.

use crate::error::NetdevError;
use crate::filter::put_on_own;
use crate::netlink::{Link, Netlink, Prefix};
use crate::netns::NetNs;
use crate::offload::{self, Undone};
use crate::packet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fs, io};

/// Names of the outer ends, of which the kernel chooses the number.
const OUTER: &str = "nfl%d";
/// Beginning of the names of interfaces that are being renamed; no port's name begins with this character.
const UNNAMED: &str = "_";
/// Longest IP packet of interfaces unless their settings name another.
const MTU: u32 = 1500;

/// Ways in which a segment could give an interface addresses and routes that nobody asked for (RFC 4862, ip-sysctl).
pub(crate) const BY_ITSELF: [&str; 2] = ["accept_ra", "autoconf"];

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

/// An interface that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    name: String,
    /// Its number in its namespace.
    inner: u32,
    /// The number of its outer end.
    pub outer: u32,
}

/// Makes interfaces of these names in a namespace that has none but the loopback interface, which comes up. They and their
/// outer ends are down, and nothing is configured by what neighbours advertise. No work is left undone on frames until [`leave_undone`].
///
/// # Errors
/// The kernel refuses.
pub fn make(namespace: &NetNs, names: &[&str]) -> Result<Vec<Made>, NetdevError> {
    let home = NetNs::open(None)?;
    namespace.within(|| {
        let netlink = Netlink::open()?;
        if let Some(loopback) = netlink.link("lo")? {
            netlink.set_up(loopback.index, true)?;
        }
        names
            .iter()
            .map(|name| make_one(&netlink, name, home.fd().as_fd()))
            .collect()
    })
}

/// Gives interfaces their settings, in the same order, and puts them up. Packets for others are forwarded if `is_router`.
/// Another name than the one that the interface has takes the kernel half a millisecond.
///
/// # Errors
/// The kernel refuses a setting, which the error names.
pub fn configure(
    namespace: &NetNs,
    made: &[Made],
    all: &[Settings],
    is_router: bool,
) -> Result<(), NetdevError> {
    for (made, settings) in made.iter().zip(all) {
        if settings.mtu != MTU {
            Netlink::open()?.set_mtu(made.outer, settings.mtu)?;
        }
    }
    namespace.within(|| {
        for switch in FORWARDING.into_iter().filter(|_| is_router) {
            set(switch, "1")?;
        }
        let netlink = Netlink::open()?;
        let pairs = || made.iter().zip(all);
        // One of them may have the name that another one gets.
        let renamed = || pairs().filter(|(made, settings)| made.name != settings.name);
        for (number, (made, _)) in renamed().enumerate() {
            netlink.set_name(made.inner, &format!("{UNNAMED}{number}"))?;
        }
        for (made, settings) in renamed() {
            netlink.set_name(made.inner, &settings.name)?;
        }
        pairs().try_for_each(|(made, settings)| configure_one(&netlink, made.inner, settings))
    })
}

/// Has `program` receive what comes in on an outer end, and puts the end up. The host's own stack sends nothing there. Returns
/// a socket that sends to the stack: frames with a `struct virtio_net_hdr` before each, one by one.
///
/// # Errors
/// The kernel refuses, or the end has gone.
pub fn open_outer(index: u32, program: BorrowedFd<'_>) -> Result<OwnedFd, NetdevError> {
    let netlink = Netlink::open()?;
    let link = netlink.link_by_index(index)?;
    let link = link.ok_or_else(|| missing(&format!("number {index}")))?;
    set(&format!("ipv6/conf/{}/disable_ipv6", link.name), "1")?;
    put_on_own(&netlink, index, program)?;
    netlink.set_up(index, true)?;
    let socket = packet::open_for_offloads(index)?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(NetdevError::system(
        "making a socket that does not wait for room",
    ))?;
    Ok(socket)
}

/// Sets the work that the stack of a namespace may leave undone on frames that it sends from the interfaces `names`.
///
/// # Errors
/// When the kernel refuses, or an interface is not there.
pub fn leave_undone(namespace: &NetNs, names: &[&str], undone: Undone) -> Result<(), NetdevError> {
    namespace.within(|| {
        let netlink = Netlink::open()?;
        names
            .iter()
            .try_for_each(|name| offload::leave_undone(&netlink, &find(&netlink, name)?, undone))
    })
}

pub(crate) fn missing(what: &str) -> NetdevError {
    let none = io::Error::from(io::ErrorKind::NotFound);
    NetdevError::system(format!("looking for the interface {what}"))(none)
}

pub(crate) fn find(netlink: &Netlink, name: &str) -> Result<Link, NetdevError> {
    netlink.link(name)?.ok_or_else(|| missing(name))
}

/// Sets a switch of the calling thread's stack. A stack without IPv6 has none of it.
pub(crate) fn set(switch: &str, value: &str) -> Result<(), NetdevError> {
    match fs::write(format!("/proc/sys/net/{switch}"), value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetdevError::system(format!(
            "setting {switch} to {value}"
        ))(error)),
        _ => Ok(()),
    }
}

/// Makes an interface in the calling thread's namespace, with its outer end in the namespace `home`.
fn make_one(netlink: &Netlink, name: &str, home: BorrowedFd<'_>) -> Result<Made, NetdevError> {
    netlink.make_veth(name, MTU, (OUTER, home))?;
    let link = find(netlink, name)?;
    for what in BY_ITSELF {
        set(&format!("ipv6/conf/{name}/{what}"), "0")?;
    }
    offload::leave_undone(netlink, &link, Undone::Nothing)?;
    let outer = link.peer;
    Ok(Made {
        name: name.to_owned(),
        inner: link.index,
        outer: outer.ok_or_else(|| missing(&format!("{name} at its outer end")))?,
    })
}

/// Gives an interface of the calling thread's namespace its settings, and puts it up.
pub(crate) fn configure_one(
    netlink: &Netlink,
    index: u32,
    settings: &Settings,
) -> Result<(), NetdevError> {
    netlink.set_mac(index, settings.mac)?;
    if settings.mtu != MTU {
        netlink.set_mtu(index, settings.mtu)?;
    }
    netlink.set_up(index, true)?;
    for address in &settings.addresses {
        netlink.add_address(index, *address)?;
    }
    for (to, via) in &settings.routes {
        netlink.add_route(index, *to, *via)?;
    }
    Ok(())
}
