//! Keys of the tables: end points, protocols, VLANs, and their hashes.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};
use nfluid_wire::flow::FlowKeyV4;
use nfluid_wire::{HashSeed, IpProtocol, PacketMeta};
use serde::{Deserialize, Serialize};

/// An IPv4 address and a port, or an ICMP query's identifier. Both in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Endpoint {
    pub(super) address: u32,
    pub(super) port: u16,
}

impl Endpoint {
    #[inline]
    pub(super) const fn new(address: u32, port: u16) -> Endpoint {
        Endpoint { address, port }
    }

    pub(super) fn addr(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddrV4::new(self.addr(), self.port).fmt(f)
    }
}

/// The transports that a NAPT can translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    /// ICMP queries, by identifier (RFC 5508).
    Icmp,
}

impl Protocol {
    pub(super) const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp];

    #[inline]
    pub(super) const fn of(protocol: IpProtocol) -> Option<Protocol> {
        match protocol {
            IpProtocol::TCP => Some(Protocol::Tcp),
            IpProtocol::UDP => Some(Protocol::Udp),
            IpProtocol::ICMPV4 => Some(Protocol::Icmp),
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
        }
    }
}

/// The VLANs of a frame, as one word: the same private address may exist once in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Vlan(u32);

impl Vlan {
    pub(super) const UNTAGGED: Vlan = Vlan(0);

    /// A tag with this identifier.
    pub(super) const fn tagged(id: u16) -> Vlan {
        Vlan::of_id(id as u32 & 0xfff)
    }

    /// Of the identifier of the only tag that has one.
    const fn of_id(id: u32) -> Vlan {
        match id {
            0 => Vlan::UNTAGGED,
            _ => Vlan(1 << 24 | id),
        }
    }

    #[inline]
    pub(super) fn of(meta: &PacketMeta) -> Vlan {
        let id = |tag: usize| u32::from(meta.vlan_tci[tag] & 0xfff);
        // A tag with identifier 0 has a priority and is of no VLAN (IEEE 802.1Q table 9-2).
        match (meta.vlan_count, id(0), id(1)) {
            (0, _, _) | (1, 0, _) => Vlan::UNTAGGED,
            (1, only, _) | (_, only, 0) | (_, 0, only) => Vlan::of_id(only),
            (_, outer, inner) => Vlan(2 << 24 | outer << 12 | inner),
        }
    }

    /// Returns true if a frame can have such tags.
    pub(super) const fn is_possible(self) -> bool {
        match self.0 >> 24 {
            0 => self.0 == 0,
            1 => self.0 & 0xff_f000 == 0,
            tags => tags == 2,
        }
    }

    /// The identifiers as text, outermost first; `None` if untagged.
    pub(super) fn describe(self) -> Option<alloc::string::String> {
        let (outer, inner) = (self.0 >> 12 & 0xfff, self.0 & 0xfff);
        match self.0 >> 24 {
            0 => None,
            1 => Some(alloc::format!("{inner}")),
            _ => Some(alloc::format!("{outer}.{inner}")),
        }
    }
}

/// Keyed hashes of everything that has a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher(HashSeed);

impl Hasher {
    pub(super) fn new(seed: u64) -> Hasher {
        Hasher(HashSeed::new(seed))
    }

    /// Of an end point in a VLAN: the key of a mapping, from either side.
    #[inline]
    pub(super) fn endpoint(self, protocol: Protocol, vlan: Vlan, endpoint: Endpoint) -> u64 {
        self.hash(endpoint.address, vlan.0, endpoint.port, protocol as u8)
    }

    /// Of any word.
    pub(super) fn word(self, word: u64) -> u64 {
        self.0.hash_u64(word)
    }

    /// Of a peer of a mapping: the key of a session.
    #[inline]
    pub(super) fn session(self, mapping: u32, peer: Endpoint) -> u64 {
        self.hash(mapping, peer.address, peer.port, 3)
    }

    /// Of an inside host.
    #[inline]
    pub(super) fn host(self, vlan: Vlan, address: u32) -> u64 {
        self.hash(address, vlan.0, 0, 4)
    }

    /// Of a fragmented packet.
    #[inline]
    pub(super) fn fragment(self, src: u32, dst: u32, ident: u16, kind: u8) -> u64 {
        self.hash(src, dst, ident, kind)
    }

    #[inline]
    fn hash(self, src: u32, dst: u32, src_port: u16, kind: u8) -> u64 {
        FlowKeyV4 {
            src,
            dst,
            src_port,
            dst_port: 0,
            protocol: IpProtocol(kind),
        }
        .flow_hash(self.0)
    }
}
