//! Descriptions of super-frames, and the packets that a host would have sent instead.

use nfluid_wire::build::{Frame, Transport};
use nfluid_wire::checksum::{pseudo_header_v4, pseudo_header_v6};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::segment::{SegmentKind, Segmentation};
use nfluid_wire::{EtherType, L3, PacketMeta, TcpFlags, VlanTag};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

/// A super-frame.
#[derive(Clone, Debug)]
pub struct SuperFrame {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub is_tcp: bool,
    pub flags: TcpFlags,
    pub seq: u32,
    pub options: Vec<u8>,
    pub tags: Vec<VlanTag>,
    pub ident: u16,
    pub dont_fragment: bool,
    pub traffic_class: u8,
    pub payload: Vec<u8>,
    /// Payload of each packet but the last.
    pub size: usize,
    /// IPv4 options or IPv6 extension headers, spliced in behind the fixed header.
    pub spliced: Vec<u8>,
}

impl SuperFrame {
    pub fn tcp(src: &str, dst: &str, flags: TcpFlags, payload: usize, size: usize) -> Self {
        SuperFrame {
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
            is_tcp: true,
            flags,
            seq: 1000,
            options: Vec::new(),
            tags: Vec::new(),
            ident: 7,
            dont_fragment: false,
            traffic_class: 0,
            payload: (0..payload).map(|at| (at * 7) as u8).collect(),
            size,
            spliced: Vec::new(),
        }
    }

    fn describe(&self) -> Frame<'_> {
        let frame = if self.is_tcp {
            Frame::tcp(self.src, self.dst, self.flags)
                .sequence(self.seq, 77)
                .tcp_options(&self.options)
        } else {
            Frame::udp(self.src, self.dst)
        };
        let frame = frame
            .vlans(&self.tags)
            .ident(self.ident)
            .traffic_class(self.traffic_class);
        if self.dont_fragment {
            frame.dont_fragment()
        } else {
            frame
        }
    }

    /// The super-frame as a kernel hands it over.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = write(&self.describe().partial_checksum(), &self.payload);
        if !self.spliced.is_empty() {
            self.splice(&mut bytes);
        }
        bytes
    }

    /// As one packet that is too long, with a complete checksum.
    pub fn complete(&self) -> Vec<u8> {
        write(&self.describe(), &self.payload)
    }

    /// Puts more headers between the fixed IP header and the transport's.
    fn splice(&self, bytes: &mut Vec<u8>) {
        let l3 = 14 + 4 * self.tags.len();
        let at = if self.src.is_ipv4() { 20 } else { 40 };
        let added = self.spliced.clone();
        bytes.splice(l3 + at..l3 + at, added);
        if self.src.is_ipv4() {
            let mut packet = Ipv4Packet::new_unchecked(&mut bytes[l3..]);
            packet.set_total_len(packet.total_len() + self.spliced.len() as u16);
            packet.set_version_and_header_len(20 + self.spliced.len());
            packet.fill_checksum();
        } else {
            let length = u16::from_be_bytes([bytes[l3 + 4], bytes[l3 + 5]]);
            let length = length + self.spliced.len() as u16;
            bytes[l3 + 4..l3 + 6].copy_from_slice(&length.to_be_bytes());
            bytes[l3 + 6] = 60;
        }
    }

    /// Start of the transport header, and how the frame is cut.
    pub fn metadata(&self) -> (usize, Segmentation) {
        let network = if self.src.is_ipv4() { 20 } else { 40 };
        let start = 14 + 4 * self.tags.len() + network + self.spliced.len();
        let transport = if self.is_tcp {
            20 + self.options.len()
        } else {
            8
        };
        let kind = match (self.is_tcp, self.src) {
            (false, _) => SegmentKind::Udp,
            (true, SocketAddr::V4(_)) => SegmentKind::TcpV4,
            (true, SocketAddr::V6(_)) => SegmentKind::TcpV6,
        };
        let cut = Segmentation {
            kind,
            header_len: start + transport,
            payload_len: self.size,
            is_ecn: self.flags.contains(TcpFlags::CWR),
        };
        (start, cut)
    }

    /// The packets, written one by one.
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = self.payload.chunks(self.size).collect();
        let last = pieces.len() - 1;
        let one = |(number, piece): (usize, &&[u8])| {
            let mut frame = self.describe();
            frame.ident = frame.ident.wrapping_add(number as u16);
            if let Transport::Tcp { seq, flags, .. } = &mut frame.transport {
                *seq = seq.wrapping_add((number * self.size) as u32);
                if number != 0 {
                    *flags = *flags & !TcpFlags::CWR;
                }
                if number != last {
                    *flags = *flags & !(TcpFlags::FIN | TcpFlags::PSH);
                }
            }
            write(&frame, piece)
        };
        pieces.iter().enumerate().map(one).collect()
    }
}

fn write(frame: &Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; frame.header_len() + payload.len()];
    frame.write(&mut buffer, payload).expect("it fits");
    buffer
}

pub fn pseudo_header(meta: &PacketMeta, length: usize) -> u16 {
    let (protocol, length) = (meta.protocol.0, length as u32);
    match meta.l3 {
        L3::V4 { src, dst } => pseudo_header_v4(src.into(), dst.into(), protocol, length),
        L3::V6 { src, dst } => pseudo_header_v6(src.into(), dst.into(), protocol, length),
        L3::Other => panic!("not IP"),
    }
}

/// One over IPv4 with options, one over IPv6 with destination options; three packets each.
pub fn with_more_headers() -> [SuperFrame; 2] {
    let mut v4 = SuperFrame::tcp("10.0.0.1:1", "10.0.0.2:2", TcpFlags::ACK, 250, 100);
    v4.spliced = vec![148, 4, 0, 0, 1, 1, 1, 1];
    let mut v6 = SuperFrame::tcp("[fc00::1]:1", "[fc00::2]:2", TcpFlags::ACK, 250, 100);
    v6.spliced = vec![6, 0, 1, 4, 0, 0, 0, 0];
    [v4, v6]
}

fn tags() -> impl Strategy<Value = Vec<VlanTag>> {
    let tpid = prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)];
    let tag = (tpid, any::<u16>()).prop_map(|(tpid, tci)| VlanTag::from_tci(tpid, tci));
    vec(tag, 0..=2)
}

/// Any super-frame without IP options.
pub fn super_frame() -> impl Strategy<Value = SuperFrame> {
    let addresses = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
    ];
    let options = (0..=10_usize).prop_map(|words| vec![1; words * 4]);
    // Sizes that divide the payload as often as others.
    let lengths = (1..=20_usize, 48..600_usize, 0..600_usize)
        .prop_map(|(whole, size, rest)| (whole * size + rest % size, size));
    let fields = any::<((u16, u16), u8, u32, (u16, bool), u8)>();
    (addresses, any::<bool>(), options, tags(), lengths, fields).prop_map(
        |((src, dst), is_tcp, options, tags, (length, size), fields)| {
            let (ports, flags, seq, (ident, dont_fragment), traffic_class) = fields;
            SuperFrame {
                src: SocketAddr::new(src, ports.0),
                dst: SocketAddr::new(dst, ports.1),
                is_tcp,
                flags: TcpFlags(flags),
                seq,
                options: if is_tcp { options } else { Vec::new() },
                tags,
                ident,
                dont_fragment,
                traffic_class,
                payload: (0..length)
                    .map(|at| (at as u32).wrapping_mul(seq | 1) as u8)
                    .collect(),
                size,
                spliced: Vec::new(),
            }
        },
    )
}
