//! Whole frames written into a caller's buffer, lengths and checksums right: for generators,
//! tests and the few packets that network functions send of their own (ICMP errors, ARP,
//! neighbour discovery).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::arp::{self, ArpRepr};
use crate::checksum::{self, ChecksumState};
use crate::ether::{self, EtherType, EthernetFrame, MacAddr, VlanTag};
use crate::icmpv4::{self, Icmpv4Packet, Icmpv4Type};
use crate::icmpv6::{Icmpv6Packet, Icmpv6Type};
use crate::ip::IpProtocol;
use crate::ipv4::{self, Ipv4Packet};
use crate::ipv6::{self, FragmentInfo, Ipv6Packet};
use crate::ndp::{self, NdpRepr};
use crate::tcp::{self, TcpFlags, TcpPacket};
use crate::udp::{self, UdpPacket};

/// Why a frame could not be written. The buffer's content is undefined afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The buffer is too small.
    NoRoom {
        /// Bytes that the frame needs.
        needed: usize,
        /// Bytes that the buffer has.
        available: usize,
    },
    /// Source and destination address are not of one IP version.
    MixedVersions,
    /// The packet does not fit a 16-bit length field.
    TooLong {
        /// Bytes of the packet.
        length: usize,
    },
    /// TCP options longer than 40 bytes or not a multiple of 4.
    BadTcpOptions {
        /// Bytes of options.
        length: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoRoom { needed, available } => {
                write!(f, "frame needs {needed} bytes, the buffer has {available}")
            }
            Self::MixedVersions => f.write_str("source is IPv4 and destination IPv6 or vice versa"),
            Self::TooLong { length } => write!(f, "packet of {length} bytes exceeds 65535"),
            Self::BadTcpOptions { length } => {
                write!(
                    f,
                    "{length} bytes of TCP options: need a multiple of 4 up to 40"
                )
            }
        }
    }
}

impl core::error::Error for BuildError {}

/// The transport header of a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport<'a> {
    /// UDP.
    Udp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
    },
    /// TCP.
    Tcp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// Sequence number.
        seq: u32,
        /// Acknowledgment number.
        ack: u32,
        /// Control bits.
        flags: TcpFlags,
        /// Window.
        window: u16,
        /// Options as they stand in the header, padded to a multiple of 4, at most 40 bytes.
        options: &'a [u8],
    },
    /// ICMP of the addresses' version.
    Icmp {
        /// Message type.
        msg_type: u8,
        /// Message code.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
    },
    /// The payload is the transport message, or a fragment of one.
    Raw(IpProtocol),
}

impl Transport<'_> {
    /// Bytes of the transport header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::Udp { .. } => udp::HEADER_LEN,
            Self::Tcp { options, .. } => tcp::HEADER_LEN + options.len(),
            Self::Icmp { .. } => icmpv4::HEADER_LEN,
            Self::Raw(_) => 0,
        }
    }

    fn protocol(&self, icmp: IpProtocol) -> IpProtocol {
        match self {
            Self::Udp { .. } => IpProtocol::UDP,
            Self::Tcp { .. } => IpProtocol::TCP,
            Self::Icmp { .. } => icmp,
            Self::Raw(protocol) => *protocol,
        }
    }

    /// Writes header and checksum before the payload that is already in `message`.
    fn write(&self, message: &mut [u8], (src, dst): (IpAddr, IpAddr), state: ChecksumState) {
        match *self {
            Self::Udp { src_port, dst_port } => {
                let pseudo =
                    checksum::pseudo_header(src, dst, IpProtocol::UDP.0, message.len() as u32);
                let length = message.len() as u16;
                let mut packet = UdpPacket::new_unchecked(message);
                packet.set_src_port(src_port);
                packet.set_dst_port(dst_port);
                packet.set_length(length);
                packet.fill_checksum(pseudo, state);
            }
            Self::Tcp {
                src_port,
                dst_port,
                seq,
                ack,
                flags,
                window,
                options,
            } => {
                let pseudo =
                    checksum::pseudo_header(src, dst, IpProtocol::TCP.0, message.len() as u32);
                let header_len = tcp::HEADER_LEN + options.len();
                message[tcp::HEADER_LEN..header_len].copy_from_slice(options);
                let mut packet = TcpPacket::new_unchecked(message);
                packet.set_src_port(src_port);
                packet.set_dst_port(dst_port);
                packet.set_seq(seq);
                packet.set_ack(ack);
                packet.set_header_len(header_len);
                packet.set_flags(flags);
                packet.set_window(window);
                packet.set_urgent(0);
                packet.fill_checksum(pseudo, state);
            }
            Self::Icmp {
                msg_type,
                code,
                rest,
            } => {
                let mut packet = Icmpv4Packet::new_unchecked(&mut *message);
                packet.set_msg_type(Icmpv4Type(msg_type));
                packet.set_code(code);
                packet.set_rest(rest);
                match (src, dst) {
                    (IpAddr::V6(src), IpAddr::V6(dst)) => {
                        Icmpv6Packet::new_unchecked(message).fill_checksum(src, dst);
                    }
                    _ => packet.fill_checksum(),
                }
            }
            Self::Raw(_) => {}
        }
    }
}

