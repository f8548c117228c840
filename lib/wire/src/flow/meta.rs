//! The one-pass parser of the data path.

use core::net::IpAddr;

use super::{FlowKey, FlowKeyV4, FlowKeyV6};
use crate::be;
use crate::ether::{self, EtherType, VlanTag};
use crate::icmpv4::{self, Icmpv4Type};
use crate::icmpv6::{self, Icmpv6Type};
use crate::ip::IpProtocol;
use crate::ipv6::{self, UpperLayer};
use crate::{ParseError, TcpFlags, ipv4, tcp, udp};

/// Network layer addresses, in host order so that a prefix is a shift and a compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L3 {
    /// IPv4.
    V4 {
        /// Source address.
        src: u32,
        /// Destination address.
        dst: u32,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: u128,
        /// Destination address.
        dst: u128,
    },
    /// Anything else: see [`PacketMeta::ethertype`].
    Other,
}

/// Which part of an IP packet this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fragment {
    /// All of it.
    #[default]
    None,
    /// The first fragment: has the transport header, but not the whole payload.
    First,
    /// Another fragment: no transport header, ports are 0.
    Later,
}

/// What a frame is, as far as network functions ask. Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// Addresses, or that it is no IP.
    pub l3: L3,
    /// IPv4 total length, or 40 + IPv6 payload length: bytes from `l3_offset` to the end of the
    /// packet, never beyond the frame. Not IP: the rest of the frame.
    pub total_len: u32,
    /// Start of the network header: 14, 18 or 22.
    pub l3_offset: u16,
    /// Start of the transport header, behind IPv4 options or IPv6 extension headers; `l3_offset`
    /// if not IP.
    pub l4_offset: u16,
    /// Start of the transport payload; `l4_offset` where the transport is unknown.
    pub payload_offset: u16,
    /// Ethertype behind the tags.
    pub ethertype: EtherType,
    /// Tag control information, outermost first; see [`PacketMeta::outer_tag`].
    pub vlan_tci: [u16; ether::MAX_VLAN_TAGS],
    /// Number of tags: 0, 1 or 2.
    pub vlan_count: u8,
    /// True if the outermost tag is 802.1ad.
    pub outer_is_service: bool,
    /// Transport protocol; meaningless if not IP.
    pub protocol: IpProtocol,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// Whole packet or which fragment.
    pub fragment: Fragment,
    /// Offset of the fragment's data in bytes.
    pub fragment_offset: u16,
    /// TCP or UDP source port, else 0.
    pub src_port: u16,
    /// TCP or UDP destination port, else 0.
    pub dst_port: u16,
    /// TCP control bits, else none.
    pub tcp_flags: TcpFlags,
    /// ICMP type, of the version that `protocol` says, else 0.
    pub icmp_type: u8,
    /// ICMP code, else 0.
    pub icmp_code: u8,
    /// Identifier of an ICMP query or reply (RFC 5508 section 3), else 0.
    pub icmp_ident: u16,
}

