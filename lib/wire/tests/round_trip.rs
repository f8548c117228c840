//! Written values are read again, with right checksums.

use std::net::{IpAddr, SocketAddr};

use nfluid_wire::ChecksumState::Complete;
use nfluid_wire::build::{self, BuildError, Frame};
use nfluid_wire::checksum::{pseudo_header_v4, pseudo_header_v6};
use nfluid_wire::flow::Fragment;
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::icmpv6::Icmpv6Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::ndp::{AdvertFlags, NdpPacket, NdpRepr};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{EtherType, IpProtocol, MacAddr, PacketMeta, TcpFlags, VlanTag};
use proptest::collection::vec;
use proptest::prelude::*;

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

fn tags() -> impl Strategy<Value = Vec<VlanTag>> {
    let tpid = prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)];
    let tag = (tpid, any::<u16>()).prop_map(|(tpid, tci)| VlanTag::from_tci(tpid, tci));
    vec(tag, 0..=2)
}

fn write(frame: &Frame<'_>, payload: &[u8], padding: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; 512];
    let len = frame
        .write(&mut buffer, payload)
        .expect("a frame that fits");
    assert_eq!(len, frame.header_len() + payload.len());
    buffer.truncate(len + padding);
    buffer
}

fn pseudo_header(frame: &Frame<'_>, protocol: IpProtocol, length: usize) -> u16 {
    match (frame.src, frame.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_header_v4(src, dst, protocol.0, length as u32),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_header_v6(src, dst, protocol.0, length as u32),
        mixed => panic!("no such packet: {mixed:?}"),
    }
}

/// Fields that every IP frame has.
fn assert_ip(meta: &PacketMeta, frame: &Frame<'_>, bytes: &[u8], payload: &[u8]) {
    assert_eq!(meta.addresses(), Some((frame.src, frame.dst)));
    assert_eq!(meta.ttl, frame.ttl);
    assert_eq!(meta.traffic_class, frame.traffic_class);
    assert_eq!(usize::from(meta.vlan_count), frame.vlans.len());
    assert_eq!(meta.outer_tag(), frame.vlans.first().copied());
    assert_eq!(meta.outer_vid(), frame.vlans.first().map(|tag| tag.vid));
    assert_eq!(&bytes[meta.payload_offset.into()..meta.l3_end()], payload);
    if meta.is_ipv4() {
        let packet = Ipv4Packet::new_checked(&bytes[meta.l3_offset.into()..]).expect("IPv4");
        assert!(packet.verify_checksum());
    }
}

