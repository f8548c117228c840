//! ICMP 3/13 for flows that are refused (RFC 5508 REQ-8).

use super::{Bench, check_sums, frame};
use nfluid_wire::ether::{EthernetFrame, VlanStack};
use nfluid_wire::icmpv4::{Icmpv4Packet, Icmpv4Type, unreachable_code};
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{MacAddr, PacketMeta};
use serde_json::{Value, json};
use std::vec::Vec;

/// A NAT whose only port is taken by a host, and that has a forward.
fn full(extra: Value) -> Bench {
    let mut config =
        json!({"ports": "7000-7000", "forward": ["tcp 203.0.113.1:80 -> 10.0.0.3:80"]});
    for (key, value) in extra.as_object().unwrap() {
        config[key] = value.clone();
    }
    let mut nat = Bench::new(config);
    // Established: a half-open connection would give way.
    for line in [
        "inside udp 10.0.0.9:5000 > 192.0.2.9:53",
        "inside tcp 10.0.0.9:5000 > 192.0.2.9:53 syn 1/0",
        "outside tcp 192.0.2.9:53 > 203.0.113.1:7000 syn ack 1/2",
        "inside tcp 10.0.0.9:5000 > 192.0.2.9:53 ack 2/2",
    ] {
        assert!(!nat.play(line).starts_with("drop"), "{line}");
    }
    nat
}

fn errors(nat: &Bench, result: &str) -> f64 {
    nat.metric("icmp_errors_total", Some(result))
}

/// The answer to a frame from inside is "communication administratively prohibited", and quotes the frame.
fn assert_prohibited(nat: &mut Bench, offender: &[u8]) {
    let sent = nat.send(0, offender);
    let [(0, answer)] = &sent[..] else {
        panic!("{} frames", sent.len());
    };
    let meta = PacketMeta::parse(answer).unwrap();
    check_sums(answer, &meta);
    let (there, back) = (
        EthernetFrame::new_unchecked(offender),
        EthernetFrame::new_unchecked(&answer[..]),
    );
    assert_eq!((back.dst(), back.src()), (there.src(), there.dst()));
    let tags = |frame: &[u8]| VlanStack::peek(frame).unwrap().tags().to_vec();
    assert_eq!(tags(answer), tags(offender));
    let l3 = usize::from(meta.l3_offset);
    let about = Ipv4Packet::new_checked(&offender[l3..]).unwrap();
    let ip = Ipv4Packet::new_checked(&answer[l3..]).unwrap();
    assert_eq!(ip.src(), std::net::Ipv4Addr::new(203, 0, 113, 1));
    assert_eq!(ip.dst(), about.src());
    assert_eq!(ip.tos(), 0xc0, "internetwork control");
    assert!(ip.total_len() <= 576);
    let message = Icmpv4Packet::new_checked(ip.payload()).unwrap();
    assert_eq!(message.msg_type(), Icmpv4Type::DEST_UNREACHABLE);
    assert_eq!(message.code(), unreachable_code::ADMIN_PROHIBITED);
    let whole = &offender[l3..l3 + usize::from(about.total_len())];
    assert_eq!(message.payload(), &whole[..whole.len().min(548)]);
}

/// Catches: a host that waits for an answer that will not come.
// promise: 10.40
#[test]
fn a_host_inside_is_notified_that_its_flow_is_refused() {
    let mut nat = full(json!({"hairpin": false, "inside": ["10.0.0.0/8"]}));
    for line in [
        "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
        "inside vlan 7 udp 10.0.0.2:5000 > 192.0.2.9:53",
        "inside tcp 10.0.0.2:5000 > 192.0.2.9:53 syn",
        "inside udp 10.0.0.2:5000 > 203.0.113.1:7000",
        "inside gre 10.0.0.2 > 192.0.2.9",
        "inside udp 172.16.0.1:5000 > 192.0.2.9:53",
    ] {
        let before = errors(&nat, "sent");
        assert_prohibited(&mut nat, &frame(line).1);
        assert_eq!(errors(&nat, "sent"), before + 1.0, "{line}");
    }
    let mut small = Bench::new(json!({"sessions_max": 16, "host_sessions_max": 15}));
    for host in [2, 3] {
        for port in 0..16 {
            small.play(&std::format!(
                "inside udp 10.0.0.{host}:{port} > 192.0.2.9:53"
            ));
        }
    }
    for reason in ["host_quota", "sessions_full"] {
        assert!(
            small.metric("packets_dropped_total", Some(reason)) > 0.0,
            "{reason}"
        );
    }
    let dropped = small.metric("packets_dropped_total", None);
    assert_eq!(errors(&small, "sent"), dropped, "each refusal is told");
}