/// Description of an IP frame; the payload is given when it is written.
///
/// ```
/// use nfluid_wire::build::Frame;
/// let mut buffer = [0; 128];
/// let src = "10.0.0.1:1000".parse()?;
/// let dst = "10.0.0.2:53".parse()?;
/// let len = Frame::udp(src, dst).ttl(9).write(&mut buffer, b"payload")?;
/// assert_eq!(len, 14 + 20 + 8 + 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Ethernet source, `02:00:00:00:00:01` unless set.
    pub src_mac: MacAddr,
    /// Ethernet destination, `02:00:00:00:00:02` unless set.
    pub dst_mac: MacAddr,
    /// Tags, outermost first; any number.
    pub vlans: &'a [VlanTag],
    /// IP source.
    pub src: IpAddr,
    /// IP destination, of the source's version.
    pub dst: IpAddr,
    /// Time to live or hop limit, 64 unless set.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// IPv4 identification.
    pub ident: u16,
    /// IPv4 don't-fragment flag.
    pub dont_fragment: bool,
    /// Makes a fragment of it: IPv4 header fields or an IPv6 fragment header. Use it with
    /// [`Transport::Raw`]: other transports compute their checksum over this fragment alone.
    pub fragment: Option<FragmentInfo>,
    /// Transport header.
    pub transport: Transport<'a>,
    /// The checksum of TCP or UDP, complete unless set.
    pub checksum: ChecksumState,
}

impl<'a> Frame<'a> {
    /// A UDP datagram.
    #[must_use]
    pub const fn udp(src: SocketAddr, dst: SocketAddr) -> Self {
        let transport = Transport::Udp {
            src_port: src.port(),
            dst_port: dst.port(),
        };
        Self::new(src.ip(), dst.ip(), transport)
    }

    /// A TCP segment with sequence numbers 0 and a window of 65535.
    #[must_use]
    pub const fn tcp(src: SocketAddr, dst: SocketAddr, flags: TcpFlags) -> Self {
        let transport = Transport::Tcp {
            src_port: src.port(),
            dst_port: dst.port(),
            seq: 0,
            ack: 0,
            flags,
            window: 0xffff,
            options: &[],
        };
        Self::new(src.ip(), dst.ip(), transport)
    }

    /// An ICMP message of the addresses' version; `rest` are the four bytes after the checksum.
    #[must_use]
    pub const fn icmp(src: IpAddr, dst: IpAddr, msg_type: u8, code: u8, rest: [u8; 4]) -> Self {
        Self::new(
            src,
            dst,
            Transport::Icmp {
                msg_type,
                code,
                rest,
            },
        )
    }

    /// An ICMP echo request of the addresses' version.
    #[must_use]
    pub const fn echo_request(src: IpAddr, dst: IpAddr, ident: u16, sequence: u16) -> Self {
        let msg_type = match src {
            IpAddr::V4(_) => Icmpv4Type::ECHO_REQUEST.0,
            IpAddr::V6(_) => Icmpv6Type::ECHO_REQUEST.0,
        };
        Self::icmp(src, dst, msg_type, 0, echo_rest(ident, sequence))
    }

    /// An ICMP echo reply of the addresses' version.
    #[must_use]
    pub const fn echo_reply(src: IpAddr, dst: IpAddr, ident: u16, sequence: u16) -> Self {
        let msg_type = match src {
            IpAddr::V4(_) => Icmpv4Type::ECHO_REPLY.0,
            IpAddr::V6(_) => Icmpv6Type::ECHO_REPLY.0,
        };
        Self::icmp(src, dst, msg_type, 0, echo_rest(ident, sequence))
    }

    /// An IP packet whose payload is given whole.
    #[must_use]
    pub const fn ip(src: IpAddr, dst: IpAddr, protocol: IpProtocol) -> Self {
        Self::new(src, dst, Transport::Raw(protocol))
    }

    /// A frame with this transport header.
    #[must_use]
    pub const fn new(src: IpAddr, dst: IpAddr, transport: Transport<'a>) -> Self {
        Self {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans: &[],
            src,
            dst,
            ttl: 64,
            traffic_class: 0,
            ident: 0,
            dont_fragment: false,
            fragment: None,
            transport,
            checksum: ChecksumState::Complete,
        }
    }

