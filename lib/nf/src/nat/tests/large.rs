//! Packets that are too large for the other side (RFC 4787 REQ-13).

use super::{Bench, check_sums, describe, frame};
use crate::testing::Sent;
use nfluid_wire::icmpv4::{Icmpv4Packet, Icmpv4Type, unreachable_code};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{IpProtocol, PacketMeta, VlanTag, build};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::vec::Vec;

const OUT: (&str, &str) = ("10.0.0.2:5000", "192.0.2.9:53");
const IN: (&str, &str) = ("192.0.2.9:53", "203.0.113.1:5000");
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// A UDP packet of `length` bytes, with a VLAN tag.
fn udp((src, dst): (&str, &str), length: usize, dont_fragment: bool) -> Vec<u8> {
    let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
    let payload: Vec<u8> = (0..length - 28).map(|i| (i % 251) as u8).collect();
    let mut frame = build::Frame::udp(src, dst).ident(4711);
    frame.dont_fragment = dont_fragment;
    let tags = [VlanTag::new(7)];
    let mut buffer = [0; 2048];
    let len = frame.vlans(&tags).write(&mut buffer, &payload).unwrap();
    buffer[..len].to_vec()
}

/// Assembles a packet from its fragments, which are in order and fit `mtu`.
fn assemble(fragments: &[Sent], mtu: u16) -> Vec<u8> {
    let mut whole = fragments[0].1[..18 + 20].to_vec();
    for (i, (_, frame)) in fragments.iter().enumerate() {
        assert_eq!(frame[..18], whole[..18], "Ethernet header and tag");
        let ip = Ipv4Packet::new_checked(&frame[18..]).unwrap();
        assert!(ip.verify_checksum() && ip.total_len() <= mtu);
        assert_eq!(usize::from(ip.fragment_offset()), whole.len() - 38);
        assert_eq!(ip.more_fragments(), i + 1 < fragments.len());
        assert_eq!(ip.ident(), Ipv4Packet::new_unchecked(&whole[18..]).ident());
        whole.extend(ip.payload());
    }
    let length = (whole.len() - 18) as u16;
    let mut ip = Ipv4Packet::new_unchecked(&mut whole[18..]);
    ip.set_fragmentation(false, false, 0);
    ip.set_total_len(length);
    ip.fill_checksum();
    whole
}

/// The error that came back by `port`: from the NAT's address, with this MTU, and it quotes the packet.
fn assert_too_big(sent: &[Sent], port: u8, offender: &[u8], mtu: u16) {
    let [(back, answer)] = sent else {
        panic!("{} frames", sent.len());
    };
    assert_eq!(*back, port);
    check_sums(answer, &PacketMeta::parse(answer).unwrap());
    let about = Ipv4Packet::new_checked(&offender[18..]).unwrap();
    let ip = Ipv4Packet::new_checked(&answer[18..]).unwrap();
    assert_eq!((ip.src(), ip.dst()), (EXTERNAL, about.src()));
    let message = Icmpv4Packet::new_checked(ip.payload()).unwrap();
    assert_eq!(message.msg_type(), Icmpv4Type::DEST_UNREACHABLE);
    assert_eq!(message.code(), unreachable_code::FRAGMENTATION_NEEDED);
    assert_eq!(message.next_hop_mtu(), mtu);
    assert_eq!(message.payload(), &offender[18..18 + 548]);
}

/// Catches: a path MTU black hole where the outside is narrower.
// promise: 10.41
#[test]
fn a_packet_too_large_for_the_outside_is_refused_with_its_mtu() {
    let mut nat = Bench::with_mtus(json!({}), [1500, 1400]);
    let fits = nat.send(0, &udp(OUT, 1400, true));
    assert_eq!(fits[0].0, 1);
    let offender = udp(OUT, 1401, true);
    let sent = nat.send(0, &offender);
    assert_too_big(&sent, 0, &offender, 1400);
    assert_eq!(nat.metric("packets_dropped_total", Some("too_big")), 1.0);
    assert_eq!(nat.metric("icmp_errors_total", Some("too_big")), 1.0);
    assert_eq!(nat.metric("packets_forwarded_total", None), 1.0);
}

/// Catches: outside hosts that make the NAT send, and a quotation of bytes that the sender does not know.
// promise: 10.41
#[test]
fn a_packet_too_large_for_the_inside_is_refused_if_it_might_pass() {
    let mut nat = Bench::with_mtus(json!({}), [1400, 1500]);
    let offender = udp(IN, 1500, true);
    assert_eq!(nat.send(1, &offender), [], "a stranger");
    nat.send(0, &udp(OUT, 100, true));
    let sent = nat.send(1, &offender);
    assert_too_big(&sent, 1, &offender, 1400);
}

