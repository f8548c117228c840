//! `reject`, `reset` and `unreach`.

use super::*;
use nfluid_wire::icmpv4::Icmpv4Packet;
use nfluid_wire::icmpv6::Icmpv6Packet;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::ipv6::Ipv6Packet;
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::{ChecksumState, EthernetFrame, PacketMeta};

/// The one frame that comes back.
fn answer(fw: &mut Bench, frame: &[u8]) -> Vec<u8> {
    let sent = fw.sent(OUTSIDE, frame);
    assert_eq!(sent.len(), 1, "one answer and nothing forwarded");
    assert_eq!(
        sent[0].0, OUTSIDE,
        "answers go back where the packet came from"
    );
    sent[0].1.clone()
}

#[test]
fn a_rejected_connection_attempt_is_reset() {
    let mut fw = Bench::with_rules("reject ip from any to any");
    let from = socket("10.0.0.1:1000");
    let attempt = Frame::tcp(from, socket("10.0.0.2:23"), SYN).sequence(7000, 0);
    let answer = answer(&mut fw, &bytes(attempt, b""));
    let ethernet = EthernetFrame::new_checked(&answer[..]).unwrap();
    assert_eq!(
        (ethernet.dst(), ethernet.src()),
        (attempt.src_mac, attempt.dst_mac)
    );
    let ip = Ipv4Packet::new_checked(&answer[14..]).unwrap();
    assert!(ip.verify_checksum());
    assert_eq!(
        (ip.src(), ip.dst()),
        ([10, 0, 0, 2].into(), [10, 0, 0, 1].into())
    );
    let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
    assert!(tcp.verify_checksum(ip.pseudo_header(), ChecksumState::Complete));
    assert_eq!((tcp.src_port(), tcp.dst_port()), (23, 1000));
    assert_eq!(tcp.flags(), TcpFlags::RST | TcpFlags::ACK);
    assert_eq!((tcp.seq(), tcp.ack()), (0, 7001));
    assert_eq!(fw.dropped("rejected"), 1);
    assert_eq!(fw.metric("reject_answers_total", "sent"), 1);
}

#[test]
fn the_reset_of_an_acknowledging_segment_takes_its_number() {
    let mut fw = Bench::with_rules("reset tcp from any to any");
    let segment = Frame::tcp(socket("[fc00::1]:1"), socket("[fc00::2]:2"), ACK).sequence(5, 900);
    let answer = answer(&mut fw, &bytes(segment, b"data"));
    let ip = Ipv6Packet::new_checked(&answer[14..]).unwrap();
    let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
    assert_eq!((tcp.flags(), tcp.seq()), (RST, 900));
}

#[test]
fn a_rejected_datagram_is_answered_by_icmp() {
    let mut fw = Bench::with_rules(
        "unreach port udp from any to any 53
         reject ip from any to any",
    );
    let query = udp("10.0.0.1:1000", "10.0.0.2:53");
    let answer_v4 = answer(&mut fw, &query);
    let packet = Ipv4Packet::new_checked(&answer_v4[14..]).unwrap();
    let icmp = Icmpv4Packet::new_checked(packet.payload()).unwrap();
    assert!(icmp.verify_checksum() && packet.verify_checksum());
    assert_eq!((icmp.msg_type().0, icmp.code()), (3, 3));
    assert_eq!(icmp.payload(), &query[14..], "quotes the packet");

    let answer_v6 = answer(&mut fw, &udp("[fc00::1]:1000", "[fc00::2]:54"));
    let packet = Ipv6Packet::new_checked(&answer_v6[14..]).unwrap();
    let icmp = Icmpv6Packet::new_checked(packet.payload()).unwrap();
    assert!(icmp.verify_checksum(packet.src(), packet.dst()));
    assert_eq!((icmp.msg_type().0, icmp.code()), (1, 1));
}

/// Catches: a reason that the parser does not take, or that has another's code (RFC 792, RFC 1812 section 5.2.7.1, RFC 4443
/// section 3.1).
#[test]
fn each_reason_of_unreach_has_its_code() {
    for (reason, v4, v6) in [
        ("net", 0, 0),
        ("host", 1, 3),
        ("port", 3, 4),
        ("filter-prohib", 13, 1),
    ] {
        let mut fw = Bench::with_rules(&format!("unreach {reason} ip from any to any"));
        let refused = answer(&mut fw, &udp("10.0.0.1:1000", "10.0.0.2:53"));
        let packet = Ipv4Packet::new_checked(&refused[14..]).unwrap();
        let icmp = Icmpv4Packet::new_checked(packet.payload()).unwrap();
        assert_eq!((icmp.msg_type().0, icmp.code()), (3, v4), "{reason}");
        let refused = answer(&mut fw, &udp("[fc00::1]:1000", "[fc00::2]:54"));
        let packet = Ipv6Packet::new_checked(&refused[14..]).unwrap();
        let icmp = Icmpv6Packet::new_checked(packet.payload()).unwrap();
        assert_eq!((icmp.msg_type().0, icmp.code()), (1, v6), "{reason}");
    }
}

