//! Packets that rules let through.

use super::*;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::{EtherType, IpProtocol, MacAddr};

#[test]
fn the_first_match_wins() {
    let mut fw = Bench::with_rules(
        "deny tcp from 10.0.0.66 to any
         allow tcp from 10.0.0.0/24 to any 80,443
         deny ip from any to any",
    );
    assert!(fw.passes(INSIDE, &tcp("10.0.0.1:1000", "1.2.3.4:80", SYN)));
    assert!(fw.passes(INSIDE, &tcp("10.0.0.1:1000", "1.2.3.4:443", SYN)));
    assert!(!fw.passes(INSIDE, &tcp("10.0.0.1:1000", "1.2.3.4:22", SYN)));
    assert!(!fw.passes(INSIDE, &tcp("10.0.0.66:1000", "1.2.3.4:80", SYN)));
    assert!(!fw.passes(INSIDE, &udp("10.0.0.1:1000", "1.2.3.4:80")));
    assert!(!fw.passes(INSIDE, &tcp("10.0.1.1:1000", "1.2.3.4:80", SYN)));
    assert_eq!(fw.metric("rule_packets_total", "100"), 1);
    assert_eq!(fw.metric("rule_packets_total", "200"), 2);
    assert_eq!(fw.metric("rule_packets_total", "300"), 3);
    assert_eq!(fw.metric("rule_bytes_total", "100"), 54);
    assert_eq!(fw.dropped("rule"), 4);
}

#[test]
fn what_no_rule_decides_falls_to_the_default() {
    let frame = udp("[2001:db8::1]:5", "[2001:db8::2]:6");
    let mut denying = Bench::with_rules("allow tcp from any to any");
    assert!(!denying.passes(INSIDE, &frame));
    assert_eq!(denying.dropped("default"), 1);
    let mut allowing = Bench::new(json!({"default": "allow"}));
    assert!(allowing.passes(INSIDE, &frame) && allowing.passes(OUTSIDE, &frame));
    assert_eq!(allowing.metric("default_policy_packets_total", ""), 2);
}

#[test]
fn port_ranges_lists_and_names() {
    let mut fw = Bench::with_rules("allow udp from any 1024-65535 to any domain,ntp,8000-8080");
    for (from, to, passes) in [
        (1024, 53, true),
        (65535, 123, true),
        (1023, 53, false),
        (5000, 7999, false),
        (5000, 8000, true),
        (5000, 8080, true),
        (5000, 8081, false),
    ] {
        let frame = udp(&format!("10.0.0.1:{from}"), &format!("10.0.0.2:{to}"));
        assert_eq!(fw.passes(INSIDE, &frame), passes, "{from} -> {to}");
    }
}

#[test]
fn not_inverts_addresses_ports_and_options() {
    let mut fw = Bench::with_rules(
        "allow udp from not 10.0.0.0/8,192.168.0.0/16 to any
         allow tcp from any to any not 25
         allow not udp from 10.9.9.9 to any not frag",
    );
    assert!(fw.passes(INSIDE, &udp("11.0.0.1:1", "1.1.1.1:1")));
    assert!(fw.passes(INSIDE, &udp("[fc00::1]:1", "[fc00::2]:1")));
    assert!(!fw.passes(INSIDE, &udp("192.168.3.4:1", "1.1.1.1:1")));
    assert!(fw.passes(INSIDE, &tcp("10.0.0.1:1", "1.1.1.1:26", SYN)));
    assert!(!fw.passes(INSIDE, &tcp("10.0.0.1:1", "1.1.1.1:25", SYN)));
    assert!(fw.passes(INSIDE, &tcp("10.9.9.9:1", "1.1.1.1:25", SYN)));
    assert!(!fw.passes(INSIDE, &udp("10.9.9.9:1", "1.1.1.1:25")));
}

#[test]
fn ipv6_prefixes() {
    let mut fw = Bench::with_rules(
        "deny ip6 from any to 2001:db8:0:1::/64
         allow ip6 from 2001:db8::/32 to any",
    );
    assert!(fw.passes(INSIDE, &udp("[2001:db8::1]:1", "[2001:db8:0:2::1]:2")));
    assert!(!fw.passes(INSIDE, &udp("[2001:db8::1]:1", "[2001:db8:0:1::1]:2")));
    assert!(!fw.passes(INSIDE, &udp("[2001:db9::1]:1", "[2001:db8:0:2::1]:2")));
    assert!(!fw.passes(INSIDE, &udp("10.0.0.1:1", "10.0.0.2:2")));
}

