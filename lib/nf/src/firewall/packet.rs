//! The facts about one packet that rules and states look at.

use super::rule::{Family, ICMP, ICMPV6, TCP, UDP};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use nfluid_wire::flow::{Fragment, L3, PacketMeta};

/// Source and destination address, as numbers in network order of significance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source.
        src: u32,
        /// Destination.
        dst: u32,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: u128,
        /// Destination.
        dst: u128,
    },
}

impl Addresses {
    /// The address family.
    #[inline]
    pub fn family(&self) -> Family {
        match self {
            Addresses::V4 { .. } => Family::V4,
            Addresses::V6 { .. } => Family::V6,
        }
    }

    /// Source address.
    pub fn src(&self) -> IpAddr {
        match *self {
            Addresses::V4 { src, .. } => Ipv4Addr::from(src).into(),
            Addresses::V6 { src, .. } => Ipv6Addr::from(src).into(),
        }
    }

    /// Destination address.
    pub fn dst(&self) -> IpAddr {
        match *self {
            Addresses::V4 { dst, .. } => Ipv4Addr::from(dst).into(),
            Addresses::V6 { dst, .. } => Ipv6Addr::from(dst).into(),
        }
    }
}

/// The header behind the IP header, as far as this packet carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP with the flags octet of RFC 9293 (CWR .. FIN).
    Tcp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
        /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the highest bit down.
        flags: u8,
    },
    /// UDP.
    Udp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// ICMP or ICMPv6, whichever the protocol number says.
    Icmp {
        /// Message type.
        kind: u8,
        /// Message code.
        code: u8,
        /// Identifier of an echo or timestamp query or its reply, else 0.
        id: u16,
    },
    /// A later fragment, or a protocol that rules cannot look into.
    Opaque,
}

/// An IP packet, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Addresses.
    pub addresses: Addresses,
    /// IP protocol number; for IPv6 the one after the extension headers.
    pub protocol: u8,
    /// The position of the fragment, if the packet is a fragment.
    pub fragment: Fragment,
    /// Ports, flags, ICMP type.
    pub transport: Transport,
    /// VLAN identifier of the outermost tag that has one.
    pub vlan: Option<u16>,
    /// Port of the firewall on which it arrived, 0 or 1.
    pub in_port: u8,
}

impl Packet {
    /// The facts of a parsed frame; `None` if it is not IP.
    #[inline]
    pub fn new(meta: &PacketMeta, in_port: u8) -> Option<Packet> {
        let addresses = match meta.l3 {
            L3::V4 { src, dst } => Addresses::V4 { src, dst },
            L3::V6 { src, dst } => Addresses::V6 { src, dst },
            L3::Other => return None,
        };
        Some(Packet {
            addresses,
            protocol: meta.protocol.0,
            fragment: meta.fragment,
            transport: transport(meta),
            vlan: vlan(meta),
            in_port,
        })
    }

    /// Source and destination port, if it has some.
    pub fn ports(&self) -> (Option<u16>, Option<u16>) {
        match self.transport {
            Transport::Tcp { src, dst, .. } | Transport::Udp { src, dst } => (Some(src), Some(dst)),
            Transport::Icmp { .. } | Transport::Opaque => (None, None),
        }
    }
}

/// The outermost tag that has an identifier: one with 0 has a priority and is of no VLAN (IEEE 802.1Q table 9-2).
#[inline]
fn vlan(meta: &PacketMeta) -> Option<u16> {
    match meta.vlan_count {
        0 => None,
        count => {
            let tags = meta.vlan_tci.iter().take(usize::from(count));
            tags.map(|tci| tci & 0xfff).find(|id| *id != 0)
        }
    }
}

#[inline]
fn transport(meta: &PacketMeta) -> Transport {
    if meta.fragment == Fragment::Later {
        return Transport::Opaque;
    }
    let (src, dst) = (meta.src_port, meta.dst_port);
    match (meta.protocol.0, meta.is_ipv6()) {
        (TCP, _) => Transport::Tcp {
            src,
            dst,
            flags: meta.tcp_flags.0,
        },
        (UDP, _) => Transport::Udp { src, dst },
        (ICMP, false) | (ICMPV6, true) => Transport::Icmp {
            kind: meta.icmp_type,
            code: meta.icmp_code,
            id: meta.icmp_ident,
        },
        _ => Transport::Opaque,
    }
}
