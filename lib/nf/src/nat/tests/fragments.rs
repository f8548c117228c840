use super::Bench;
use nfluid_wire::checksum::{self, ChecksumState};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{IpProtocol, build};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::vec::Vec;

/// Bytes of each fragment's data, a multiple of 8.
const PIECE: usize = 64;

/// A UDP datagram in three fragments.
fn fragments(src: &str, dst: &str, ident: u16) -> Vec<Vec<u8>> {
    let (src, dst): (SocketAddrV4, SocketAddrV4) = (src.parse().unwrap(), dst.parse().unwrap());
    let mut datagram: Vec<u8> = (0..3 * PIECE as u8 - 20).collect();
    let length = datagram.len() as u16;
    let mut udp = UdpPacket::new_unchecked(&mut datagram);
    udp.set_src_port(src.port());
    udp.set_dst_port(dst.port());
    udp.set_length(length);
    let pseudo = checksum::pseudo_header_v4(*src.ip(), *dst.ip(), 17, length.into());
    udp.fill_checksum(pseudo, ChecksumState::Complete);
    let pieces: Vec<&[u8]> = datagram.chunks(PIECE).collect();
    let last = pieces.len() - 1;
    let cut = pieces.iter().enumerate().map(|(i, piece)| {
        let info = FragmentInfo {
            offset: (i * PIECE) as u16,
            more: i != last,
            ident: ident.into(),
        };
        let mut buffer = [0; 200];
        let len = build::Frame::ip((*src.ip()).into(), (*dst.ip()).into(), IpProtocol::UDP)
            .ident(ident)
            .fragment(info)
            .write(&mut buffer, piece)
            .unwrap();
        buffer[..len].to_vec()
    });
    cut.collect()
}

/// Puts fragments together; the end points of the datagram, if its checksum is right.
fn assemble(frames: &[Vec<u8>]) -> (SocketAddrV4, SocketAddrV4) {
    let mut datagram = Vec::new();
    let mut addresses = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
    for frame in frames {
        let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!(usize::from(ip.fragment_offset()), datagram.len());
        addresses = (ip.src(), ip.dst());
        datagram.extend(ip.payload());
    }
    let udp = UdpPacket::new_checked(&datagram).unwrap();
    let pseudo = checksum::pseudo_header_v4(addresses.0, addresses.1, 17, udp.length().into());
    assert!(udp.verify_checksum(pseudo, ChecksumState::Complete));
    (
        SocketAddrV4::new(addresses.0, udp.src_port()),
        SocketAddrV4::new(addresses.1, udp.dst_port()),
    )
}

fn pass(nat: &mut Bench, port: u8, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames
        .iter()
        .flat_map(|frame| nat.send(port, frame))
        .map(|(_, frame)| frame)
        .collect()
}

#[test]
fn a_fragmented_datagram_crosses_both_ways() {
    let mut nat = Bench::new(json!({"port_preservation": false, "ports": "7000-7000"}));
    let out = pass(&mut nat, 0, &fragments("10.0.0.2:5000", "192.0.2.9:53", 77));
    let translated = assemble(&out);
    assert_eq!(translated.0, "203.0.113.1:7000".parse().unwrap());
    let back = pass(
        &mut nat,
        1,
        &fragments("192.0.2.9:53", "203.0.113.1:7000", 78),
    );
    assert_eq!(assemble(&back).1, "10.0.0.2:5000".parse().unwrap());
}

#[test]
fn interleaved_datagrams_are_distinguished() {
    let mut nat = Bench::new(json!({}));
    let first = fragments("10.0.0.2:5000", "192.0.2.9:53", 1);
    let second = fragments("10.0.0.3:6000", "192.0.2.9:53", 1);
    let third = fragments("10.0.0.2:7000", "192.0.2.9:53", 2);
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for i in 0..3 {
        for (out, datagram) in out.iter_mut().zip([&first, &second, &third]) {
            out.extend(pass(&mut nat, 0, &datagram[i..=i]));
        }
    }
    let ports = out.map(|frames| assemble(&frames).0.port());
    assert_eq!(ports, [5000, 6000, 7000]);
}

fn dropped(nat: &Bench, reason: &str) -> f64 {
    nat.metric("packets_dropped_total", Some(reason))
}