impl PacketMeta {
    /// Parses a whole frame: link, network and transport headers, in one pass.
    ///
    /// A frame that is not IP is fine and has [`L3::Other`]. Padding behind the packet is
    /// ignored. Checksums are not looked at.
    ///
    /// # Errors
    /// What is truncated or inconsistent. A function that must pass on what it does not
    /// understand above IP (a router) calls [`PacketMeta::parse_l3`] and decides itself about
    /// [`PacketMeta::parse_l4`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        Self::parse_to(Depth::Transport, frame)
    }

    /// Parses link and network headers; the transport fields stay 0.
    ///
    /// # Errors
    /// What is truncated or inconsistent up to the last network header.
    #[inline]
    pub fn parse_l3(frame: &[u8]) -> Result<Self, ParseError> {
        Self::parse_to(Depth::Network, frame)
    }

    /// Parses the transport header of the frame that `self` came from by
    /// [`PacketMeta::parse_l3`]. Unknown transports and later fragments have none: that is fine.
    ///
    /// # Errors
    /// The transport header is truncated or its length field is wrong; the fields stay 0.
    #[inline]
    pub fn parse_l4(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        let is_ipv6 = match self.l3 {
            L3::V4 { .. } => false,
            L3::V6 { .. } => true,
            L3::Other => return Ok(()),
        };
        let segment = frame
            .get(usize::from(self.l4_offset)..self.l3_end())
            .unwrap_or_default();
        let transport = Transport::parse((self.protocol, is_ipv6), self.fragment, segment)?;
        self.payload_offset = self.l4_offset + transport.header_len;
        self.src_port = transport.src_port;
        self.dst_port = transport.dst_port;
        self.tcp_flags = transport.tcp_flags;
        self.icmp_type = transport.icmp_type;
        self.icmp_code = transport.icmp_code;
        self.icmp_ident = transport.icmp_ident;
        Ok(())
    }

    /// Parses the packet that an ICMP error quotes: an IP header first, cut off anywhere after
    /// the first 8 bytes of its transport header (RFC 792). `total_len` is what the header says
    /// and may lie beyond `packet`; offsets count from the start of `packet`. Ports and ICMP
    /// identifier are there; TCP flags only if quoted.
    ///
    /// # Errors
    /// The IP header is truncated or bogus, or fewer than 8 bytes of TCP, UDP or ICMP follow it.
    pub fn parse_quoted(packet: &[u8]) -> Result<Self, ParseError> {
        match packet.first().map(|byte| byte >> 4) {
            Some(6) => {
                let link = Link::new(0, EtherType::IPV6);
                Self::ipv6(&link, packet, Depth::Quoted)
            }
            _ => {
                let link = Link::new(0, EtherType::IPV4);
                Self::ipv4(&link, packet, Depth::Quoted)
            }
        }
    }

    /// True for IPv4.
    #[inline]
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        matches!(self.l3, L3::V4 { .. })
    }

    /// True for IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        matches!(self.l3, L3::V6 { .. })
    }

    /// True for every fragment.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment != Fragment::None
    }

    /// True for the fragment that has the transport header.
    #[inline]
    #[must_use]
    pub fn is_first_fragment(&self) -> bool {
        self.fragment == Fragment::First
    }

    /// End of the IP packet in the frame; what follows is padding.
    #[inline]
    #[must_use]
    pub const fn l3_end(&self) -> usize {
        self.l3_offset as usize + self.total_len as usize
    }

    /// VLAN of the outermost tag; `None` for an untagged frame.
    #[inline]
    #[must_use]
    pub fn outer_vid(&self) -> Option<u16> {
        (self.vlan_count > 0).then(|| self.vlan_tci[0] & 0xfff)
    }

    /// The outermost tag.
    #[inline]
    #[must_use]
    pub fn outer_tag(&self) -> Option<VlanTag> {
        let tpid = if self.outer_is_service {
            EtherType::QINQ
        } else {
            EtherType::VLAN
        };
        (self.vlan_count > 0).then(|| VlanTag::from_tci(tpid, self.vlan_tci[0]))
    }

    /// Source and destination address; `None` if not IP.
    #[inline]
    #[must_use]
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match self.l3 {
            L3::V4 { src, dst } => Some((IpAddr::V4(src.into()), IpAddr::V4(dst.into()))),
            L3::V6 { src, dst } => Some((IpAddr::V6(src.into()), IpAddr::V6(dst.into()))),
            L3::Other => None,
        }
    }

    /// The 5-tuple; for an ICMP query or reply both ports are its identifier. `None` if not IP.
    #[inline]
    #[must_use]
    pub const fn flow_key(&self) -> Option<FlowKey> {
        // At most one of the two is not zero.
        let src_port = self.src_port | self.icmp_ident;
        let dst_port = self.dst_port | self.icmp_ident;
        let protocol = self.protocol;
        match self.l3 {
            L3::V4 { src, dst } => Some(FlowKey::V4(FlowKeyV4 {
                src,
                dst,
                src_port,
                dst_port,
                protocol,
            })),
            L3::V6 { src, dst } => Some(FlowKey::V6(FlowKeyV6 {
                src,
                dst,
                src_port,
                dst_port,
                protocol,
            })),
            L3::Other => None,
        }
    }

    // Every path ends in one struct literal from values in registers. Filling in a struct field by
    // field and moving it afterwards costs 12 ns: wide loads behind narrow stores stall.
    #[inline(always)]
    fn parse_to(depth: Depth, frame: &[u8]) -> Result<Self, ParseError> {
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
    fn ipv4(link: &Link, packet: &[u8], depth: Depth) -> Result<Self, ParseError> {
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
    fn ipv6(link: &Link, packet: &[u8], depth: Depth) -> Result<Self, ParseError> {
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
enum Depth {
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

struct Link {
    len: u16,
    ethertype: EtherType,
    vlan_tci: [u16; ether::MAX_VLAN_TAGS],
    vlan_count: u8,
    outer_is_service: bool,
}

impl Link {
    #[inline(always)]
    const fn new(len: usize, ethertype: EtherType) -> Self {
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

struct Transport {
    header_len: u16,
    src_port: u16,
    dst_port: u16,
    tcp_flags: TcpFlags,
    icmp_type: u8,
    icmp_code: u8,
    icmp_ident: u16,
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
    fn parse(
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