    /// Sets the Ethernet addresses.
    #[must_use]
    pub const fn macs(mut self, src: MacAddr, dst: MacAddr) -> Self {
        self.src_mac = src;
        self.dst_mac = dst;
        self
    }

    /// Sets the VLAN tags, outermost first.
    #[must_use]
    pub const fn vlans(mut self, tags: &'a [VlanTag]) -> Self {
        self.vlans = tags;
        self
    }

    /// Sets the time to live or hop limit.
    #[must_use]
    pub const fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the type of service or traffic class.
    #[must_use]
    pub const fn traffic_class(mut self, traffic_class: u8) -> Self {
        self.traffic_class = traffic_class;
        self
    }

    /// Sets the IPv4 identification.
    #[must_use]
    pub const fn ident(mut self, ident: u16) -> Self {
        self.ident = ident;
        self
    }

    /// Sets the IPv4 don't-fragment flag.
    #[must_use]
    pub const fn dont_fragment(mut self) -> Self {
        self.dont_fragment = true;
        self
    }

    /// Makes it a fragment; see [`Frame::fragment`].
    #[must_use]
    pub const fn fragment(mut self, fragment: FragmentInfo) -> Self {
        self.fragment = Some(fragment);
        self
    }

    /// Leaves the checksum of TCP or UDP partial: see [`ChecksumState`].
    #[must_use]
    pub const fn partial_checksum(mut self) -> Self {
        self.checksum = ChecksumState::Partial;
        self
    }

    /// Sets TCP sequence and acknowledgment number; no effect on other transports.
    #[must_use]
    pub const fn sequence(mut self, new_seq: u32, new_ack: u32) -> Self {
        if let Transport::Tcp { seq, ack, .. } = &mut self.transport {
            *seq = new_seq;
            *ack = new_ack;
        }
        self
    }

    /// Sets TCP options; no effect on other transports.
    #[must_use]
    pub const fn tcp_options(mut self, new_options: &'a [u8]) -> Self {
        if let Transport::Tcp { options, .. } = &mut self.transport {
            *options = new_options;
        }
        self
    }

    /// Bytes before the payload.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.l2_len() + self.l3_len() + self.transport.header_len()
    }

    /// Writes frame and payload to the start of `buffer` and returns the length. Does not pad to
    /// Ethernet's minimum.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn write(&self, buffer: &mut [u8], payload: &[u8]) -> Result<usize, BuildError> {
        let needed = self.header_len() + payload.len();
        let available = buffer.len();
        let frame = buffer
            .get_mut(..needed)
            .ok_or(BuildError::NoRoom { needed, available })?;
        self.check(payload.len())?;
        let (header, body) = frame.split_at_mut(self.header_len());
        body.copy_from_slice(payload);
        self.write_ethernet(&mut header[..self.l2_len()]);
        self.write_ip(&mut frame[self.l2_len()..]);
        Ok(needed)
    }

    fn check(&self, payload_len: usize) -> Result<(), BuildError> {
        if self.src.is_ipv4() != self.dst.is_ipv4() {
            return Err(BuildError::MixedVersions);
        }
        let length = self.l3_len() + self.transport.header_len() + payload_len;
        if length > usize::from(u16::MAX) {
            return Err(BuildError::TooLong { length });
        }
        match self.transport {
            Transport::Tcp { options, .. } if options.len() > 40 || options.len() % 4 != 0 => {
                Err(BuildError::BadTcpOptions {
                    length: options.len(),
                })
            }
            _ => Ok(()),
        }
    }

    const fn l2_len(&self) -> usize {
        ether::HEADER_LEN + self.vlans.len() * ether::VLAN_TAG_LEN
    }

    const fn l3_len(&self) -> usize {
        match (self.src, self.fragment) {
            (IpAddr::V4(_), _) => ipv4::HEADER_LEN,
            (IpAddr::V6(_), None) => ipv6::HEADER_LEN,
            (IpAddr::V6(_), Some(_)) => ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN,
        }
    }

    fn write_ethernet(&self, header: &mut [u8]) {
        let ethertype = if self.src.is_ipv4() {
            EtherType::IPV4
        } else {
            EtherType::IPV6
        };
        write_ethernet(header, self.dst_mac, self.src_mac, self.vlans, ethertype);
    }

    fn write_ip(&self, packet: &mut [u8]) {
        let message = &mut packet[self.l3_len()..];
        self.transport
            .write(message, (self.src, self.dst), self.checksum);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.write_ipv4(packet, src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.write_ipv6(packet, src, dst),
            _ => {}
        }
    }

    fn write_ipv4(&self, packet: &mut [u8], src: Ipv4Addr, dst: Ipv4Addr) {
        let total_len = packet.len() as u16;
        let mut packet = Ipv4Packet::new_unchecked(packet);
        packet.set_version_and_header_len(ipv4::HEADER_LEN);
        packet.set_tos(self.traffic_class);
        packet.set_total_len(total_len);
        packet.set_ident(self.ident);
        let (more, offset) = self.fragment.map_or((false, 0), |f| (f.more, f.offset));
        packet.set_fragmentation(self.dont_fragment, more, offset);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.transport.protocol(IpProtocol::ICMPV4));
        packet.set_src(src);
        packet.set_dst(dst);
        packet.fill_checksum();
    }

    fn write_ipv6(&self, packet: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) {
        let payload_len = (packet.len() - ipv6::HEADER_LEN) as u16;
        let mut next_header = self.transport.protocol(IpProtocol::ICMPV6);
        if let Some(fragment) = self.fragment {
            let header = &mut packet[ipv6::HEADER_LEN..self.l3_len()];
            header.copy_from_slice(&fragment.to_bytes(next_header));
            next_header = IpProtocol::IPV6_FRAGMENT;
        }
        let mut packet = Ipv6Packet::new_unchecked(packet);
        packet.set_version_class_flow(self.traffic_class, 0);
        packet.set_payload_len(payload_len);
        packet.set_next_header(next_header);
        packet.set_hop_limit(self.ttl);
        packet.set_src(src);
        packet.set_dst(dst);
    }
}