#[test]
fn tcp_flags_setup_and_established() {
    let mut fw = Bench::with_rules(
        "deny tcp from any to any tcpflags syn,fin
         allow tcp from any to any established
         allow tcp from any to any 22 setup",
    );
    let frame = |flags, port| tcp("10.0.0.1:1000", &format!("10.0.0.2:{port}"), flags);
    assert!(fw.passes(INSIDE, &frame(SYN, 22)));
    assert!(!fw.passes(INSIDE, &frame(SYN, 23)));
    assert!(fw.passes(INSIDE, &frame(SYN_ACK, 23)));
    assert!(fw.passes(INSIDE, &frame(ACK, 23)));
    assert!(fw.passes(INSIDE, &frame(RST, 23)));
    assert!(!fw.passes(INSIDE, &frame(TcpFlags(0x03), 22)));
    assert!(!fw.passes(INSIDE, &frame(TcpFlags(0x13), 22)));
    assert!(!fw.passes(INSIDE, &frame(TcpFlags::NONE, 22)));
}

#[test]
fn icmp_types_and_codes() {
    let mut fw = Bench::with_rules(
        "allow icmp from any to any icmptypes 0,3/4,8
         allow icmp6 from any to any icmp6types 128,129,135",
    );
    let v4 = |kind, code| {
        bytes(
            Frame::icmp(ip("1.1.1.1"), ip("2.2.2.2"), kind, code, [0; 4]),
            b"",
        )
    };
    let v6 = |kind| {
        bytes(
            Frame::icmp(ip("fe80::1"), ip("fe80::2"), kind, 0, [0; 4]),
            &[0; 20],
        )
    };
    assert!(fw.passes(INSIDE, &v4(8, 0)) && fw.passes(INSIDE, &v4(0, 0)));
    assert!(fw.passes(INSIDE, &v4(3, 4)));
    assert!(!fw.passes(INSIDE, &v4(3, 3)) && !fw.passes(INSIDE, &v4(5, 0)));
    assert!(fw.passes(INSIDE, &v6(128)) && fw.passes(INSIDE, &v6(135)));
    assert!(!fw.passes(INSIDE, &v6(134)));
}

#[test]
fn vlans_are_matched_and_pass_unchanged() {
    let mut fw = Bench::with_rules(
        "allow ip from any to any vlan 10,20-29
         deny ip from any to any vlan 0-4095
         allow udp from any to any",
    );
    let frame = Frame::udp(socket("10.0.0.1:1"), socket("10.0.0.2:2"));
    assert!(fw.passes(INSIDE, &tagged(frame, 10)));
    assert!(fw.passes(INSIDE, &tagged(frame, 25)));
    assert!(!fw.passes(INSIDE, &tagged(frame, 30)));
    assert!(fw.passes(INSIDE, &bytes(frame, b"untagged")));
    let tags = [VlanTag::new(20), VlanTag::new(999)];
    assert!(fw.passes(INSIDE, &bytes(frame.vlans(&tags), b"two tags")));
}

#[test]
fn later_fragments_have_no_ports() {
    let info = |offset, more| FragmentInfo {
        offset,
        more,
        ident: 7,
    };
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fc00::1", "fc00::2")] {
        let piece = |offset, more| {
            let frame = Frame::ip(ip(src), ip(dst), IpProtocol::UDP);
            bytes(
                frame.fragment(info(offset, more)),
                &[0, 1, 0, 53, 0, 100, 0, 0, 9, 9, 9, 9],
            )
        };
        let mut by_port = Bench::with_rules("allow udp from any to any 53");
        assert!(by_port.passes(INSIDE, &piece(0, true)), "first, {src}");
        assert!(!by_port.passes(INSIDE, &piece(1480, false)), "later, {src}");
        let mut by_negated_port = Bench::with_rules("allow udp from any to any not 99");
        assert!(
            !by_negated_port.passes(INSIDE, &piece(1480, true)),
            "not, {src}"
        );
        let mut frag = Bench::with_rules("deny ip from any to any frag\nallow ip from any to any");
        assert!(frag.passes(INSIDE, &piece(0, true)));
        assert!(!frag.passes(INSIDE, &piece(8, true)));
        assert!(!frag.passes(INSIDE, &piece(1480, false)));
        let mut first =
            Bench::with_rules("deny ip from any to any frag first\nallow ip from any to any");
        assert!(!first.passes(INSIDE, &piece(0, true)));
        assert!(first.passes(INSIDE, &piece(8, true)));
    }
}

#[test]
fn direction_by_word_and_by_port_name() {
    let frame = udp("10.0.0.1:1", "10.0.0.2:2");
    for (rule, from_inside, from_outside) in [
        ("allow ip from any to any out", true, false),
        ("allow ip from any to any in", false, true),
        ("allow ip from any to any recv p0", true, false),
        ("allow ip from any to any xmit p0", false, true),
        ("allow ip from any to any recv 1", false, true),
        ("allow ip from any to any not out", false, true),
    ] {
        let mut fw = Bench::with_rules(rule);
        assert_eq!(fw.passes(INSIDE, &frame), from_inside, "{rule}");
        assert_eq!(fw.passes(OUTSIDE, &frame), from_outside, "{rule}");
    }
}