#[test]
fn answers_keep_vlan_tags_and_size_limits() {
    let mut fw = Bench::with_rules("reject ip from any to any");
    let tags = [VlanTag::new(12), VlanTag::new(34)];
    for (from, to, longest) in [
        ("1.1.1.1:1", "2.2.2.2:2", 576),
        ("[fc00::1]:1", "[fc00::2]:2", 1280),
    ] {
        let frame = bytes(
            Frame::udp(socket(from), socket(to)).vlans(&tags),
            &[7; 1400],
        );
        let answer = answer(&mut fw, &frame);
        let meta = PacketMeta::parse(&answer).unwrap();
        assert_eq!((meta.vlan_count, meta.outer_vid()), (2, Some(12)));
        assert_eq!(meta.total_len, longest);
    }
}

#[test]
fn nothing_answers_what_must_not_be_answered() {
    let mut fw = Bench::with_rules("reject ip from any to any");
    let error = Frame::icmp(ip("1.1.1.1"), ip("2.2.2.2"), 3, 1, [0; 4]);
    let quoted = &udp("2.2.2.2:1", "3.3.3.3:1")[14..];
    let multicast = Frame::udp(socket("1.1.1.1:1"), socket("224.0.0.5:1"));
    let broadcast = Frame::udp(socket("1.1.1.1:1"), socket("1.1.1.255:1")).macs(
        nfluid_wire::MacAddr([2; 6]),
        nfluid_wire::MacAddr::BROADCAST,
    );
    for frame in [
        bytes(error, quoted),
        tcp("1.1.1.1:1", "2.2.2.2:2", RST),
        bytes(multicast, b""),
        bytes(broadcast, b""),
        udp("0.0.0.0:68", "255.255.255.255:67"),
    ] {
        assert_eq!(fw.sent(OUTSIDE, &frame), []);
    }
    assert_eq!(fw.metric("reject_answers_total", "not_answerable"), 5);
    let mut reset = Bench::with_rules("reset ip from any to any");
    assert_eq!(reset.sent(OUTSIDE, &udp("1.1.1.1:1", "2.2.2.2:2")), []);
}

#[test]
fn answers_are_limited_per_second() {
    let mut fw = Bench::new(json!({"rules": "reject ip from any to any", "reject_rate": 3}));
    let frame = udp("1.1.1.1:1", "2.2.2.2:2");
    let burst = |fw: &mut Bench| {
        (0..10)
            .filter(|_| !fw.sent(INSIDE, &frame).is_empty())
            .count()
    };
    assert_eq!(burst(&mut fw), 3);
    fw.wait_s(1);
    assert_eq!(burst(&mut fw), 3);
    assert_eq!(fw.metric("reject_answers_total", "rate_limited"), 14);
    let mut silent = Bench::new(json!({"rules": "reject ip from any to any", "reject_rate": 0}));
    assert_eq!(burst(&mut silent), 0);
}

/// Catches: answers that leave before or behind the batch, in either way of evaluating rules.
// promise: 10.25
#[test]
fn an_answer_leaves_where_its_packet_was() {
    let filler: String = (0..200)
        .map(|net| format!("deny ip from 10.9.{net}.0/24 to any\n"))
        .collect();
    let rules = "reject tcp from any to any\nallow ip from any to any";
    for rules in [rules.to_string(), filler + rules] {
        let mut fw = Bench::with_rules(&rules);
        let passing = |port: u16| udp(&format!("10.0.0.1:{port}"), "10.0.0.2:2");
        let refused = |port: u16| tcp(&format!("10.0.0.1:{port}"), "10.0.0.2:2", SYN);
        for turn in ["looked up", "remembered"] {
            let batch = [passing(1), refused(2), passing(3), refused(4)];
            let batch: Vec<Sent> = batch.into_iter().map(|frame| (OUTSIDE, frame)).collect();
            let sent = run(&mut *fw.nf, fw.now, &batch);
            let ports: Vec<u8> = sent.iter().map(|sent| sent.0).collect();
            assert_eq!(ports, [INSIDE, OUTSIDE, INSIDE, OUTSIDE], "{turn}");
        }
    }
}
