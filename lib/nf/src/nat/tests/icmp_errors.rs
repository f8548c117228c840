use super::{Bench, check_sums, frame};
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{PacketMeta, build};
use serde_json::json;
use std::net::Ipv4Addr;
use std::vec::Vec;

const UNREACHABLE: u8 = 3;
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const INSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

/// An ICMP error from `src` to `dst` that quotes the first `quoted` bytes of the IP packet in
/// `about`.
fn error(src: Ipv4Addr, dst: Ipv4Addr, about: &[u8], quoted: usize) -> Vec<u8> {
    let quotation = &about[14..about.len().min(14 + quoted)];
    let mut buffer = [0; 300];
    let frame = build::Frame::icmp(src.into(), dst.into(), UNREACHABLE, 3, [0; 4]);
    let len = frame.write(&mut buffer, quotation).unwrap();
    buffer[..len].to_vec()
}

/// Asserts the error's outer addresses and that its quotation is the start of `original`'s packet
/// byte for byte; all its checksums are right.
fn assert_quotes(error: &[u8], outer: (Ipv4Addr, Ipv4Addr), original: &[u8], quoted: usize) {
    let meta = PacketMeta::parse(error).unwrap();
    check_sums(error, &meta);
    let ip = Ipv4Packet::new_checked(&error[14..]).unwrap();
    assert_eq!((ip.src(), ip.dst()), outer);
    let message = Icmpv4Packet::new_checked(ip.payload()).unwrap();
    let quotation = &original[14..original.len().min(14 + quoted)];
    assert_eq!(message.payload(), quotation);
}

#[test]
fn an_error_from_outside_quotes_what_the_host_sent() {
    for line in [
        "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
        "inside tcp 10.0.0.2:5000 > 192.0.2.9:53 syn",
        "inside icmp 10.0.0.2 > 192.0.2.9 echo 9",
    ] {
        // Whole, and as short as RFC 792 allows (then a TCP checksum is not in it).
        for quoted in [200, 28] {
            let mut nat = Bench::new(json!({"port_preservation": false}));
            let (_, original) = frame(line);
            let translated = nat.send(0, &original).remove(0).1;
            let sent = nat.send(1, &error(ROUTER, EXTERNAL, &translated, quoted));
            assert_eq!(sent.len(), 1, "{line}");
            assert_eq!(sent[0].0, 0);
            assert_quotes(&sent[0].1, (ROUTER, HOST), &original, quoted);
        }
    }
}

/// Catches: a checksum written into the zeros behind the quotation (RFC 4884 section 5.1).
// promise: 10.31
#[test]
fn the_padding_of_a_quotation_stays_zero() {
    let mut nat = Bench::new(json!({"port_preservation": false}));
    let (_, original) = frame("inside tcp 10.0.0.2:5000 > 192.0.2.9:53 syn");
    let translated = nat.send(0, &original).remove(0).1;
    let padded = |packet: &[u8]| [&packet[..14 + 28], &[0; 100]].concat();
    let sent = nat.send(1, &error(ROUTER, EXTERNAL, &padded(&translated), 128));
    assert_quotes(&sent[0].1, (ROUTER, HOST), &padded(&original), 128);
}