// promise: 10.41
#[test]
fn a_large_packet_that_may_be_fragmented_leaves_in_order_and_in_its_place() {
    for (mtus, port, ends, expected) in [
        (
            [1500, 600],
            0,
            OUT,
            "outside vlan 7 udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            [600, 1500],
            1,
            IN,
            "inside vlan 7 udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
    ] {
        let mut nat = Bench::with_mtus(json!({}), mtus);
        nat.send(0, &udp(OUT, 100, true));
        let small = udp(ends, 100, true);
        let large = udp(ends, 1500, false);
        let sent = nat.send_all(&[(port, small.clone()), (port, large.clone()), (port, small)]);
        assert_eq!(sent.len(), 2 + 3, "of 576, 576 and 328 bytes of data");
        let whole = assemble(&sent[1..4], 600);
        assert_eq!(describe(port ^ 1, &whole), expected);
        assert_eq!(whole[18 + 28..], large[18 + 28..]);
        assert_eq!(nat.metric("packets_fragmented_total", None), 1.0);
        assert_eq!(nat.metric("packets_forwarded_total", None), 4.0);
        assert_eq!(nat.metric("packets_dropped_total", None), 0.0);
    }
}

/// Catches: fragments that were waiting and are refused because their first one left as two.
// promise: 10.41
#[test]
fn fragments_are_cut_further_and_those_that_waited_follow() {
    let mut nat = Bench::with_mtus(json!({}), [1500, 600]);
    let whole = udp(OUT, 2000, false);
    let data = &whole[38..];
    let fragment = |range: core::ops::Range<usize>| {
        let info = FragmentInfo {
            offset: range.start as u16,
            more: range.end < data.len(),
            ident: 4711,
        };
        let tags = [VlanTag::new(7)];
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 9));
        let frame = build::Frame::ip(src.into(), dst.into(), IpProtocol::UDP).ident(4711);
        let mut buffer = [0; 2048];
        let len = frame
            .vlans(&tags)
            .fragment(info)
            .write(&mut buffer, &data[range])
            .unwrap();
        buffer[..len].to_vec()
    };
    assert_eq!(nat.send(0, &fragment(1000..1980)), []);
    let sent = nat.send(0, &fragment(0..1000));
    assert_eq!(sent.len(), 4);
    let out = assemble(&sent, 600);
    assert_eq!(
        describe(1, &out),
        "outside vlan 7 udp 203.0.113.1:5000 > 192.0.2.9:53"
    );
    assert_eq!(nat.metric("packets_dropped_total", None), 0.0);
    // A later fragment that must not be cut: no error is sent about it.
    let mut stiff = fragment(1000..1980);
    let mut ip = Ipv4Packet::new_unchecked(&mut stiff[18..]);
    ip.set_fragmentation(true, false, 1000);
    ip.fill_checksum();
    assert_eq!(nat.send(0, &stiff), []);
    assert_eq!(nat.metric("packets_dropped_total", Some("too_big")), 1.0);
}

/// Catches: a header that was broken on its way and is made good.
#[test]
fn a_broken_header_is_not_mended() {
    let mut nat = Bench::with_mtus(json!({}), [1500, 600]);
    let mut broken = udp(OUT, 1500, false);
    broken[18 + 8] ^= 1;
    assert_eq!(nat.send(0, &broken), []);
    assert_eq!(nat.metric("packets_dropped_total", Some("malformed")), 1.0);
}

#[test]
fn what_goes_back_by_its_own_port_or_by_one_without_an_mtu_is_not_too_large() {
    let mut nat = Bench::with_mtus(json!({}), [1400, 0]);
    assert_eq!(nat.send(0, &udp(OUT, 1500, true))[0].0, 1);
    assert_eq!(nat.send(0, &udp(OUT, 1500, false))[0].1.len(), 1518);
    nat.play("inside vlan 7 udp 10.0.0.3:6000 > 192.0.2.9:53");
    nat.send(
        0,
        &frame("inside vlan 7 udp 10.0.0.3:6000 > 203.0.113.1:5000").1,
    );
    let turned = nat.send(0, &udp(("10.0.0.2:5000", "203.0.113.1:6000"), 1500, true));
    assert_eq!(turned[0].0, 0);
    assert_eq!(turned[0].1.len(), 1518);
    // A new configuration comes with the ports as they are now.
    nat.reconfigure(json!({}));
    let sent = nat.send(0, &udp(OUT, 1501, true));
    assert_too_big(&sent, 0, &udp(OUT, 1501, true), 1500);
}
