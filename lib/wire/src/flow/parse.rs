//! The engine of [`PacketMeta::parse`].
//!
//! Every path ends in one struct literal made from values in registers. Filling a struct field by field and moving it
//! afterwards cost 10 ns a frame: wide loads behind narrow stores stall. For the same reason some steps work on `&mut
//! self` instead of returning a `Result` of a struct.

use super::{Fragment, L3, PacketMeta};
use crate::be;
use crate::ether::{self, EtherType};
use crate::icmpv4::{self, Icmpv4Type};
use crate::icmpv6::{self, Icmpv6Type};
use crate::ip::IpProtocol;
use crate::ipv6::{self, UpperLayer};
use crate::{ParseError, TcpFlags, ipv4, tcp, udp};

impl PacketMeta {
    #[inline(always)]
    pub(super) fn parse_to(depth: Depth, frame: &[u8]) -> Result<Self, ParseError> {
        let header = frame.first_chunk::<{ ether::HEADER_LEN }>();
        let header = header.ok_or(ParseError::EthernetTruncated)?;
        let ethertype = EtherType(u16::from_be_bytes([header[12], header[13]]));
        let mut link = Link::new(ether::HEADER_LEN, ethertype);
        if ethertype.is_vlan() {
            link.skip_tags(frame)?;
        }
        let packet = frame.get(usize::from(link.len)..).unwrap_or_default();
        match link.ethertype {
            EtherType::IPV4 => Self::ipv4(&link, packet, depth),
            EtherType::IPV6 => Self::ipv6(&link, packet, depth),
            _ => Ok(Self::not_ip(&link, packet)),
        }
    }

    #[inline(always)]
    fn not_ip(link: &Link, payload: &[u8]) -> Self {
        let network = Network {
            l3: L3::Other,
            total_len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            header_len: 0,
            protocol: IpProtocol(0),
            ttl: 0,
            traffic_class: 0,
            fragment: Fragment::None,
            fragment_offset: 0,
        };
        Self::assemble(link, &network, &Transport::NONE)
    }

    #[inline(always)]
    pub(super) fn ipv4(link: &Link, packet: &[u8], depth: Depth) -> Result<Self, ParseError> {
        let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Ipv4Truncated)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let end = depth.end(total_len, packet);
        if header[0] >> 4 != 4 {
            return Err(ParseError::Ipv4BadVersion);
        }
        if header_len < ipv4::HEADER_LEN || header_len > end {
            return Err(ParseError::Ipv4BadHeaderLength);
        }
        let segment = packet
            .get(header_len..end)
            .ok_or(ParseError::Ipv4BadTotalLength)?;
        let flags_offset = u16::from_be_bytes([header[6], header[7]]);
        let fragment_offset = (flags_offset & 0x1fff) << 3;
        let network = Network {
            l3: L3::V4 {
                src: u32::from_be_bytes([header[12], header[13], header[14], header[15]]),
                dst: u32::from_be_bytes([header[16], header[17], header[18], header[19]]),
            },
            total_len: total_len as u32,
            header_len: header_len as u16,
            protocol: IpProtocol(header[9]),
            ttl: header[8],
            traffic_class: header[1],
            fragment: Fragment::new(fragment_offset, flags_offset & 0x2000 != 0),
            fragment_offset,
        };
        let transport = depth.transport((network.protocol, false), network.fragment, segment)?;
        Ok(Self::assemble(link, &network, &transport))
    }

    #[inline(always)]
    pub(super) fn ipv6(link: &Link, packet: &[u8], depth: Depth) -> Result<Self, ParseError> {
        let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Ipv6Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(ParseError::Ipv6BadVersion);
        }
        let total_len = ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let payload = packet.get(ipv6::HEADER_LEN..depth.end(total_len, packet));
        let payload = payload.ok_or(ParseError::Ipv6BadPayloadLength)?;
        // Scalars, assigned only where there are extension headers, stay in registers; joining
        // two `UpperLayer`s would not.
        let mut protocol = IpProtocol(header[6]);
        let (mut header_len, mut fragment_offset, mut more) = (ipv6::HEADER_LEN, 0, false);
        if ipv6::is_extension(protocol) {
            let upper = UpperLayer::find(protocol, payload)?;
            protocol = upper.protocol;
            header_len += upper.offset;
            if let Some(fragment) = upper.fragment {
                fragment_offset = fragment.offset;
                more = fragment.more;
            }
        }
        let network = Network {
            l3: L3::V6 {
                src: u128::from_be_bytes(be::get_array(header, 8..24)),
                dst: u128::from_be_bytes(be::get_array(header, 24..40)),
            },
            total_len: total_len as u32,
            header_len: header_len as u16,
            protocol,
            ttl: header[7],
            traffic_class: (u16::from_be_bytes([header[0], header[1]]) >> 4) as u8,
            fragment: Fragment::new(fragment_offset, more),
            fragment_offset,
        };
        let segment = packet
            .get(header_len..ipv6::HEADER_LEN + payload.len())
            .unwrap_or_default();
        let transport = depth.transport((network.protocol, true), network.fragment, segment)?;
        Ok(Self::assemble(link, &network, &transport))
    }

    #[inline(always)]
    fn assemble(link: &Link, network: &Network, transport: &Transport) -> Self {
        let l4_offset = link.len + network.header_len;
        Self {
            l3: network.l3,
            total_len: network.total_len,
            l3_offset: link.len,
            l4_offset,
            payload_offset: l4_offset + transport.header_len,
            ethertype: link.ethertype,
            vlan_tci: link.vlan_tci,
            vlan_count: link.vlan_count,
            outer_is_service: link.outer_is_service,
            protocol: network.protocol,
            ttl: network.ttl,
            traffic_class: network.traffic_class,
            fragment: network.fragment,
            fragment_offset: network.fragment_offset,
            src_port: transport.src_port,
            dst_port: transport.dst_port,
            tcp_flags: transport.tcp_flags,
            icmp_type: transport.icmp_type,
            icmp_code: transport.icmp_code,
            icmp_ident: transport.icmp_ident,
        }
    }
}

