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
        let mut meta = Self::parse_l3(frame)?;
        meta.parse_l4(frame)?;
        Ok(meta)
    }

    /// Parses link and network headers; the transport fields stay 0.
    ///
    /// # Errors
    /// What is truncated or inconsistent up to the last network header.
    #[inline]
    pub fn parse_l3(frame: &[u8]) -> Result<Self, ParseError> {
        let header = frame.first_chunk::<{ ether::HEADER_LEN }>();
        let header = header.ok_or(ParseError::EthernetTruncated)?;
        let ethertype = EtherType(u16::from_be_bytes([header[12], header[13]]));
        let mut meta = Self::empty(ethertype, ether::HEADER_LEN);
        if ethertype.is_vlan() {
            meta.skip_tags(frame)?;
        }
        meta.network(&frame[usize::from(meta.l3_offset)..], true)?;
        Ok(meta)
    }

    /// Parses the transport header of the frame that `self` came from by
    /// [`PacketMeta::parse_l3`]. Unknown transports and later fragments have none: that is fine.
    ///
    /// # Errors
    /// The transport header is truncated or its length field is wrong; the fields stay 0.
    #[inline]
    pub fn parse_l4(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        if self.fragment == Fragment::Later || self.l3 == L3::Other {
            return Ok(());
        }
        let Some(segment) = frame.get(usize::from(self.l4_offset)..self.l3_end()) else {
            return Ok(());
        };
        match (self.protocol, self.is_ipv6()) {
            (IpProtocol::UDP, _) => self.udp(segment),
            (IpProtocol::TCP, _) => self.tcp(segment),
            (IpProtocol::ICMPV4, false) => self.icmpv4(segment),
            (IpProtocol::ICMPV6, true) => self.icmpv6(segment),
            _ => Ok(()),
        }
    }

    /// Parses the packet that an ICMP error quotes: an IP header first, cut off anywhere after
    /// the first 8 bytes of its transport header (RFC 792). `total_len` is what the header says
    /// and may lie beyond `packet`; offsets count from the start of `packet`. Ports and ICMP
    /// identifier are there; TCP flags only if quoted.
    ///
    /// # Errors
    /// The IP header is truncated or bogus, or fewer than 8 bytes of TCP, UDP or ICMP follow it.
    pub fn parse_quoted(packet: &[u8]) -> Result<Self, ParseError> {
        let ethertype = match packet.first().map(|byte| byte >> 4) {
            Some(6) => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        let mut meta = Self::empty(ethertype, 0);
        meta.network(packet, false)?;
        if meta.fragment == Fragment::Later {
            return Ok(meta);
        }
        let segment = packet
            .get(usize::from(meta.l4_offset)..)
            .unwrap_or_default();
        match (meta.protocol, meta.is_ipv6()) {
            (IpProtocol::UDP, _) => meta.ports(segment).ok_or(ParseError::UdpTruncated)?,
            (IpProtocol::TCP, _) => {
                meta.ports(segment).ok_or(ParseError::TcpTruncated)?;
                meta.tcp_flags = TcpFlags(segment.get(13).copied().unwrap_or_default());
            }
            (IpProtocol::ICMPV4, false) => meta.icmpv4(segment)?,
            (IpProtocol::ICMPV6, true) => meta.icmpv6(segment)?,
            _ => {}
        }
        Ok(meta)
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

    #[inline(always)]
    fn empty(ethertype: EtherType, l3_offset: usize) -> Self {
        Self {
            l3: L3::Other,
            total_len: 0,
            l3_offset: l3_offset as u16,
            l4_offset: 0,
            payload_offset: 0,
            ethertype,
            vlan_tci: [0; ether::MAX_VLAN_TAGS],
            vlan_count: 0,
            outer_is_service: false,
            protocol: IpProtocol(0),
            ttl: 0,
            traffic_class: 0,
            fragment: Fragment::None,
            fragment_offset: 0,
            src_port: 0,
            dst_port: 0,
            tcp_flags: TcpFlags::NONE,
            icmp_type: 0,
            icmp_code: 0,
            icmp_ident: 0,
        }
    }

    #[inline]
    fn skip_tags(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        let stack = ether::VlanStack::peek(frame)?;
        for (tci, tag) in self.vlan_tci.iter_mut().zip(stack.tags()) {
            *tci = tag.tci();
        }
        self.vlan_count = stack.tags().len() as u8;
        self.outer_is_service = self.ethertype == EtherType::QINQ;
        self.ethertype = stack.ethertype;
        self.l3_offset = stack.l3_offset as u16;
        Ok(())
    }

    /// `whole`: the packet must be as long as its header says.
    #[inline(always)]
    fn network(&mut self, packet: &[u8], whole: bool) -> Result<(), ParseError> {
        match self.ethertype {
            EtherType::IPV4 => self.ipv4(packet, whole),
            EtherType::IPV6 => self.ipv6(packet, whole),
            _ => {
                self.total_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                self.l4_offset = self.l3_offset;
                self.payload_offset = self.l3_offset;
                Ok(())
            }
        }
    }

    #[inline(always)]
    fn ipv4(&mut self, packet: &[u8], whole: bool) -> Result<(), ParseError> {
        let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Ipv4Truncated)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] >> 4 != 4 {
            return Err(ParseError::Ipv4BadVersion);
        }
        let available = if whole {
            total_len
        } else {
            total_len.min(packet.len())
        };
        if header_len < ipv4::HEADER_LEN || header_len > available {
            return Err(ParseError::Ipv4BadHeaderLength);
        }
        if available > packet.len() {
            return Err(ParseError::Ipv4BadTotalLength);
        }
        self.l3 = L3::V4 {
            src: u32::from_be_bytes([header[12], header[13], header[14], header[15]]),
            dst: u32::from_be_bytes([header[16], header[17], header[18], header[19]]),
        };
        self.total_len = total_len as u32;
        self.traffic_class = header[1];
        self.ttl = header[8];
        self.protocol = IpProtocol(header[9]);
        let flags_offset = u16::from_be_bytes([header[6], header[7]]);
        self.set_fragment((flags_offset & 0x1fff) << 3, flags_offset & 0x2000 != 0);
        self.l4_offset = self.l3_offset + header_len as u16;
        self.payload_offset = self.l4_offset;
        Ok(())
    }

    #[inline(always)]
    fn ipv6(&mut self, packet: &[u8], whole: bool) -> Result<(), ParseError> {
        let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Ipv6Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(ParseError::Ipv6BadVersion);
        }
        let total_len = ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let available = if whole {
            total_len
        } else {
            total_len.min(packet.len())
        };
        let Some(payload) = packet.get(ipv6::HEADER_LEN..available) else {
            return Err(ParseError::Ipv6BadPayloadLength);
        };
        let upper = UpperLayer::find(IpProtocol(header[6]), payload)?;
        self.l3 = L3::V6 {
            src: u128::from_be_bytes(be::get_array(header, 8..24)),
            dst: u128::from_be_bytes(be::get_array(header, 24..40)),
        };
        self.total_len = total_len as u32;
        self.traffic_class = (u16::from_be_bytes([header[0], header[1]]) >> 4) as u8;
        self.ttl = header[7];
        self.protocol = upper.protocol;
        if let Some(fragment) = upper.fragment {
            self.set_fragment(fragment.offset, fragment.more);
        }
        self.l4_offset = self.l3_offset + (ipv6::HEADER_LEN + upper.offset) as u16;
        self.payload_offset = self.l4_offset;
        Ok(())
    }

    #[inline(always)]
    fn set_fragment(&mut self, offset: u16, more: bool) {
        self.fragment_offset = offset;
        self.fragment = match (offset, more) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
    }

    /// Ports and payload offset of a header that starts like UDP's and is at least as long.
    #[inline(always)]
    fn ports(&mut self, segment: &[u8]) -> Option<()> {
        let header = segment.first_chunk::<{ udp::HEADER_LEN }>()?;
        self.src_port = u16::from_be_bytes([header[0], header[1]]);
        self.dst_port = u16::from_be_bytes([header[2], header[3]]);
        self.payload_offset = self.l4_offset + udp::HEADER_LEN as u16;
        Some(())
    }

    #[inline(always)]
    fn udp(&mut self, segment: &[u8]) -> Result<(), ParseError> {
        let header = segment.first_chunk::<{ udp::HEADER_LEN }>();
        let header = header.ok_or(ParseError::UdpTruncated)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        // The length counts all fragments: in the first one it may lie beyond the segment.
        let beyond = length > segment.len() && self.fragment == Fragment::None;
        if length < udp::HEADER_LEN || beyond {
            return Err(ParseError::UdpBadLength);
        }
        self.ports(segment).ok_or(ParseError::UdpTruncated)
    }

    #[inline(always)]
    fn tcp(&mut self, segment: &[u8]) -> Result<(), ParseError> {
        let header = segment.first_chunk::<{ tcp::HEADER_LEN }>();
        let header = header.ok_or(ParseError::TcpTruncated)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < tcp::HEADER_LEN || header_len > segment.len() {
            return Err(ParseError::TcpBadDataOffset);
        }
        self.src_port = u16::from_be_bytes([header[0], header[1]]);
        self.dst_port = u16::from_be_bytes([header[2], header[3]]);
        self.tcp_flags = TcpFlags(header[13]);
        self.payload_offset = self.l4_offset + header_len as u16;
        Ok(())
    }

    #[inline(always)]
    fn icmpv4(&mut self, segment: &[u8]) -> Result<(), ParseError> {
        let header = segment.first_chunk::<{ icmpv4::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Icmpv4Truncated)?;
        self.icmp(header, Icmpv4Type(header[0]).has_ident());
        Ok(())
    }

    #[inline(always)]
    fn icmpv6(&mut self, segment: &[u8]) -> Result<(), ParseError> {
        let header = segment.first_chunk::<{ icmpv6::HEADER_LEN }>();
        let header = header.ok_or(ParseError::Icmpv6Truncated)?;
        self.icmp(header, Icmpv6Type(header[0]).has_ident());
        Ok(())
    }

    #[inline(always)]
    fn icmp(&mut self, header: &[u8; 8], has_ident: bool) {
        self.icmp_type = header[0];
        self.icmp_code = header[1];
        if has_ident {
            self.icmp_ident = u16::from_be_bytes([header[4], header[5]]);
        }
        self.payload_offset = self.l4_offset + header.len() as u16;
    }
}
