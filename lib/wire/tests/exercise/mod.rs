//! The body for the property tests, the captures and the fuzz target: every function of this crate on received bytes,
//! done to any bytes, and the conditions that must hold whatever the bytes are.

mod unfinished;

use nfluid_wire::arp::ArpRepr;
use nfluid_wire::ether::{self, VlanStack};
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::icmpv6::Icmpv6Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::{self, Ipv6Packet, UpperLayer};
use nfluid_wire::ndp::{NdpPacket, NdpRepr};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{
    ChecksumState, EtherType, EthernetFrame, HashSeed, IpProtocol, L3, PacketMeta, ParseError,
};

/// Feeds `bytes` to every parser, as a frame and as the inside of one.
pub fn everything(bytes: &[u8]) {
    frame(bytes);
    views(bytes);
    unfinished::frame(bytes);
    let _ = PacketMeta::parse_quoted(bytes).map(|meta| meta.flow_key());
    let _ = ArpRepr::parse(bytes).map(|packet| packet.to_bytes());
    let _ = NdpRepr::parse(bytes).map(|message| message.body());
}

/// Parses a frame and checks what holds between the fast parser and the views.
pub fn frame(frame: &[u8]) {
    let parsed = PacketMeta::parse(frame);
    assert_eq!(
        parsed.err(),
        reference(frame).err(),
        "fast parser and views disagree on {frame:x?}"
    );
    let Ok(meta) = parsed else { return };

    let offsets = [meta.l3_offset, meta.l4_offset, meta.payload_offset].map(usize::from);
    assert!(offsets.is_sorted(), "offsets out of order: {offsets:?}");
    assert!(
        offsets[2] <= meta.l3_end() && meta.l3_end() <= frame.len(),
        "{meta:?} beyond frame"
    );

    let mut again = PacketMeta::parse_l3(frame).expect("the whole frame parsed");
    again.parse_l4(frame).expect("the whole frame parsed");
    assert_eq!(meta, again, "parsing in two steps gives something else");
    agrees_with_views(&meta, frame);

    if let Some(key) = meta.flow_key() {
        let seed = HashSeed::new(frame.len() as u64);
        assert_eq!(
            key.symmetric_hash(seed),
            key.reversed().symmetric_hash(seed)
        );
        assert_eq!(key.canonical().0, key.reversed().canonical().0);
        let quoted = PacketMeta::parse_quoted(&frame[offsets[0]..meta.l3_end()]);
        assert_eq!(quoted.ok().and_then(|quoted| quoted.flow_key()), Some(key));
    }
}

/// The slow and plain parser: the views, one after the other.
fn reference(frame: &[u8]) -> Result<(), ParseError> {
    let stack = VlanStack::peek(frame)?;
    let packet = &frame[stack.l3_offset..];
    match stack.ethertype {
        EtherType::IPV4 => {
            let packet = Ipv4Packet::new_checked(packet)?;
            if packet.fragment_offset() != 0 {
                return Ok(());
            }
            let whole = !packet.more_fragments();
            transport(
                packet.protocol(),
                IpProtocol::ICMPV4,
                packet.payload(),
                whole,
            )
        }
        EtherType::IPV6 => {
            let packet = Ipv6Packet::new_checked(packet)?;
            let upper = packet.upper_layer()?;
            if upper.fragment.is_some_and(|fragment| fragment.offset != 0) {
                return Ok(());
            }
            let whole = upper.fragment.is_none_or(|fragment| fragment.is_atomic());
            let segment = &packet.payload()[upper.offset..];
            transport(upper.protocol, IpProtocol::ICMPV6, segment, whole)
        }
        _ => Ok(()),
    }
}

fn transport(
    protocol: IpProtocol,
    icmp: IpProtocol,
    segment: &[u8],
    whole: bool,
) -> Result<(), ParseError> {
    match protocol {
        IpProtocol::UDP => match UdpPacket::new_checked(segment) {
            Err(ParseError::UdpBadLength) if !whole => {
                let short = UdpPacket::new_unchecked(segment).length() < 8;
                if short {
                    Err(ParseError::UdpBadLength)
                } else {
                    Ok(())
                }
            }
            checked => checked.map(drop),
        },
        IpProtocol::TCP => TcpPacket::new_checked(segment).map(drop),
        IpProtocol::ICMPV4 if protocol == icmp => Icmpv4Packet::new_checked(segment).map(drop),
        IpProtocol::ICMPV6 if protocol == icmp => Icmpv6Packet::new_checked(segment).map(drop),
        _ => Ok(()),
    }
}

