//! The fields that a NAT needs of a frame.

use super::endpoint::{Endpoint, Protocol, Vlan};
use crate::tcp::Segment;
use nfluid_ring::{Level, Offload};
use nfluid_wire::ether::VlanStack;
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::Icmpv4Type;
use nfluid_wire::{EtherType, L3, PacketMeta, TcpFlags};

/// ICMP queries: echo, timestamp. (Information and address mask are dead, RFC 6918.)
const QUERIES: [Icmpv4Type; 2] = [Icmpv4Type::ECHO_REQUEST, Icmpv4Type::TIMESTAMP];
/// Errors that quote a packet and are still in use: not source quench, not redirect (RFC 5508
/// section 6, RFC 6633).
const ERRORS: [Icmpv4Type; 3] = [
    Icmpv4Type::DEST_UNREACHABLE,
    Icmpv4Type::TIME_EXCEEDED,
    Icmpv4Type::PARAM_PROBLEM,
];

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// IPv4 with ports or a query identifier: whole, or the first fragment.
    Translatable,
    /// IPv4, a fragment without its transport header.
    LaterFragment,
    /// An ICMP error, which quotes a packet.
    IcmpError,
    /// An ICMP message that a NAT does not translate.
    IcmpOther,
    /// IPv4 with another transport.
    OtherProtocol,
    /// ARP.
    Arp,
    /// Neither IPv4 nor ARP.
    NotIpv4,
    /// Truncated or inconsistent.
    Malformed,
}

/// A parsed frame. Addresses and ports are meaningful as far as the class says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) class: Class,
    pub(super) protocol: Protocol,
    /// True for a TCP SYN without ACK and RST, any UDP datagram, an ICMP query.
    pub(super) opens: bool,
    /// The first fragment of several.
    pub(super) first_fragment: bool,
    /// A TCP fragment at offset 8, which writes over the flags of the first one: only an attack has such a fragment
    /// (RFC 3128).
    pub(super) over_flags: bool,
    pub(super) flags: TcpFlags,
    pub(super) vlan: Vlan,
    pub(super) src: Endpoint,
    pub(super) dst: Endpoint,
    /// Offsets in the frame: IPv4 header, transport header, end of the packet (before padding).
    pub(super) l3: usize,
    pub(super) l4: usize,
    pub(super) end: usize,
}

impl Packet {
    #[inline]
    pub(super) fn parse(frame: &[u8]) -> Packet {
        match PacketMeta::parse(frame) {
            Ok(meta) => Packet::from_meta(&meta),
            Err(_) => Packet::without_transport(malformed_as(frame), Vlan::UNTAGGED),
        }
    }

    /// Bytes of the largest packet, IP header included, that a frame is which this was parsed from; 0: not IPv4.
    /// `frame_len` are the frame's.
    pub(super) fn size(&self, frame_len: usize, offload: Offload) -> usize {
        match offload.level() {
            Level::Super if self.end > 0 => offload.packet_len(frame_len) - self.l3,
            _ => self.end - self.l3.min(self.end),
        }
    }

    /// The TCP segment of the frame that this was parsed from.
    #[inline]
    pub(super) fn segment<'a>(&self, frame: &'a [u8]) -> Option<Segment<'a>> {
        if self.protocol != Protocol::Tcp || self.class != Class::Translatable {
            return None;
        }
        Segment::read(frame.get(self.l4..self.end)?, !self.first_fragment)
    }

    /// A frame of which no packets can be made.
    pub(super) fn malformed() -> Packet {
        Packet::without_transport(Class::Malformed, Vlan::UNTAGGED)
    }

    fn without_transport(class: Class, vlan: Vlan) -> Packet {
        let nowhere = Endpoint::new(0, 0);
        Packet {
            class,
            protocol: Protocol::Icmp,
            opens: false,
            first_fragment: false,
            over_flags: false,
            flags: TcpFlags::NONE,
            vlan,
            src: nowhere,
            dst: nowhere,
            l3: 0,
            l4: 0,
            end: 0,
        }
    }

    #[inline]
    fn from_meta(meta: &PacketMeta) -> Packet {
        let vlan = Vlan::of(meta);
        let l3 = usize::from(meta.l3_offset);
        let L3::V4 { src, dst } = meta.l3 else {
            let class = match meta.ethertype {
                EtherType::ARP => Class::Arp,
                _ => Class::NotIpv4,
            };
            return Packet {
                l3,
                ..Packet::without_transport(class, vlan)
            };
        };
        // At most one of them is nonzero: a message has ports or an identifier.
        let src_port = meta.src_port | meta.icmp_ident;
        let dst_port = meta.dst_port | meta.icmp_ident;
        let (class, protocol, opens) = classify(meta);
        Packet {
            class,
            protocol,
            opens,
            first_fragment: meta.fragment == Fragment::First,
            over_flags: meta.fragment_offset == 8 && protocol == Protocol::Tcp,
            flags: meta.tcp_flags,
            vlan,
            src: Endpoint::new(src, src_port),
            dst: Endpoint::new(dst, dst_port),
            l3,
            l4: usize::from(meta.l4_offset),
            end: l3 + meta.total_len as usize,
        }
    }
}

/// Defects inside of IPv6 are no concern of the NAT.
#[cold]
fn malformed_as(frame: &[u8]) -> Class {
    match VlanStack::peek(frame) {
        Ok(stack) if stack.ethertype != EtherType::IPV4 => Class::NotIpv4,
        _ => Class::Malformed,
    }
}

#[inline]
fn classify(meta: &PacketMeta) -> (Class, Protocol, bool) {
    let Some(protocol) = Protocol::of(meta.protocol) else {
        return (Class::OtherProtocol, Protocol::Icmp, false);
    };
    if meta.fragment == Fragment::Later {
        return (Class::LaterFragment, protocol, false);
    }
    match protocol {
        Protocol::Udp => (Class::Translatable, protocol, true),
        Protocol::Tcp => (Class::Translatable, protocol, is_opening(meta.tcp_flags)),
        Protocol::Icmp => {
            let icmp_type = Icmpv4Type(meta.icmp_type);
            let class = match icmp_type {
                // A fragmented error could not be verified, and quotes no more than fits.
                _ if ERRORS.contains(&icmp_type) && meta.fragment == Fragment::None => {
                    Class::IcmpError
                }
                _ if icmp_type.has_ident() => Class::Translatable,
                _ => Class::IcmpOther,
            };
            (class, protocol, QUERIES.contains(&icmp_type))
        }
    }
}

fn is_opening(flags: TcpFlags) -> bool {
    flags & (TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST) == TcpFlags::SYN
}
