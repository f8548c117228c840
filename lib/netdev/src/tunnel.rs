//! Tunnels to other hosts: VXLAN interfaces (RFC 7348), each with one host at its other end.
//!
//! Nobody else's interface is changed, and a daemon that comes after a crash knows its own: an interface is made in a group whose
//! number follows from the uplink's name. Its alias says what it was made for, and is left on it afterwards; without that it is made
//! anew.

use crate::error::NetdevError;
use crate::netlink::{Link, Netlink};
use crate::own_stack;
use netlink_packet_route::link::InfoVxlan;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Bytes of a VXLAN header, its UDP header, and the Ethernet header within.
const HEADERS: u32 = 8 + 8 + 14;
/// MTU of the way to a host that no route leads to yet.
const MTU: u32 = 1500;
/// The least MTU (RFC 8200), and that of the longest packet of a port.
const MTU_MIN: u32 = 1280;
const MTU_MAX: u32 = 9216;

/// A tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The host at its other end: the only one that its frames go to.
    pub remote: IpAddr,
    /// The address of this host; `None`: the kernel's choice for `remote`.
    pub local: Option<IpAddr>,
    /// The number by which both ends know it (VNI), 1 to 16777215.
    pub vni: u32,
    /// The UDP port at both ends.
    pub port: u16,
    /// The longest IP packet in bytes; `None`: what the interface towards `remote` leaves.
    pub mtu: Option<u32>,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tunnel {
            remote, vni, port, ..
        } = self;
        write!(f, "VXLAN {vni} to {remote} port {port}")?;
        if let Some(local) = self.local {
            write!(f, " from {local}")?;
        }
        self.mtu.map_or(Ok(()), |mtu| write!(f, " mtu {mtu}"))
    }
}

impl Tunnel {
    fn attributes(&self) -> Vec<InfoVxlan> {
        let mut all = vec![
            InfoVxlan::Id(self.vni),
            InfoVxlan::Port(self.port),
            // The only host is the remote one: addresses are learnt by switches.
            InfoVxlan::Learning(false),
            match self.remote {
                IpAddr::V4(remote) => InfoVxlan::Group(remote),
                IpAddr::V6(remote) => InfoVxlan::Group6(remote),
            },
        ];
        all.extend(self.local.map(|local| match local {
            IpAddr::V4(local) => InfoVxlan::Local(local),
            IpAddr::V6(local) => InfoVxlan::Local6(local),
        }));
        all
    }
}

/// The text on the interface.
fn alias(uplink: &str, tunnel: &Tunnel) -> String {
    format!("nfluid uplink {uplink}: {tunnel}")
}

/// The group of the interfaces of an uplink (FNV-1a), beyond the numbers that people choose.
fn group(uplink: &str) -> u32 {
    let mix = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    uplink.bytes().fold(0x811c_9dc5, mix) >> 1 | 1 << 30
}

/// Returns true if an interface is a tunnel of the uplink, whatever its settings are.
fn is_of(link: &Link, uplink: &str) -> bool {
    link.kind.as_deref() == Some("vxlan") && link.group == group(uplink)
}

/// Returns the tunnel `interface` of an uplink in the calling thread's namespace, and makes it if it is not there, or is another.
/// The host's own stack sends nothing into it.
///
/// # Errors
/// An interface of this name is somebody else's, the namespace has a tunnel with this number and port already, or the kernel has no
/// VXLAN.
pub fn open(
    netlink: &Netlink,
    interface: &str,
    uplink: &str,
    tunnel: &Tunnel,
) -> Result<Link, NetdevError> {
    let alias = alias(uplink, tunnel);
    if let Some(link) = netlink.link(interface)? {
        if !is_of(&link, uplink) {
            let interface = interface.to_owned();
            return Err(NetdevError::Taken { interface });
        }
        if link.alias.as_ref() == Some(&alias) {
            return Ok(link);
        }
        netlink.delete(link.index)?;
    }
    let mtu = match tunnel.mtu {
        Some(mtu) => mtu,
        None => mtu_to(netlink, tunnel.remote)?,
    };
    let (group, settings) = (group(uplink), tunnel.attributes());
    netlink.make_vxlan(interface, group, settings, mtu)?;
    let made = netlink.link(interface)?;
    let made = made.ok_or_else(|| own_stack::missing(interface))?;
    own_stack::set(&format!("ipv6/conf/{interface}/disable_ipv6"), "1")?;
    netlink.set_alias(made.index, &alias)?;
    Ok(made)
}

/// The longest packet that needs no fragments on the way to a host.
fn mtu_to(netlink: &Netlink, remote: IpAddr) -> Result<u32, NetdevError> {
    let way = match netlink.way_to(remote)? {
        Some(index) => netlink.link_by_index(index)?,
        None => None,
    };
    let below = way.map_or(MTU, |way| way.mtu);
    let header = if remote.is_ipv4() { 20 } else { 40 };
    let longest = below.saturating_sub(header + HEADERS);
    Ok(longest.clamp(MTU_MIN, MTU_MAX))
}

/// Removes the tunnel of an uplink from the calling thread's namespace, if it is there.
///
/// # Errors
/// The kernel refuses.
pub fn remove(netlink: &Netlink, interface: &str, uplink: &str) -> Result<(), NetdevError> {
    match netlink.link(interface)? {
        Some(link) if is_of(&link, uplink) => netlink.delete(link.index),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{group, is_of};
    use crate::netlink::Link;

    // promise: 23.3
    #[test]
    fn nobody_elses_interface_is_a_tunnel_of_an_uplink() {
        let link = |kind: &str, group| Link {
            kind: Some(kind.to_owned()),
            group,
            ..Link::default()
        };
        assert!(is_of(&link("vxlan", group("far")), "far"));
        assert!(!is_of(&link("vxlan", group("near")), "far"));
        assert!(!is_of(&link("vxlan", 0), "far"));
        assert!(!is_of(&link("veth", group("far")), "far"));
    }
}
