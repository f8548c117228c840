//! The one-pass parser of the data path.

use core::net::IpAddr;

use super::parse::{Depth, Link, Transport};
use super::{FlowKey, FlowKeyV4, FlowKeyV6};
use crate::ether::{self, EtherType, VlanTag};
use crate::ip::IpProtocol;
use crate::{ParseError, TcpFlags};

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
    /// A fragment but the first: no transport header, ports are 0.
    Later,
}

/// The fields of a frame that network functions need. Offsets count from the start of the frame.
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
    /// The truncated or inconsistent header. A function that must pass on packets that it does not understand above
    /// IP (a router) calls [`PacketMeta::parse_l3`] and decides itself about [`PacketMeta::parse_l4`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        Self::parse_to(Depth::Transport, frame)
    }

    /// Parses link and network headers; the transport fields stay 0.
    ///
    /// # Errors
    /// The truncated or inconsistent header, up to the last network header.
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
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;
    use crate::build::Frame;
    use crate::ipv6::FragmentInfo;

    fn endpoints() -> (SocketAddr, SocketAddr) {
        (([10, 0, 0, 1], 1000).into(), ([10, 0, 0, 2], 53).into())
    }

    fn udp(change: impl Fn(&mut [u8])) -> Result<PacketMeta, ParseError> {
        let (src, dst) = endpoints();
        let mut frame = [0; 60];
        Frame::udp(src, dst)
            .write(&mut frame, b"payload")
            .expect("a frame that fits");
        change(&mut frame);
        PacketMeta::parse(&frame)
    }

    #[test]
    fn padding_is_behind_the_packet() {
        let meta = udp(|_| ()).expect("a datagram");
        assert_eq!(
            (meta.l3_offset, meta.l4_offset, meta.payload_offset),
            (14, 34, 42)
        );
        assert_eq!((meta.l3_end(), meta.total_len), (49, 35));
        assert_eq!((meta.src_port, meta.dst_port), (1000, 53));
        assert_eq!(
            meta.l3,
            L3::V4 {
                src: 0x0a00_0001,
                dst: 0x0a00_0002
            }
        );
    }

    #[test]
    fn malformed_headers_are_named() {
        assert_eq!(
            udp(|frame| frame[14] = 0x55),
            Err(ParseError::Ipv4BadVersion)
        );
        assert_eq!(
            udp(|frame| frame[14] = 0x44),
            Err(ParseError::Ipv4BadHeaderLength)
        );
        assert_eq!(
            udp(|frame| frame[17] = 47),
            Err(ParseError::Ipv4BadTotalLength)
        );
        assert_eq!(udp(|frame| frame[17] = 27), Err(ParseError::UdpTruncated));
        assert_eq!(udp(|frame| frame[39] = 16), Err(ParseError::UdpBadLength));
        assert_eq!(udp(|frame| frame[39] = 7), Err(ParseError::UdpBadLength));
        assert_eq!(udp(|frame| frame[23] = 6), Err(ParseError::TcpTruncated));
        let as_ipv6 = udp(|frame| frame[12..14].copy_from_slice(&[0x86, 0xdd]));
        assert_eq!(as_ipv6, Err(ParseError::Ipv6BadVersion));
        assert_eq!(
            PacketMeta::parse(&[0; 13]),
            Err(ParseError::EthernetTruncated)
        );
    }

    #[test]
    fn a_router_can_go_on_where_only_the_transport_is_malformed() {
        let (src, dst) = endpoints();
        let mut frame = [0; 60];
        let len = Frame::ip(src.ip(), dst.ip(), IpProtocol::TCP).write(&mut frame, &[0, 1, 0, 2]);
        let frame = &frame[..len.expect("a frame that fits")];
        let mut meta = PacketMeta::parse_l3(frame).expect("a good IP header");
        let before = meta;
        assert_eq!(meta.parse_l4(frame), Err(ParseError::TcpTruncated));
        assert_eq!(meta, before);
    }

    #[test]
    fn what_is_not_ip_is_fine() {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        let meta = PacketMeta::parse(&frame).expect("a frame");
        assert_eq!((meta.l3, meta.ethertype), (L3::Other, EtherType::ARP));
        assert_eq!(
            (meta.l3_end(), meta.flow_key(), meta.addresses()),
            (60, None, None)
        );
    }

    #[test]
    fn each_version_has_its_own_icmp() {
        let (src, dst) = endpoints();
        let mut frame = [0; 60];
        let len = Frame::ip(src.ip(), dst.ip(), IpProtocol::ICMPV6).write(&mut frame, &[128; 8]);
        let meta = PacketMeta::parse(&frame[..len.expect("a frame that fits")]);
        assert_eq!(meta.map(|meta| meta.icmp_type), Ok(0));
    }

    #[test]
    fn the_identifier_stands_for_the_ports_of_an_icmp_query() {
        let (src, dst) = endpoints();
        let mut frame = [0; 60];
        let len = Frame::echo_request(src.ip(), dst.ip(), 77, 1).write(&mut frame, &[]);
        let meta = PacketMeta::parse(&frame[..len.expect("a frame that fits")]).expect("an echo");
        let key = meta.flow_key().expect("an IP packet");
        assert_eq!((meta.src_port, key.src_port(), key.dst_port()), (0, 77, 77));
        let len = Frame::icmp(src.ip(), dst.ip(), 3, 1, [9; 4]).write(&mut frame, &[]);
        let meta = PacketMeta::parse(&frame[..len.expect("a frame that fits")]).expect("an error");
        assert_eq!(meta.icmp_ident, 0, "an error has no identifier");
    }

    #[test]
    fn the_first_fragment_of_a_datagram_announces_all_of_it() {
        let (src, dst) = endpoints();
        let more = FragmentInfo {
            offset: 0,
            more: true,
            ident: 1,
        };
        let datagram = [0, 1, 0, 2, 0x10, 0, 0, 0];
        let mut frame = [0; 60];
        for (fragment, expected) in [(None, Err(ParseError::UdpBadLength)), (Some(more), Ok(2))] {
            let mut packet = Frame::ip(src.ip(), dst.ip(), IpProtocol::UDP);
            packet.fragment = fragment;
            let len = packet
                .write(&mut frame, &datagram)
                .expect("a frame that fits");
            let parsed = PacketMeta::parse(&frame[..len]).map(|meta| meta.dst_port);
            assert_eq!(parsed, expected);
        }
    }

    #[test]
    fn a_quoted_packet_may_be_cut_off_after_eight_bytes() {
        let (src, dst) = endpoints();
        let mut frame = [0; 600];
        let len = Frame::tcp(src, dst, TcpFlags::SYN).write(&mut frame, &[0; 500]);
        let packet = &frame[14..len.expect("a frame that fits")];
        let meta = PacketMeta::parse_quoted(&packet[..28]).expect("header and 8 bytes");
        assert_eq!(
            (meta.src_port, meta.dst_port, meta.total_len),
            (1000, 53, 540)
        );
        assert_eq!(meta.tcp_flags, TcpFlags::NONE, "not quoted");
        let meta = PacketMeta::parse_quoted(&packet[..40]).expect("header and 20 bytes");
        assert_eq!(meta.tcp_flags, TcpFlags::SYN);
        assert_eq!(
            PacketMeta::parse_quoted(&packet[..27]),
            Err(ParseError::TcpTruncated)
        );
        assert_eq!(
            PacketMeta::parse_quoted(&packet[..19]),
            Err(ParseError::Ipv4Truncated)
        );
        assert_eq!(
            PacketMeta::parse_quoted(&[]),
            Err(ParseError::Ipv4Truncated)
        );
    }
}
