//! Identifications of packets that share an external address (RFC 6864).

use super::{Bench, check_sums};
use alloc::collections::BTreeSet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{IpProtocol, PacketMeta, build};
use serde_json::json;
use std::net::Ipv4Addr;
use std::vec::Vec;

const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const IDENT: u16 = 4711;

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

fn write(frame: build::Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 200];
    let len = frame.ident(IDENT).write(&mut buffer, payload).unwrap();
    buffer[..len].to_vec()
}

fn udp(src: Ipv4Addr, dst: Ipv4Addr) -> build::Frame<'static> {
    build::Frame::udp((src, 5000).into(), (dst, 53).into())
}

/// A fragment of a UDP datagram with zeros; the first one has its header.
fn fragment(src: Ipv4Addr, offset: u16) -> Vec<u8> {
    let info = FragmentInfo {
        offset,
        more: offset < 128,
        ident: IDENT.into(),
    };
    let frame = build::Frame::ip(src.into(), PEER.into(), IpProtocol::UDP).fragment(info);
    let mut payload = [0; 64];
    if offset == 0 {
        payload[..6].copy_from_slice(&[0x13, 0x88, 0, 53, 0, 192]);
    }
    write(frame, &payload)
}

/// The identification of the one frame that leaves, which has right checksums.
fn ident(nat: &mut Bench, port: u8, frame: &[u8]) -> u16 {
    let sent = nat.send(port, frame);
    assert_eq!(sent.len(), 1);
    ident_of(&sent[0].1)
}

fn ident_of(frame: &[u8]) -> u16 {
    check_sums(frame, &PacketMeta::parse(frame).unwrap());
    Ipv4Packet::new_unchecked(&frame[14..]).ident()
}

/// Catches: a cost, and a traceroute that does not know its own packets any more, for nothing.
// promise: 10.42
#[test]
fn an_atomic_packet_keeps_its_identification() {
    let mut nat = Bench::new(json!({"answer_pings": true}));
    let atomic = |frame: build::Frame<'static>| write(frame.dont_fragment(), b"data");
    assert_eq!(ident(&mut nat, 0, &atomic(udp(host(2), PEER))), IDENT);
    let ping = build::Frame::echo_request(PEER.into(), EXTERNAL.into(), 9, 1);
    assert_eq!(ident(&mut nat, 1, &atomic(ping)), IDENT);
}

/// Catches: fragments of two hosts that a receiver puts together.
// promise: 10.42
#[test]
fn packets_of_many_hosts_to_one_peer_have_different_identifications() {
    let mut nat = Bench::new(json!({}));
    let mut seen = BTreeSet::new();
    for round in 0..20 {
        for number in 2..202 {
            let new = ident(&mut nat, 0, &write(udp(host(number), PEER), b"data"));
            assert!(seen.insert(new), "{new} of host {number} in round {round}");
        }
    }
    // Another protocol and another peer have counters of their own, which start elsewhere.
    let echo = |peer: Ipv4Addr| build::Frame::echo_request(host(2).into(), peer.into(), 9, 1);
    let first = ident(&mut nat, 0, &write(echo(PEER), b"data"));
    let other = ident(
        &mut nat,
        0,
        &write(echo(Ipv4Addr::new(192, 0, 2, 10)), b"data"),
    );
    let second = ident(&mut nat, 0, &write(echo(PEER), b"data"));
    assert_eq!(second, first.wrapping_add(1));
    assert_ne!(other, second);
}

/// Packets that the NAT makes have the same source as translated packets.
// promise: 10.42
#[test]
fn answers_of_the_nat_take_their_turn() {
    let mut nat = Bench::new(json!({}));
    let echo = build::Frame::echo_request(host(2).into(), PEER.into(), 9, 1);
    let ping = build::Frame::echo_request(PEER.into(), EXTERNAL.into(), 77, 1);
    let first = ident(&mut nat, 0, &write(echo, b"data"));
    let second = ident(&mut nat, 1, &write(ping, b"data"));
    let third = ident(&mut nat, 0, &write(echo, b"data"));
    assert_eq!(
        [second, third],
        [first.wrapping_add(1), first.wrapping_add(2)]
    );
    let refused = build::Frame::ip(host(2).into(), PEER.into(), IpProtocol::GRE);
    let errors = [(); 2].map(|()| ident(&mut nat, 0, &write(refused, b"data")));
    assert_eq!(errors[1], errors[0].wrapping_add(1));
}

/// Catches: a datagram that cannot be put together any more.
// promise: 10.42
#[test]
fn all_fragments_of_a_packet_have_the_same_identification() {
    let mut nat = Bench::new(json!({}));
    let mut idents = [0, 0];
    let first = [2, 3].map(|number| nat.send(0, &fragment(host(number), 0)));
    for (ident, sent) in idents.iter_mut().zip(&first) {
        *ident = ident_of(&sent[0].1);
    }
    assert_ne!(idents[0], idents[1]);
    for (number, expected) in [(3, idents[1]), (2, idents[0])] {
        // The first one comes a second time.
        for offset in [128, 0, 64] {
            assert_eq!(
                ident(&mut nat, 0, &fragment(host(number), offset)),
                expected
            );
        }
    }
    // In reverse order.
    for offset in [128, 64] {
        assert_eq!(nat.send(0, &fragment(host(4), offset)), []);
    }
    let sent = nat.send(0, &fragment(host(4), 0));
    let all: BTreeSet<u16> = sent.iter().map(|(_, frame)| ident_of(frame)).collect();
    assert_eq!((sent.len(), all.len()), (3, 1));
    // "Don't fragment" makes a fragment no whole packet.
    let mut stiff = fragment(host(5), 0);
    let mut ip = Ipv4Packet::new_unchecked(&mut stiff[14..]);
    ip.set_fragmentation(true, true, 0);
    ip.fill_checksum();
    assert_ne!(ident(&mut nat, 0, &stiff), IDENT);
}

#[test]
fn a_packet_from_outside_keeps_its_identification() {
    let mut nat = Bench::new(json!({}));
    nat.send(0, &write(udp(host(2), PEER), b"data"));
    let answer = build::Frame::udp((PEER, 53).into(), (EXTERNAL, 5000).into());
    assert_eq!(ident(&mut nat, 1, &write(answer, b"data")), IDENT);
}

/// Catches: a header that was broken on its way and is made good.
#[test]
fn a_wrong_header_checksum_stays_wrong() {
    let mut nat = Bench::new(json!({}));
    let mut broken = write(udp(host(2), PEER), b"data");
    broken[24] ^= 1;
    let sent = nat.send(0, &broken);
    let ip = Ipv4Packet::new_checked(&sent[0].1[14..]).unwrap();
    assert_ne!(ip.ident(), IDENT);
    assert!(!ip.verify_checksum());
}