proptest! {
    // promise: 9.2
    #[test]
    fn udp(
        (src, dst) in addresses(), ports in any::<(u16, u16)>(), tags in tags(),
        (ttl, class) in any::<(u8, u8)>(), payload in vec(any::<u8>(), 0..100),
        padding in 0..20_usize,
    ) {
        let frame = Frame::udp(SocketAddr::new(src, ports.0), SocketAddr::new(dst, ports.1))
            .vlans(&tags).ttl(ttl).traffic_class(class);
        let bytes = write(&frame, &payload, padding);
        let meta = PacketMeta::parse(&bytes).expect("UDP");
        assert_ip(&meta, &frame, &bytes, &payload);
        prop_assert_eq!((meta.src_port, meta.dst_port), ports);
        let segment = &bytes[meta.l4_offset.into()..meta.l3_end()];
        let packet = UdpPacket::new_checked(segment).expect("UDP");
        prop_assert!(packet.verify_checksum(pseudo_header(&frame, IpProtocol::UDP, segment.len()), Complete));
        prop_assert_ne!(packet.checksum(), 0, "0 would mean that there is none");
        prop_assert_eq!(packet.payload(), &payload);
    }

    // promise: 9.2
    #[test]
    fn tcp(
        (src, dst) in addresses(), ports in any::<(u16, u16)>(), tags in tags(),
        (seq, ack, flags) in any::<(u32, u32, u8)>(), mss in any::<u16>(),
        payload in vec(any::<u8>(), 0..100), padding in 0..20_usize,
    ) {
        let [high, low] = mss.to_be_bytes();
        // The padding makes the option start at an odd offset.
        let options = [1, 2, 4, high, low, 0, 0, 0];
        let (from, to) = (SocketAddr::new(src, ports.0), SocketAddr::new(dst, ports.1));
        let frame = Frame::tcp(from, to, TcpFlags(flags))
            .vlans(&tags).sequence(seq, ack).tcp_options(&options);
        let mut bytes = write(&frame, &payload, padding);
        let meta = PacketMeta::parse(&bytes).expect("TCP");
        assert_ip(&meta, &frame, &bytes, &payload);
        prop_assert_eq!((meta.src_port, meta.dst_port, meta.tcp_flags.0), (ports.0, ports.1, flags));
        let segment = &mut bytes[meta.l4_offset.into()..meta.l3_end()];
        let pseudo = pseudo_header(&frame, IpProtocol::TCP, segment.len());
        let mut packet = TcpPacket::new_checked(segment).expect("TCP");
        prop_assert!(packet.verify_checksum(pseudo, Complete));
        prop_assert_eq!((packet.seq(), packet.ack(), packet.mss()), (seq, ack, Some(mss)));
        prop_assert_eq!(packet.clamp_mss(1400, Complete), mss > 1400);
        prop_assert_eq!(packet.mss(), Some(mss.min(1400)));
        prop_assert!(packet.verify_checksum(pseudo, Complete), "after clamping at an odd offset");
    }

    #[test]
    fn echo(
        (src, dst) in addresses(), (ident, sequence, reply) in any::<(u16, u16, bool)>(),
        payload in vec(any::<u8>(), 0..100),
    ) {
        let make = if reply { Frame::echo_reply } else { Frame::echo_request };
        let frame = make(src, dst, ident, sequence);
        let bytes = write(&frame, &payload, 0);
        let meta = PacketMeta::parse(&bytes).expect("ICMP");
        assert_ip(&meta, &frame, &bytes, &payload);
        prop_assert_eq!(meta.icmp_ident, ident);
        let message = &bytes[meta.l4_offset.into()..];
        prop_assert_eq!(Icmpv4Packet::new_checked(message).expect("ICMP").echo_sequence(), sequence);
        let right = match (src, dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Icmpv6Packet::new_checked(message).expect("ICMPv6").verify_checksum(src, dst)
            }
            _ => Icmpv4Packet::new_checked(message).expect("ICMP").verify_checksum(),
        };
        prop_assert!(right);
    }

    // promise: 9.2
    #[test]
    fn fragments(
        (src, dst) in addresses(), units in 0..8192_u16, (more, ident) in any::<(bool, u32)>(),
        payload in vec(any::<u8>(), 8..100),
    ) {
        let offset = units * 8;
        let frame = Frame::ip(src, dst, IpProtocol::UDP)
            .fragment(FragmentInfo { offset, more, ident });
        let mut payload = payload;
        payload[4..6].copy_from_slice(&8_u16.to_be_bytes());
        let bytes = write(&frame, &payload, 0);
        let meta = PacketMeta::parse(&bytes).expect("a fragment");
        let expected = match (offset, more) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        prop_assert_eq!((meta.fragment, meta.fragment_offset), (expected, offset));
        prop_assert_eq!(meta.protocol, IpProtocol::UDP);
        let port = u16::from_be_bytes([payload[0], payload[1]]);
        prop_assert_eq!(meta.src_port, if expected == Fragment::Later { 0 } else { port });
    }

    // promise: 9.2
    #[test]
    fn neighbour_discovery(
        (src, dst, target) in any::<([u8; 16], [u8; 16], [u8; 16])>(), mac in any::<Option<[u8; 6]>>(),
        solicit in any::<bool>(), (router, solicited, override_entry) in any::<(bool, bool, bool)>(),
    ) {
        let (address, target) = (mac.map(MacAddr), target.into());
        let flags = AdvertFlags { router, solicited, override_entry };
        let message = if solicit {
            NdpRepr::Solicit { target, source_link_layer: address }
        } else {
            NdpRepr::Advert { target, flags, target_link_layer: address }
        };
        let mut buffer = [0; 128];
        let macs = (MacAddr([2; 6]), MacAddr([4; 6]));
        let len = build::ndp(&mut buffer, macs, (src.into(), dst.into()), &[], &message)
            .expect("a frame that fits");
        let meta = PacketMeta::parse(&buffer[..len]).expect("ICMPv6");
        let body = &buffer[meta.l4_offset.into()..len];
        prop_assert_eq!(NdpRepr::parse(body), Ok(message));
        let packet = NdpPacket::new_checked(body).expect("neighbour discovery");
        prop_assert!(!packet.is_valid_from(src.into(), dst.into(), 254), "from another link");
    }
}

#[test]
fn refuses_what_cannot_be_sent() {
    let v4: SocketAddr = "10.0.0.1:1".parse().expect("an address");
    let v6: SocketAddr = "[2001:db8::1]:1".parse().expect("an address");
    let mut buffer = vec![0; 70_000];
    let mixed = Frame::udp(v4, v6).write(&mut buffer, &[]);
    assert_eq!(mixed, Err(BuildError::MixedVersions));
    let long = Frame::udp(v4, v4).write(&mut buffer, &[0; 65_508]);
    assert_eq!(long, Err(BuildError::TooLong { length: 65_536 }));
    let no_room = Frame::udp(v4, v4).write(&mut buffer[..41], &[]);
    assert_eq!(
        no_room,
        Err(BuildError::NoRoom {
            needed: 42,
            available: 41
        })
    );
    let options = Frame::tcp(v4, v4, TcpFlags::SYN).tcp_options(&[1, 1, 1]);
    assert_eq!(
        options.write(&mut buffer, &[]),
        Err(BuildError::BadTcpOptions { length: 3 })
    );
}