/// RFC 1122 section 3.2.2. Catches: storms of answers, and answers to those that are no hosts.
// promise: 10.40
#[test]
fn what_must_not_be_answered_is_not() {
    let mut nat = full(json!({}));
    let later_fragment = |mut frame: Vec<u8>| {
        let mut ip = Ipv4Packet::new_unchecked(&mut frame[14..]);
        ip.set_fragmentation(false, false, 64);
        ip.fill_checksum();
        frame
    };
    let to_all = |mut frame: Vec<u8>| {
        EthernetFrame::new_unchecked(&mut frame[..]).set_dst(MacAddr::BROADCAST);
        frame
    };
    let line = |line: &str| frame(line).1;
    for (silent, name) in [
        (
            line("inside udp 10.0.0.2:5000 > 224.0.0.251:53"),
            "multicast",
        ),
        (
            line("inside udp 10.0.0.2:5000 > 255.255.255.255:53"),
            "broadcast",
        ),
        (line("inside udp 0.0.0.0:68 > 192.0.2.9:67"), "no host"),
        (line("inside udp 127.0.0.1:68 > 192.0.2.9:67"), "loopback"),
        (
            to_all(line("inside udp 10.0.0.2:5000 > 192.0.2.9:53")),
            "broadcast frame",
        ),
        (
            later_fragment(line("inside gre 10.0.0.2 > 192.0.2.9")),
            "later fragment",
        ),
        (
            line("inside icmp 10.0.0.2 > 192.0.2.9 type 3"),
            "ICMP error",
        ),
        (
            line("inside tcp 10.0.0.2:5000 > 192.0.2.9:80 ack"),
            "no new flow",
        ),
    ] {
        assert_eq!(nat.send(0, &silent), [], "{name}");
    }
    assert_eq!(errors(&nat, "sent"), 0.0);
    // A whole one, to show that it is not for another reason.
    assert_prohibited(&mut nat, &line("inside gre 10.0.0.2 > 192.0.2.9"));
}

/// RFC 5382 REQ-4, RFC 5508 REQ-9. Catches: a NAT that shows outside hosts what it has, or sends at their bidding.
// promise: 10.40
#[test]
fn hosts_outside_get_no_refusals() {
    let mut nat = full(json!({"host_sessions_max": 3}));
    for stranger in [
        "outside udp 192.0.2.77:53 > 203.0.113.1:7000",
        "outside udp 192.0.2.77:53 > 203.0.113.1:9000",
        "outside gre 192.0.2.77 > 203.0.113.1",
        "outside udp 192.0.2.77:53 > 198.51.100.1:9",
    ] {
        assert_eq!(nat.send(1, &frame(stranger).1), [], "{stranger}");
    }
    // The forward's host has its sessions; one more is refused, from outside and by a hairpin.
    for peer in [75, 76, 77] {
        for line in [
            std::format!("outside tcp 192.0.2.{peer}:1000 > 203.0.113.1:80 syn 1/0"),
            std::format!("inside tcp 10.0.0.3:80 > 192.0.2.{peer}:1000 syn ack 1/2"),
            std::format!("outside tcp 192.0.2.{peer}:1000 > 203.0.113.1:80 ack 2/2"),
        ] {
            assert!(!nat.play(&line).starts_with("drop"), "{line}");
        }
    }
    let quota = |nat: &Bench| nat.metric("packets_dropped_total", Some("host_quota"));
    let before = quota(&nat);
    for (port, line) in [
        (1, "outside tcp 192.0.2.78:1000 > 203.0.113.1:80 syn"),
        (0, "inside tcp 10.0.0.9:5000 > 203.0.113.1:80 syn"),
    ] {
        assert_eq!(nat.send(port, &frame(line).1), [], "{line}");
    }
    assert_eq!(quota(&nat), before + 2.0);
    assert_eq!(nat.metric("icmp_errors_total", None), 0.0);
}

/// Catches: a flood of refused packets that makes a flood of answers.
// promise: 10.40
#[test]
fn answers_are_limited_by_a_rate() {
    let mut nat = full(json!({"icmp_errors": {"per_second": 10, "burst": 3}}));
    let offender = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53").1;
    let count = |nat: &mut Bench| (0..20).map(|_| nat.send(0, &offender).len()).sum::<usize>();
    assert_eq!(count(&mut nat), 3);
    nat.now.0 += 200_000_000;
    assert_eq!(count(&mut nat), 2);
    assert_eq!(errors(&nat, "rate_limited"), 35.0);
    let mut none = full(json!({"icmp_errors": {"burst": 0}}));
    assert_eq!(count(&mut none), 0);
}

/// The counter goes to the next instance; an image of version 3 has none.
#[test]
fn the_count_of_answers_goes_on_elsewhere() {
    let mut nat = full(json!({}));
    nat.send(0, &frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53").1);
    let image = crate::stateful::export("nat", &mut *nat.nf, nat.now).unwrap();
    let mut next = full(json!({}));
    crate::stateful::import("nat", &mut *next.nf, next.now, &image).unwrap();
    assert_eq!(errors(&next, "sent"), 1.0);
}