const fn echo_rest(ident: u16, sequence: u16) -> [u8; 4] {
    let [a, b] = ident.to_be_bytes();
    let [c, d] = sequence.to_be_bytes();
    [a, b, c, d]
}

/// Writes an Ethernet header with tags; `header` has exactly the room for it.
fn write_ethernet(
    header: &mut [u8],
    dst: MacAddr,
    src: MacAddr,
    vlans: &[VlanTag],
    ethertype: EtherType,
) {
    let mut frame = EthernetFrame::new_unchecked(&mut *header);
    frame.set_dst(dst);
    frame.set_src(src);
    let (tags, last) = header[12..].split_at_mut(vlans.len() * ether::VLAN_TAG_LEN);
    for (bytes, tag) in tags.chunks_exact_mut(ether::VLAN_TAG_LEN).zip(vlans) {
        bytes.copy_from_slice(&tag.to_bytes());
    }
    last.copy_from_slice(&ethertype.0.to_be_bytes());
}

/// Writes a frame of any ethertype and returns its length.
///
/// # Errors
/// [`BuildError::NoRoom`].
pub fn ethernet(
    buffer: &mut [u8],
    (src, dst): (MacAddr, MacAddr),
    vlans: &[VlanTag],
    ethertype: EtherType,
    payload: &[u8],
) -> Result<usize, BuildError> {
    let header_len = ether::HEADER_LEN + vlans.len() * ether::VLAN_TAG_LEN;
    let needed = header_len + payload.len();
    let available = buffer.len();
    let frame = buffer
        .get_mut(..needed)
        .ok_or(BuildError::NoRoom { needed, available })?;
    let (header, body) = frame.split_at_mut(header_len);
    write_ethernet(header, dst, src, vlans, ethertype);
    body.copy_from_slice(payload);
    Ok(needed)
}

/// Writes an ARP frame: a request goes to the broadcast address, any other operation to its target.
///
/// # Errors
/// [`BuildError::NoRoom`].
pub fn arp(buffer: &mut [u8], vlans: &[VlanTag], packet: &ArpRepr) -> Result<usize, BuildError> {
    let dst = match packet.operation {
        arp::Operation::REQUEST => MacAddr::BROADCAST,
        _ => packet.target_mac,
    };
    let macs = (packet.sender_mac, dst);
    ethernet(buffer, macs, vlans, EtherType::ARP, &packet.to_bytes())
}

/// Writes a neighbour solicitation or advertisement with hop limit 255.
///
/// # Errors
/// [`BuildError::NoRoom`].
pub fn ndp(
    buffer: &mut [u8],
    (src_mac, dst_mac): (MacAddr, MacAddr),
    (src, dst): (Ipv6Addr, Ipv6Addr),
    vlans: &[VlanTag],
    message: &NdpRepr,
) -> Result<usize, BuildError> {
    let (body, length) = message.body();
    Frame::icmp(
        src.into(),
        dst.into(),
        message.msg_type().0,
        0,
        message.rest(),
    )
    .macs(src_mac, dst_mac)
    .vlans(vlans)
    .ttl(ndp::HOP_LIMIT)
    .write(buffer, &body[..length])
}