impl Fragment {
    #[inline(always)]
    const fn new(offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::None,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}

/// How far to parse, and how much must be there.
#[derive(Clone, Copy)]
pub(super) enum Depth {
    /// The network header of a whole packet.
    Network,
    /// The transport header of a whole packet.
    Transport,
    /// The transport header of what an ICMP error quotes.
    Quoted,
}

impl Depth {
    #[inline(always)]
    fn end(self, total_len: usize, packet: &[u8]) -> usize {
        match self {
            Self::Network | Self::Transport => total_len,
            Self::Quoted => total_len.min(packet.len()),
        }
    }

    #[inline(always)]
    fn transport(
        self,
        protocol: (IpProtocol, bool),
        fragment: Fragment,
        segment: &[u8],
    ) -> Result<Transport, ParseError> {
        match self {
            Self::Network => Ok(Transport::NONE),
            Self::Transport => Transport::parse(protocol, fragment, segment),
            Self::Quoted => Transport::parse_quoted(protocol, fragment, segment),
        }
    }
}

pub(super) struct Link {
    len: u16,
    ethertype: EtherType,
    vlan_tci: [u16; ether::MAX_VLAN_TAGS],
    vlan_count: u8,
    outer_is_service: bool,
}

impl Link {
    #[inline(always)]
    pub(super) const fn new(len: usize, ethertype: EtherType) -> Self {
        Self {
            len: len as u16,
            ethertype,
            vlan_tci: [0; ether::MAX_VLAN_TAGS],
            vlan_count: 0,
            outer_is_service: false,
        }
    }

    // Mutates in place instead of returning `Result<Link>`, and is straight-line instead of
    // looping like `VlanStack::peek`: both keep the fields in registers.
    #[inline(always)]
    fn skip_tags(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        self.outer_is_service = self.ethertype == EtherType::QINQ;
        self.vlan_tci[0] = self.skip_tag(frame)?;
        if self.ethertype.is_vlan() {
            self.vlan_tci[1] = self.skip_tag(frame)?;
        }
        Ok(())
    }

    /// Steps over one tag and returns its control information.
    #[inline(always)]
    fn skip_tag(&mut self, frame: &[u8]) -> Result<u16, ParseError> {
        let tag = be::chunk_at::<{ ether::VLAN_TAG_LEN }>(frame, usize::from(self.len));
        let [a, b, c, d] = *tag.ok_or(ParseError::VlanTruncated)?;
        self.len += ether::VLAN_TAG_LEN as u16;
        self.ethertype = EtherType(u16::from_be_bytes([c, d]));
        self.vlan_count += 1;
        Ok(u16::from_be_bytes([a, b]))
    }
}

struct Network {
    l3: L3,
    total_len: u32,
    header_len: u16,
    protocol: IpProtocol,
    ttl: u8,
    traffic_class: u8,
    fragment: Fragment,
    fragment_offset: u16,
}

pub(super) struct Transport {
    pub(super) header_len: u16,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) tcp_flags: TcpFlags,
    pub(super) icmp_type: u8,
    pub(super) icmp_code: u8,
    pub(super) icmp_ident: u16,
}

