//! The fields by which packets belong to one flow.

use super::packet::{Addresses, Packet, Transport};
use super::rule::{Family, ICMP, ICMPV6, SYN, TCP, UDP};
use core::net::{Ipv4Addr, Ipv6Addr};
use nfluid_ring::flow::Buckets;
use nfluid_wire::HashSeed;
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::Icmpv4Type;
use nfluid_wire::icmpv6::Icmpv6Type;
use serde::{Deserialize, Serialize};

/// A flow, the same for both directions: the two ends in a fixed order, and on which port of the
/// firewall which of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowId {
    /// The lower end's address, then the higher end's; IPv4 in the first word.
    addresses: [u64; 4],
    /// From the lowest bit: higher end's port (16 bits), lower end's port (16), protocol (8),
    /// VLAN with a bit "tagged" (13), side of the lower end (1), IPv6 (1), unused (1), then for
    /// ICMP the side that asks (1) and the kind of query (1).
    rest: u64,
}

const PROTOCOL_SHIFT: u32 = 32;
const VLAN_SHIFT: u32 = 40;
const TAGGED: u64 = 1 << 52;
const LOWER_SIDE_SHIFT: u32 = 53;
const IPV6: u64 = 1 << 54;
const ASKER_SHIFT: u32 = 56;
const TIMESTAMP: u64 = 1 << 57;