#[test]
fn an_error_from_inside_quotes_what_the_peer_sent() {
    let config = json!({"port_preservation": false, "filtering": "endpoint-independent"});
    let mut nat = Bench::new(config);
    let translated = nat.play("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    let external = translated.split(' ').nth(2).unwrap();
    let (_, answer) = frame(&std::format!("outside udp 192.0.2.9:53 > {external}"));
    let delivered = nat.send(1, &answer).remove(0).1;
    // From the host itself, and from a router on the way to it.
    for reporter in [HOST, INSIDE_ROUTER] {
        let sent = nat.send(0, &error(reporter, SERVER, &delivered, 200));
        assert_eq!(sent[0].0, 1);
        assert_quotes(&sent[0].1, (EXTERNAL, SERVER), &answer, 200);
    }
}

#[test]
fn an_error_turns_back_with_the_packet_it_is_about() {
    let mut nat = Bench::new(json!({"forward": ["udp 203.0.113.1:53 -> 10.0.0.3:5353"]}));
    let (_, hello) = frame("inside udp 10.0.0.3:9 > 192.0.2.9:9");
    nat.send(0, &hello);
    let (_, query) = frame("inside udp 10.0.0.2:5000 > 203.0.113.1:53");
    let delivered = nat.send(0, &query).remove(0).1;
    let server = Ipv4Addr::new(10, 0, 0, 3);
    let sent = nat.send(0, &error(server, EXTERNAL, &delivered, 200));
    assert_eq!(sent[0].0, 0);
    assert_quotes(&sent[0].1, (EXTERNAL, HOST), &query, 200);
}

#[test]
fn an_error_about_no_session_is_dropped() {
    let mut nat = Bench::new(json!({}));
    let (_, original) = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    let translated = nat.send(0, &original).remove(0).1;
    let unmatched = |nat: &mut Bench| nat.metric("packets_dropped_total", Some("icmp_unmatched"));

    let (_, never_sent) = frame("outside udp 203.0.113.1:5001 > 192.0.2.9:53");
    assert!(
        nat.send(1, &error(ROUTER, EXTERNAL, &never_sent, 200))
            .is_empty()
    );
    let (_, to_a_stranger) = frame("outside udp 203.0.113.1:5000 > 198.51.100.77:53");
    assert!(
        nat.send(1, &error(ROUTER, EXTERNAL, &to_a_stranger, 200))
            .is_empty()
    );
    assert!(
        nat.send(1, &error(ROUTER, EXTERNAL, &translated, 24))
            .is_empty(),
        "no ports"
    );
    let about_an_error = error(EXTERNAL, SERVER, &translated, 28);
    assert!(
        nat.send(1, &error(ROUTER, EXTERNAL, &about_an_error, 200))
            .is_empty()
    );
    assert_eq!(unmatched(&mut nat), 4.0);
    nat.wait(300);
    assert!(
        nat.send(1, &error(ROUTER, EXTERNAL, &translated, 200))
            .is_empty(),
        "expired"
    );
    assert_eq!(unmatched(&mut nat), 5.0);
}

#[test]
fn an_error_with_a_wrong_checksum_is_dropped() {
    let mut nat = Bench::new(json!({}));
    let (_, original) = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    let translated = nat.send(0, &original).remove(0).1;
    let mut wrong = error(ROUTER, EXTERNAL, &translated, 200);
    wrong[36] ^= 1;
    assert!(nat.send(1, &wrong).is_empty());
    let mut quoted_wrong = translated.clone();
    quoted_wrong[24] ^= 1;
    assert!(
        nat.send(1, &error(ROUTER, EXTERNAL, &quoted_wrong, 200))
            .is_empty()
    );
    assert_eq!(
        nat.metric("packets_dropped_total", Some("icmp_bad_checksum")),
        2.0
    );
}

#[test]
fn an_error_neither_ends_nor_refreshes_a_session() {
    let mut nat = Bench::new(json!({}));
    let (_, original) = frame("inside tcp 10.0.0.2:5000 > 192.0.2.9:80 syn");
    let translated = nat.send(0, &original).remove(0).1;
    nat.wait(200);
    assert_eq!(
        nat.send(1, &error(ROUTER, EXTERNAL, &translated, 200))
            .len(),
        1
    );
    assert_eq!(nat.metric("sessions", None), 1.0);
    nat.wait(40);
    assert_eq!(nat.metric("sessions", None), 0.0);
}

#[test]
fn a_quoted_udp_checksum_of_zero_stays_zero() {
    let mut nat = Bench::new(json!({"port_preservation": false}));
    let (_, mut original) = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    UdpPacket::new_unchecked(&mut original[34..]).set_checksum(0);
    let translated = nat.send(0, &original).remove(0).1;
    let sent = nat.send(1, &error(ROUTER, EXTERNAL, &translated, 200));
    assert_quotes(&sent[0].1, (ROUTER, HOST), &original, 200);
}