/// RFC 4787 REQ-14. Catches: later fragments that are lost, or leave before the first or behind the frames after it.
// promise: 10.37
#[test]
fn fragments_that_overtake_their_first_leave_right_behind_it() {
    let mut nat = Bench::new(json!({"port_preservation": false, "ports": "7000-7000"}));
    let frames = fragments("10.0.0.2:5000", "192.0.2.9:53", 77);
    assert!(pass(&mut nat, 0, &frames[1..]).is_empty());
    assert_eq!(nat.metric("fragments_waiting", None), 2.0);
    let whole = super::frame("inside icmp 10.0.0.9 > 192.0.2.9 echo 9");
    let batch = [whole.clone(), (0, frames[0].clone()), whole];
    let sent = nat.send_all(&batch);
    assert_eq!(sent.len(), 5);
    let out: Vec<_> = sent[1..4].iter().map(|(_, frame)| frame.clone()).collect();
    assert_eq!(assemble(&out).0, "203.0.113.1:7000".parse().unwrap());
    let back = fragments("192.0.2.9:53", "203.0.113.1:7000", 78);
    let reversed: Vec<_> = back.into_iter().rev().collect();
    let mut back = pass(&mut nat, 1, &reversed);
    back.sort_by_key(|frame| Ipv4Packet::new_unchecked(&frame[14..]).fragment_offset());
    assert_eq!(assemble(&back).1, "10.0.0.2:5000".parse().unwrap());
    assert_eq!(nat.metric("fragments_waiting", None), 0.0);
    assert_eq!(nat.metric("packets_forwarded_total", None), 8.0);
    assert_eq!(nat.metric("packets_dropped_total", None), 0.0);
}

// promise: 10.37
#[test]
fn a_fragment_whose_first_does_not_come_in_time_is_dropped() {
    let mut nat = Bench::new(json!({}));
    let frames = fragments("10.0.0.2:5000", "192.0.2.9:53", 77);
    assert!(nat.send(0, &frames[1]).is_empty());
    assert!(nat.nf.has_timers(), "nobody else would free it");
    assert_eq!(nat.nf.next_tick(), crate::function::Nanos::from_secs(1002));
    nat.wait(2);
    assert_eq!(dropped(&nat, "fragment_expired"), 1.0);
    assert!(!nat.nf.has_timers());
    assert_eq!(nat.send(0, &frames[0]).len(), 1);
    assert_eq!(nat.send(0, &frames[1]).len(), 1);
    nat.wait(30);
    assert!(
        nat.send(0, &frames[2]).is_empty(),
        "its first one is forgotten"
    );
    nat.wait(2);
    assert_eq!(dropped(&nat, "fragment_expired"), 2.0);
}

// promise: 10.37
#[test]
fn what_waits_when_the_configuration_changes_or_the_state_goes_is_counted() {
    let mut nat = Bench::new(json!({}));
    let frames = fragments("10.0.0.2:5000", "192.0.2.9:53", 77);
    nat.send(0, &frames[1]);
    let image = crate::stateful::export("nat", &mut *nat.nf, nat.now).unwrap();
    let mut next = Bench::new(json!({}));
    crate::stateful::import("nat", &mut *next.nf, next.now, &image).unwrap();
    assert_eq!(dropped(&next, "fragment_expired"), 1.0);
    assert_eq!(
        dropped(&nat, "fragment_expired"),
        0.0,
        "here it still waits"
    );
    nat.reconfigure(json!({}));
    assert_eq!(dropped(&nat, "fragment_expired"), 1.0);
}

// promise: 10.37
#[test]
fn a_refused_first_fragment_takes_the_others_with_it() {
    let mut nat = Bench::new(json!({}));
    let frames = fragments("192.0.2.9:53", "203.0.113.1:7000", 77);
    nat.send(1, &frames[2]);
    assert!(pass(&mut nat, 1, &frames).is_empty());
    assert_eq!(dropped(&nat, "no_mapping"), 1.0);
    assert_eq!(dropped(&nat, "fragment_refused"), 1.0);
    nat.wait(2);
    assert_eq!(dropped(&nat, "fragment_expired"), 2.0);
    let mut none = Bench::new(json!({"fragments_waiting": 0}));
    assert!(pass(&mut none, 1, &frames).is_empty());
    assert_eq!(dropped(&none, "fragment_unknown"), 2.0);
}