impl FlowId {
    /// The flow of `packet`; `None` if it cannot belong to a state: a later fragment of a
    /// protocol with ports, or an ICMP message that is neither query nor reply.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Option<FlowId> {
        let side = packet.in_port & 1;
        let (src_port, dst_port, query) = match packet.transport {
            Transport::Tcp { src, dst, .. } | Transport::Udp { src, dst } => (src, dst, 0),
            Transport::Icmp { kind, id, .. } => {
                let query = Query::of(packet.protocol, kind)?;
                // A reply goes the other way than its query, so this bit is the same for both,
                // and differs for a query from the other side.
                let asker = side ^ u8::from(query.is_reply);
                (id, id, query.timestamp | u64::from(asker) << ASKER_SHIFT)
            }
            Transport::Opaque if matches!(packet.protocol, ICMP | TCP | UDP | ICMPV6) => {
                return None;
            }
            Transport::Opaque => (0, 0, 0),
        };
        let (addresses, ipv6, flipped) = match packet.addresses {
            Addresses::V4 { src, dst } => {
                let flipped = (src, src_port) > (dst, dst_port);
                let (low, high) = if flipped { (dst, src) } else { (src, dst) };
                let word = u64::from(low) << 32 | u64::from(high);
                ([word, 0, 0, 0], 0, flipped)
            }
            Addresses::V6 { src, dst } => {
                let flipped = (src, src_port) > (dst, dst_port);
                let (low, high) = if flipped { (dst, src) } else { (src, dst) };
                (
                    [upper(low), low as u64, upper(high), high as u64],
                    IPV6,
                    flipped,
                )
            }
        };
        let (low_port, high_port) = if flipped {
            (dst_port, src_port)
        } else {
            (src_port, dst_port)
        };
        let vlan = packet
            .vlan
            .map_or(0, |vlan| u64::from(vlan) << VLAN_SHIFT | TAGGED);
        let lower_side = side ^ u8::from(flipped);
        Some(FlowId {
            addresses,
            rest: u64::from(low_port) << 16
                | u64::from(high_port)
                | u64::from(packet.protocol) << PROTOCOL_SHIFT
                | vlan
                | u64::from(lower_side) << LOWER_SIDE_SHIFT
                | ipv6
                | query,
        })
    }

    /// IP protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        (self.rest >> PROTOCOL_SHIFT) as u8
    }

    /// The opening packet of this flow as it arrives on `in_port`: a TCP SYN, a query.
    pub fn packet_from(&self, in_port: u8) -> Packet {
        let side = u64::from(in_port & 1);
        let from_lower = self.rest >> LOWER_SIDE_SHIFT & 1 == side;
        let ordered = |low, high| if from_lower { (low, high) } else { (high, low) };
        let (low_port, high_port) = ((self.rest >> 16) as u16, self.rest as u16);
        let (src, dst) = if from_lower {
            (low_port, high_port)
        } else {
            (high_port, low_port)
        };
        let protocol = self.protocol();
        let [a, b, c, d] = self.addresses;
        let (low, high) = (join(a, b), join(c, d));
        let (addresses, family) = if self.rest & IPV6 != 0 {
            let (src, dst) = ordered(low, high);
            (Addresses::V6 { src, dst }, Family::V6)
        } else {
            let (src, dst) = ordered(u128::from(a >> 32), u128::from(a as u32));
            let (src, dst) = (src as u32, dst as u32);
            (Addresses::V4 { src, dst }, Family::V4)
        };
        let transport = match (protocol, family) {
            (TCP, _) => Transport::Tcp {
                src,
                dst,
                flags: SYN,
            },
            (UDP, _) => Transport::Udp { src, dst },
            (ICMP, Family::V4) | (ICMPV6, Family::V6) => Transport::Icmp {
                kind: self.icmp_type(self.rest >> ASKER_SHIFT & 1 != side),
                code: 0,
                id: src,
            },
            _ => Transport::Opaque,
        };
        Packet {
            addresses,
            protocol,
            fragment: Fragment::None,
            transport,
            vlan: (self.rest & TAGGED != 0).then_some((self.rest >> VLAN_SHIFT) as u16 & 0xfff),
            in_port,
        }
    }

    fn icmp_type(&self, is_reply: bool) -> u8 {
        match (self.rest & IPV6 != 0, self.rest & TIMESTAMP != 0, is_reply) {
            (false, false, false) => Icmpv4Type::ECHO_REQUEST.0,
            (false, false, true) => Icmpv4Type::ECHO_REPLY.0,
            (false, true, false) => Icmpv4Type::TIMESTAMP.0,
            (false, true, true) => Icmpv4Type::TIMESTAMP_REPLY.0,
            (true, _, false) => Icmpv6Type::ECHO_REQUEST.0,
            (true, _, true) => Icmpv6Type::ECHO_REPLY.0,
        }
    }

    /// Returns true if the flow is in one of these buckets, into which the switch sorts its packets.
    pub fn is_of(&self, buckets: &Buckets) -> bool {
        let [a, b, c, d] = self.addresses;
        let (low, high) = if self.rest & IPV6 != 0 {
            (
                Ipv6Addr::from(join(a, b)).into(),
                Ipv6Addr::from(join(c, d)).into(),
            )
        } else {
            let (low, high) = ((a >> 32) as u32, a as u32);
            (Ipv4Addr::from(low).into(), Ipv4Addr::from(high).into())
        };
        buckets.have(low, high)
    }

    /// Equal for both directions, unpredictable without the seed.
    #[inline]
    pub fn hash(&self, seed: HashSeed) -> u64 {
        let [first, others @ ..] = self.addresses;
        let mut hash = seed.hash_u64(first ^ self.rest.rotate_left(29));
        if self.rest & IPV6 != 0 {
            for word in others {
                hash = seed.hash_u64(hash ^ word);
            }
        }
        seed.hash_u64(hash ^ self.rest)
    }
}

/// An ICMP message that asks, or the answer to one.
struct Query {
    is_reply: bool,
    timestamp: u64,
}

impl Query {
    #[inline]
    fn of(protocol: u8, kind: u8) -> Option<Query> {
        let (is_reply, timestamp) = if protocol == ICMP {
            match Icmpv4Type(kind) {
                Icmpv4Type::ECHO_REQUEST => (false, 0),
                Icmpv4Type::ECHO_REPLY => (true, 0),
                Icmpv4Type::TIMESTAMP => (false, TIMESTAMP),
                Icmpv4Type::TIMESTAMP_REPLY => (true, TIMESTAMP),
                _ => return None,
            }
        } else {
            match Icmpv6Type(kind) {
                Icmpv6Type::ECHO_REQUEST => (false, 0),
                Icmpv6Type::ECHO_REPLY => (true, 0),
                _ => return None,
            }
        };
        Some(Query {
            is_reply,
            timestamp,
        })
    }
}

fn upper(address: u128) -> u64 {
    (address >> 64) as u64
}

fn join(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}