#[test]
fn count_counts_and_goes_on() {
    let mut fw = Bench::with_rules(
        "10 count ip from any to any
         20 count udp from any to any
         30 allow ip from any to any",
    );
    assert!(fw.passes(INSIDE, &udp("10.0.0.1:1", "10.0.0.2:2")));
    assert!(fw.passes(INSIDE, &tcp("10.0.0.1:1", "10.0.0.2:2", SYN)));
    for (rule, packets) in [("10", 2), ("20", 1), ("30", 2)] {
        assert_eq!(
            fw.metric("rule_packets_total", rule),
            packets,
            "rule {rule}"
        );
    }
}

#[test]
fn what_is_not_ip_passes_by_option() {
    let macs = (MacAddr([2; 6]), MacAddr::BROADCAST);
    let other = |ethertype| {
        let mut buffer = [0; 64];
        let len = nfluid_wire::build::ethernet(&mut buffer, macs, &[], ethertype, &[0; 40]);
        buffer[..len.expect("fits")].to_vec()
    };
    let (arp, lldp) = (other(EtherType::ARP), other(EtherType(0x88cc)));
    for (option, arp_passes, lldp_passes) in [
        ("arp", true, false),
        ("allow", true, true),
        ("deny", false, false),
    ] {
        let mut fw = Bench::new(json!({"non_ip": option}));
        assert_eq!(fw.passes(INSIDE, &arp), arp_passes, "ARP with {option}");
        assert_eq!(fw.passes(INSIDE, &lldp), lldp_passes, "LLDP with {option}");
    }
    assert!(
        Bench::with_rules("").passes(OUTSIDE, &arp),
        "ARP passes unless told otherwise"
    );
}

#[test]
fn malformed_packets_are_dropped_and_counted_by_reason() {
    let mut fw = Bench::new(json!({"default": "allow"}));
    let mut bad_length = udp("10.0.0.1:1", "10.0.0.2:2");
    bad_length[16..18].copy_from_slice(&9000_u16.to_be_bytes());
    let short_tcp = bytes(
        Frame::ip(ip("1.1.1.1"), ip("2.2.2.2"), IpProtocol::TCP),
        &[0; 8],
    );
    assert!(!fw.passes(INSIDE, &bad_length));
    assert!(!fw.passes(INSIDE, &bad_length));
    assert!(!fw.passes(INSIDE, &short_tcp));
    assert_eq!(fw.dropped("malformed"), 3);
    let reason = nfluid_wire::ParseError::Ipv4BadTotalLength.as_str();
    assert_eq!(fw.metric("packets_malformed_total", reason), 2);
    let reason = nfluid_wire::ParseError::TcpTruncated.as_str();
    assert_eq!(fw.metric("packets_malformed_total", reason), 1);
}

/// Catches: a fragment that writes the flags of the first one over, passed by a rule for fragments.
// promise: 10.30
#[test]
fn tcp_fragments_over_the_flags_never_pass() {
    let mut fw = Bench::with_rules("allow ip from any to any frag any");
    let piece = |protocol, offset, version: usize| {
        let from = [ip("10.0.0.1"), ip("fc00::1")][version];
        let to = [ip("10.0.0.2"), ip("fc00::2")][version];
        let fragment = FragmentInfo {
            offset,
            more: false,
            ident: 7,
        };
        bytes(Frame::ip(from, to, protocol).fragment(fragment), &[0; 64])
    };
    for version in [0, 1] {
        assert!(!fw.passes(OUTSIDE, &piece(IpProtocol::TCP, 8, version)));
        assert!(fw.passes(OUTSIDE, &piece(IpProtocol::TCP, 16, version)));
        assert!(fw.passes(OUTSIDE, &piece(IpProtocol::UDP, 8, version)));
    }
    assert_eq!(fw.dropped("malformed"), 2);
    let reason = nfluid_wire::ParseError::TcpOverlappingFragment.as_str();
    assert_eq!(fw.metric("packets_malformed_total", reason), 2);
}

#[test]
fn frames_in_equal_frames_accounted_for() {
    let mut fw = Bench::with_rules("allow udp from any to any\nreject tcp from any to any");
    let frames: Vec<Sent> = (0..200)
        .map(|i| match i % 3 {
            0 => (INSIDE, udp("10.0.0.1:1", "10.0.0.2:2")),
            1 => (OUTSIDE, tcp("10.0.0.1:1", "10.0.0.2:2", SYN)),
            _ => (INSIDE, ping("10.0.0.1", "10.0.0.2", i)),
        })
        .collect();
    run(&mut *fw.nf, fw.now, &frames);
    let forwarded =
        fw.metric("packets_forwarded_total", "p0") + fw.metric("packets_forwarded_total", "p1");
    let dropped: u64 = ["rule", "rejected", "default", "non_ip", "malformed"]
        .map(|reason| fw.dropped(reason))
        .iter()
        .sum();
    assert_eq!(forwarded, 67);
    assert_eq!(forwarded + dropped, 200);
}