/// Catches: outside hosts that displace the fragments of hosts inside, or a source that displaces the others.
// promise: 10.37
#[test]
fn what_waits_is_bounded_per_side_and_pair_and_the_oldest_gives_way() {
    let mut nat = Bench::new(json!({"fragments_waiting": 100}));
    let own = fragments("10.0.0.2:5000", "192.0.2.9:53", 7);
    let other = fragments("10.0.0.3:5000", "192.0.2.9:53", 7);
    nat.send(0, &own[1]);
    nat.send(0, &other[1]);
    for ident in 0..300 {
        let flood = fragments("192.0.2.9:53", "203.0.113.1:7000", ident);
        nat.send(1, &flood[1]);
    }
    assert_eq!(nat.metric("fragments_waiting", None), 2.0 + 64.0);
    assert_eq!(dropped(&nat, "fragment_displaced"), 300.0 - 64.0);
    for ident in 0..64 {
        nat.send(
            0,
            &fragments("10.0.0.2:5000", "192.0.2.9:53", 100 + ident)[2],
        );
    }
    assert_eq!(
        nat.send(0, &other[0]).len(),
        2,
        "its own source displaces nobody else's"
    );
    assert_eq!(
        nat.send(0, &own[0]).len(),
        1,
        "the pair's oldest has given way"
    );
    for host in 10..110 {
        let from = std::format!("10.0.0.{host}:5000");
        nat.send(0, &fragments(&from, "192.0.2.9:53", 7)[1]);
    }
    assert_eq!(nat.metric("fragments_waiting", None), 100.0 + 64.0);
}

/// RFC 3128. Catches: flags that the NAT has not seen.
// promise: 10.38
#[test]
fn a_tcp_fragment_over_the_flags_never_passes() {
    let mut nat = Bench::new(json!({"forward": ["tcp 203.0.113.1:80 -> 10.0.0.3:80"]}));
    let ends = [("10.0.0.2", "192.0.2.9"), ("192.0.2.9", "203.0.113.1")];
    for (port, (src, dst)) in ends.into_iter().enumerate() {
        let info = FragmentInfo {
            offset: 8,
            more: false,
            ident: 5,
        };
        let mut buffer = [0; 200];
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (src.parse().unwrap(), dst.parse().unwrap());
        let frame = build::Frame::ip(src.into(), dst.into(), IpProtocol::TCP).ident(5);
        let len = frame.fragment(info).write(&mut buffer, &[0; 12]).unwrap();
        assert!(nat.send(port as u8, &buffer[..len]).is_empty());
    }
    assert_eq!(dropped(&nat, "fragment_overlap"), 2.0);
    assert_eq!(nat.metric("fragments_waiting", None), 0.0);
}

#[test]
fn the_table_is_bounded_and_the_oldest_gives_way() {
    let mut nat = Bench::new(json!({"fragments_max": 4}));
    let datagrams: Vec<_> = (0..5)
        .map(|ident| fragments("10.0.0.2:5000", "192.0.2.9:53", ident))
        .collect();
    for (i, datagram) in datagrams.iter().enumerate() {
        nat.send(0, &datagram[0]);
        // The fragments differ in age.
        nat.now.0 += if i == 0 { 1_000_000_000 } else { 0 };
    }
    assert!(nat.send(0, &datagrams[0][1]).is_empty());
    for datagram in &datagrams[1..] {
        assert_eq!(nat.send(0, &datagram[1]).len(), 1);
    }
    let mut none = Bench::new(json!({"fragments_max": 0}));
    assert_eq!(pass(&mut none, 0, &datagrams[0]).len(), 1);
}

#[test]
fn fragments_turn_back_too() {
    let mut nat = Bench::new(json!({"forward": ["udp 203.0.113.1:53 -> 10.0.0.3:5353"]}));
    nat.play("inside udp 10.0.0.3:9 > 192.0.2.9:9");
    let out = pass(
        &mut nat,
        0,
        &fragments("10.0.0.2:5000", "203.0.113.1:53", 9),
    );
    let (src, dst) = assemble(&out);
    assert_eq!(src, "203.0.113.1:5000".parse().unwrap());
    assert_eq!(dst, "10.0.0.3:5353".parse().unwrap());
    let macs: Vec<&[u8]> = out.iter().map(|frame| &frame[..12]).collect();
    assert!(macs.windows(2).all(|pair| pair[0] == pair[1]));
}