impl Transport {
    const NONE: Self = Self {
        header_len: 0,
        src_port: 0,
        dst_port: 0,
        tcp_flags: TcpFlags::NONE,
        icmp_type: 0,
        icmp_code: 0,
        icmp_ident: 0,
    };

    /// The protocol comes with whether it is IPv6: each version has its own ICMP.
    #[inline(always)]
    pub(super) fn parse(
        protocol: (IpProtocol, bool),
        fragment: Fragment,
        segment: &[u8],
    ) -> Result<Self, ParseError> {
        if fragment == Fragment::Later {
            return Ok(Self::NONE);
        }
        match protocol {
            (IpProtocol::UDP, _) => Self::udp(segment, fragment),
            (IpProtocol::TCP, _) => Self::tcp(segment),
            (IpProtocol::ICMPV4, false) => Self::icmpv4(segment),
            (IpProtocol::ICMPV6, true) => Self::icmpv6(segment),
            _ => Ok(Self::NONE),
        }
    }

    /// As [`Transport::parse`], where only the first 8 bytes need be there.
    fn parse_quoted(
        protocol: (IpProtocol, bool),
        fragment: Fragment,
        segment: &[u8],
    ) -> Result<Self, ParseError> {
        if fragment == Fragment::Later {
            return Ok(Self::NONE);
        }
        match protocol {
            (IpProtocol::UDP, _) => Self::ports(segment).ok_or(ParseError::UdpTruncated),
            (IpProtocol::TCP, _) => {
                let tcp_flags = TcpFlags(segment.get(13).copied().unwrap_or_default());
                let ports = Self::ports(segment).ok_or(ParseError::TcpTruncated)?;
                Ok(Self { tcp_flags, ..ports })
            }
            (IpProtocol::ICMPV4, false) => Self::icmpv4(segment),
            (IpProtocol::ICMPV6, true) => Self::icmpv6(segment),
            _ => Ok(Self::NONE),
        }
    }

    /// The first 8 bytes of TCP or UDP.
    #[inline(always)]
    fn ports(segment: &[u8]) -> Option<Self> {
        let header = segment.first_chunk::<{ udp::HEADER_LEN }>()?;
        Some(Self {
            header_len: udp::HEADER_LEN as u16,
            src_port: u16::from_be_bytes([header[0], header[1]]),
            dst_port: u16::from_be_bytes([header[2], header[3]]),
            ..Self::NONE
        })
    }

    #[inline(always)]
    fn udp(segment: &[u8], fragment: Fragment) -> Result<Self, ParseError> {
        let header = segment.first_chunk::<{ udp::HEADER_LEN }>();
        let header = header.ok_or(ParseError::UdpTruncated)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        // The length counts all fragments: in the first one it may lie beyond the segment.
        let beyond = length > segment.len() && fragment == Fragment::None;
        if length < udp::HEADER_LEN || beyond {
            return Err(ParseError::UdpBadLength);
        }
        Self::ports(segment).ok_or(ParseError::UdpTruncated)
    }

    #[inline(always)]
    fn tcp(segment: &[u8]) -> Result<Self, ParseError> {
        let header = segment.first_chunk::<{ tcp::HEADER_LEN }>();
        let header = header.ok_or(ParseError::TcpTruncated)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < tcp::HEADER_LEN || header_len > segment.len() {
            return Err(ParseError::TcpBadDataOffset);
        }
        let ports = Self::ports(segment).ok_or(ParseError::TcpTruncated)?;
        Ok(Self {
            header_len: header_len as u16,
            tcp_flags: TcpFlags(header[13]),
            ..ports
        })
    }

    #[inline(always)]
    fn icmpv4(segment: &[u8]) -> Result<Self, ParseError> {
        let header = segment.first_chunk::<{ icmpv4::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Icmpv4Truncated)?;
        Ok(Self::icmp(header, Icmpv4Type(header[0]).has_ident()))
    }

    #[inline(always)]
    fn icmpv6(segment: &[u8]) -> Result<Self, ParseError> {
        let header = segment.first_chunk::<{ icmpv6::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Icmpv6Truncated)?;
        Ok(Self::icmp(header, Icmpv6Type(header[0]).has_ident()))
    }

    #[inline(always)]
    fn icmp(header: &[u8; 8], has_ident: bool) -> Self {
        let ident = u16::from_be_bytes([header[4], header[5]]);
        Self {
            header_len: header.len() as u16,
            icmp_type: header[0],
            icmp_code: header[1],
            icmp_ident: if has_ident { ident } else { 0 },
            ..Self::NONE
        }
    }
}