fn agrees_with_views(meta: &PacketMeta, frame: &[u8]) {
    let stack = VlanStack::peek(frame).expect("the frame parsed");
    assert_eq!(
        (stack.ethertype, stack.l3_offset),
        (meta.ethertype, meta.l3_offset.into())
    );
    assert_eq!(stack.outer(), meta.outer_tag());
    let packet = &frame[stack.l3_offset..];
    match meta.l3 {
        L3::V4 { src, dst } => {
            let packet = Ipv4Packet::new_checked(packet).expect("the frame parsed");
            assert_eq!((packet.src().to_bits(), packet.dst().to_bits()), (src, dst));
            assert_eq!(packet.is_fragment(), meta.is_fragment());
            assert_eq!((packet.ttl(), packet.tos()), (meta.ttl, meta.traffic_class));
        }
        L3::V6 { src, dst } => {
            let packet = Ipv6Packet::new_checked(packet).expect("the frame parsed");
            assert_eq!((packet.src().to_bits(), packet.dst().to_bits()), (src, dst));
            assert_eq!(packet.hop_limit(), meta.ttl);
            assert_eq!(packet.traffic_class(), meta.traffic_class);
        }
        L3::Other => {
            assert!(!matches!(meta.ethertype, EtherType::IPV4 | EtherType::IPV6));
            assert_eq!(meta.flow_key(), None);
            return;
        }
    }
    let segment = &frame[meta.l4_offset.into()..meta.l3_end()];
    let has_ports = meta.fragment != nfluid_wire::flow::Fragment::Later;
    match meta.protocol {
        IpProtocol::TCP if has_ports => {
            let segment = TcpPacket::new_checked(segment).expect("the frame parsed");
            assert_eq!(
                (segment.src_port(), segment.dst_port()),
                (meta.src_port, meta.dst_port)
            );
            assert_eq!(segment.flags(), meta.tcp_flags);
        }
        IpProtocol::UDP if has_ports => {
            let segment = UdpPacket::new_unchecked(segment);
            assert_eq!(
                (segment.src_port(), segment.dst_port()),
                (meta.src_port, meta.dst_port)
            );
        }
        _ => assert_eq!((meta.src_port, meta.dst_port), (0, 0)),
    }
}

/// Every accessor and setter of every view that accepts the bytes.
fn views(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    if let Ok(mut view) = EthernetFrame::new_checked(&mut copy[..]) {
        view.swap_addresses();
        view.set_ethertype(view.ethertype());
        view.payload_mut().reverse();
    }
    vlan(bytes);
    ipv4(bytes);
    ipv6(bytes);
    icmp(bytes);
    tcp(bytes);
    let mut copy = bytes.to_vec();
    if let Ok(mut view) = UdpPacket::new_checked(&mut copy[..]) {
        view.payload_mut().fill(0);
        view.fill_checksum(1, ChecksumState::Complete);
        assert!(view.verify_checksum(1, ChecksumState::Complete) && view.checksum() != 0);
    }
    if let Ok(view) = NdpPacket::new_checked(bytes) {
        let src = view.target();
        let _ = (
            view.flags(),
            view.is_valid_from(src, src, 255),
            view.options().count(),
        );
    }
}

fn vlan(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    if let Some((tag, len)) = ether::pop_tag(&mut copy, bytes.len()) {
        assert_eq!(ether::push_tag(&mut copy, len, tag), Some(bytes.len()));
        assert_eq!(copy, bytes, "taking a tag off and putting it back");
    }
}

fn ipv4(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    let Ok(mut view) = Ipv4Packet::new_checked(&mut copy[..]) else {
        return;
    };
    let _ = (
        view.dscp(),
        view.ident(),
        view.dont_fragment(),
        view.options().count(),
    );
    view.fill_checksum();
    assert!(view.verify_checksum());
    if view.decrement_ttl().is_some() {
        assert!(view.verify_checksum(), "after taking a hop off");
    }
    view.mark_congestion();
    assert!(view.verify_checksum(), "after marking congestion");
    let _ = view.pseudo_header();
    view.payload_mut().fill(0);
}

fn ipv6(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    if let Some((&next_header, payload)) = bytes.split_first()
        && let Ok(layer) = UpperLayer::find(IpProtocol(next_header), payload)
    {
        assert!(
            layer.offset <= payload.len(),
            "upper layer beyond the packet"
        );
    }
    let Ok(mut view) = Ipv6Packet::new_checked(&mut copy[..]) else {
        return;
    };
    let _ = (
        view.flow_label(),
        view.decrement_hop_limit(),
        view.mark_congestion(),
    );
    if let Ok(layer) = view.upper_layer() {
        let _ = ipv6::pseudo_header(&view, &layer);
    }
    view.payload_mut().fill(0);
}

fn icmp(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    if let Ok(mut view) = Icmpv4Packet::new_checked(&mut copy[..]) {
        let _ = (
            view.rest(),
            view.echo_ident(),
            view.echo_sequence(),
            view.next_hop_mtu(),
        );
        view.fill_checksum();
        assert!(view.verify_checksum());
        view.payload_mut().fill(0);
    }
    let mut copy = bytes.to_vec();
    if let Ok(mut view) = Icmpv6Packet::new_checked(&mut copy[..]) {
        let src = std::net::Ipv6Addr::LOCALHOST;
        let _ = (
            view.rest(),
            view.echo_ident(),
            view.echo_sequence(),
            view.mtu(),
        );
        view.fill_checksum(src, src);
        assert!(view.verify_checksum(src, src));
        view.payload_mut().fill(0);
    }
}

fn tcp(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    let Ok(mut view) = TcpPacket::new_checked(&mut copy[..]) else {
        return;
    };
    let _ = (
        view.seq(),
        view.ack(),
        view.window(),
        view.urgent(),
        view.options().count(),
    );
    view.fill_checksum(7, ChecksumState::Complete);
    assert!(view.verify_checksum(7, ChecksumState::Complete));
    if view.clamp_mss(500, ChecksumState::Complete) {
        let is_right = view.verify_checksum(7, ChecksumState::Complete);
        assert!(is_right, "after clamping the segment size");
        assert_eq!(view.mss(), Some(500));
    }
    view.payload_mut().fill(0);
}
