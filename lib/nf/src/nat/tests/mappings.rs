use super::{Bench, describe, frame};
use nfluid_wire::udp::UdpPacket;
use serde_json::json;
use std::format;
use std::vec::Vec;

#[test]
fn a_datagram_goes_out_and_its_answer_comes_back() {
    Bench::new(json!({})).table(&[
        (
            "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "inside udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
    ]);
}

// promise: 10.9
#[test]
fn the_mapping_does_not_depend_on_the_destination() {
    Bench::new(json!({"port_preservation": false, "ports": "7000-7000"})).table(&[
        (
            "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:7000 > 192.0.2.9:53",
        ),
        (
            "inside udp 10.0.0.2:5000 > 198.51.100.1:123",
            "outside udp 203.0.113.1:7000 > 198.51.100.1:123",
        ),
    ]);
}

#[test]
fn two_hosts_with_the_same_port_get_different_ones() {
    let mut nat = Bench::new(json!({}));
    let first = nat.play("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    let second = nat.play("inside udp 10.0.0.3:5000 > 192.0.2.9:53");
    assert_eq!(first, "outside udp 203.0.113.1:5000 > 192.0.2.9:53");
    assert!(second.starts_with("outside udp 203.0.113.1:"), "{second}");
    assert_ne!(first, second);
}

#[test]
fn endpoint_independent_filtering_lets_anybody_in() {
    Bench::new(json!({"filtering": "endpoint-independent"})).table(&[
        (
            "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            "outside udp 198.51.100.1:9 > 203.0.113.1:5000",
            "inside udp 198.51.100.1:9 > 10.0.0.2:5000",
        ),
        (
            "outside udp 198.51.100.1:9 > 203.0.113.1:5001",
            "drop no_mapping",
        ),
    ]);
}

#[test]
fn address_dependent_filtering_lets_known_addresses_in() {
    Bench::new(json!({})).table(&[
        (
            "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            "outside udp 192.0.2.9:9999 > 203.0.113.1:5000",
            "inside udp 192.0.2.9:9999 > 10.0.0.2:5000",
        ),
        (
            "outside udp 198.51.100.1:53 > 203.0.113.1:5000",
            "drop filtered",
        ),
    ]);
}

#[test]
fn address_and_port_filtering_lets_known_end_points_in() {
    Bench::new(json!({"filtering": "address-and-port"})).table(&[
        (
            "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "inside udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
        (
            "outside udp 192.0.2.9:54 > 203.0.113.1:5000",
            "drop filtered",
        ),
    ]);
}

#[test]
fn an_idle_udp_mapping_goes_after_its_timeout() {
    Bench::new(json!({"timeouts": {"udp": 120}})).table(&[
        (
            "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        ("wait 119", ""),
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "inside udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
        ("wait 1", ""),
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "drop no_mapping",
        ),
    ]);
}

#[test]
fn outbound_packets_refresh_and_inbound_ones_only_if_asked() {
    let out = (
        "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
        "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
    );
    let back = (
        "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
        "inside udp 192.0.2.9:53 > 10.0.0.2:5000",
    );
    let gone = (back.0, "drop no_mapping");
    let wait = ("wait 200", "");
    Bench::new(json!({})).table(&[out, wait, out, wait, back, wait, gone]);
    let mut refreshing = Bench::new(json!({"inbound_refresh": true}));
    refreshing.table(&[out, wait, back, wait, back, wait, back]);
}

#[test]
fn echo_requests_are_mapped_by_identifier() {
    Bench::new(json!({})).table(&[
        (
            "inside icmp 10.0.0.2 > 192.0.2.9 echo 1234",
            "outside icmp 203.0.113.1 > 192.0.2.9 echo 1234",
        ),
        (
            "outside icmp 192.0.2.9 > 203.0.113.1 reply 1234",
            "inside icmp 192.0.2.9 > 10.0.0.2 reply 1234",
        ),
        (
            "outside icmp 192.0.2.9 > 203.0.113.1 reply 1235",
            "drop no_mapping",
        ),
        (
            "outside icmp 198.51.100.1 > 203.0.113.1 reply 1234",
            "drop filtered",
        ),
        (
            "inside icmp 10.0.0.2 > 192.0.2.9 reply 77",
            "drop no_mapping",
        ),
        ("inside icmp 10.0.0.2 > 192.0.2.9 type 5", "drop icmp_other"),
    ]);
}

#[test]
fn a_forward_leads_strangers_to_its_host() {
    let forwards = json!({"forward": [
        "tcp 203.0.113.1:80 -> 10.0.0.2:8080",
        "udp 203.0.113.7:53 -> 10.0.0.3:53",
    ]});
    Bench::new(forwards).table(&[
        (
            "outside tcp 192.0.2.9:4000 > 203.0.113.1:80 syn",
            "inside tcp 192.0.2.9:4000 > 10.0.0.2:8080 syn",
        ),
        (
            "inside tcp 10.0.0.2:8080 > 192.0.2.9:4000 syn ack 9/1",
            "outside tcp 203.0.113.1:80 > 192.0.2.9:4000 syn ack 9/1",
        ),
        (
            "outside udp 192.0.2.9:4000 > 203.0.113.7:53",
            "inside udp 192.0.2.9:4000 > 10.0.0.3:53",
        ),
        ("wait 100000", ""),
        (
            "outside udp 192.0.2.9:4000 > 203.0.113.7:53",
            "inside udp 192.0.2.9:4000 > 10.0.0.3:53",
        ),
        (
            "inside udp 10.0.0.3:53 > 192.0.2.9:4000",
            "outside udp 203.0.113.7:53 > 192.0.2.9:4000",
        ),
        (
            "outside tcp 192.0.2.9:4000 > 203.0.113.7:80 syn",
            "drop no_mapping",
        ),
    ]);
}

#[test]
fn a_dynamic_mapping_never_takes_a_forwarded_port() {
    let mut nat = Bench::new(json!({
        "ports": "2000-2001",
        "forward": ["udp 203.0.113.1:2000 -> 10.0.0.2:53"],
    }));
    nat.table(&[
        (
            "inside udp 10.0.0.9:2000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:2001 > 192.0.2.9:53",
        ),
        (
            "inside udp 10.0.0.9:2002 > 192.0.2.9:53",
            "drop ports_exhausted",
        ),
    ]);
}

#[test]
fn each_vlan_has_its_own_inside_hosts() {
    let mut nat = Bench::new(json!({}));
    nat.table(&[
        (
            "inside vlan 7 udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside vlan 7 udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            "outside vlan 7 udp 192.0.2.9:53 > 203.0.113.1:5000",
            "inside vlan 7 udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
        (
            "outside vlan 8 udp 192.0.2.9:53 > 203.0.113.1:5000",
            "drop no_mapping",
        ),
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "drop no_mapping",
        ),
        (
            "inside vlan 7 vlan 9 udp 10.0.0.2:6000 > 192.0.2.9:53",
            "outside vlan 7 vlan 9 udp 203.0.113.1:6000 > 192.0.2.9:53",
        ),
    ]);
    let other = nat.play("inside vlan 8 udp 10.0.0.2:5000 > 192.0.2.9:53");
    assert!(
        other.starts_with("outside vlan 8 udp 203.0.113.1:"),
        "{other}"
    );
    assert!(!other.contains(":5000 >"), "{other}");
}

// promise: 10.36
#[test]
fn what_is_not_for_translation_is_dropped_or_passed() {
    let lines = [
        "inside udp 0.0.0.0:68 > 255.255.255.255:67",
        "inside udp 10.0.0.2:5353 > 224.0.0.251:5353",
        "outside udp 192.0.2.9:53 > 10.0.0.2:5000",
        "inside udp 172.16.0.1:53 > 192.0.2.9:5000",
    ];
    let mut strict = Bench::new(json!({"inside": ["10.0.0.0/8"]}));
    let mut lenient = Bench::new(json!({"inside": ["10.0.0.0/8"], "untranslated": "pass"}));
    for line in lines {
        assert_eq!(strict.play(line), "drop untranslated", "{line}");
        let (port, bytes) = frame(line);
        assert_eq!(lenient.send(port, &bytes), [(1 - port, bytes)], "{line}");
    }
    // Catches: only protocols with ports pass.
    for protocol in ["gre", "esp", "sctp", "ospf", "igmp"] {
        for (line, passed) in [("inside", 1), ("outside", 0)] {
            let line = format!("{line} {protocol} 10.0.0.2 > 224.0.0.5");
            assert_eq!(strict.play(&line), "drop other_protocol", "{line}");
            let (port, bytes) = frame(&line);
            assert_eq!(lenient.send(port, &bytes), [(passed, bytes)], "{line}");
        }
    }
    let (port, redirect) = frame("inside icmp 10.0.0.2 > 192.0.2.9 type 5");
    assert_eq!(lenient.send(port, &redirect), [(1, redirect)]);
    assert_eq!(lenient.metric("packets_untouched_total", None), 15.0);
}

#[test]
fn a_udp_checksum_of_zero_stays_zero() {
    let mut nat = Bench::new(json!({}));
    let (_, mut bytes) = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    UdpPacket::new_unchecked(&mut bytes[34..]).set_checksum(0);
    let sent = nat.send(0, &bytes);
    assert_eq!(
        describe(1, &sent[0].1),
        "outside udp 203.0.113.1:5000 > 192.0.2.9:53"
    );
    assert_eq!(UdpPacket::new_unchecked(&sent[0].1[34..]).checksum(), 0);
}

#[test]
fn header_options_and_padding_are_kept() {
    let (_, plain) = frame("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    // Router alert (RFC 2113) between header and transport, and padding behind the packet.
    let mut bytes: Vec<u8> = plain[..34].to_vec();
    bytes.extend([0x94, 4, 0, 0]);
    bytes.extend(&plain[34..]);
    let mut ip = nfluid_wire::ipv4::Ipv4Packet::new_unchecked(&mut bytes[14..]);
    ip.set_version_and_header_len(24);
    ip.set_total_len(ip.total_len() + 4);
    ip.fill_checksum();
    bytes.extend([0xee; 5]);
    let sent = Bench::new(json!({})).send(0, &bytes);
    let (_, out) = &sent[0];
    assert_eq!(
        describe(1, out),
        "outside udp 203.0.113.1:5000 > 192.0.2.9:53"
    );
    assert_eq!(out[34..38], [0x94, 4, 0, 0]);
    assert_eq!(out[out.len() - 5..], [0xee; 5]);
    assert_eq!(out.len(), bytes.len());
}

#[test]
fn nothing_but_addresses_ports_and_checksums_changes() {
    let (_, before) = frame("inside tcp 10.0.0.2:5000 > 192.0.2.9:80 syn");
    let sent = Bench::new(json!({"port_preservation": false})).send(0, &before);
    let after = &sent[0].1;
    let changed: Vec<usize> = (0..before.len())
        .filter(|&i| before[i] != after[i])
        .collect();
    // IPv4 checksum 24..26, source 26..30; TCP source port 34..36, checksum 50..52. TTL is 22.
    let allowed = |i: &usize| (24..30).contains(i) || [34, 35, 50, 51].contains(i);
    assert!(changed.iter().all(allowed), "{changed:?}");
}

#[test]
fn a_new_configuration_keeps_what_is_still_in_its_pool() {
    let mut nat = Bench::new(json!({"pool": ["203.0.113.1-203.0.113.2"]}));
    let hosts: Vec<Vec<u8>> = (2..40u8)
        .map(|i| frame(&std::format!("inside udp 10.0.0.{i}:5000 > 192.0.2.9:53")).1)
        .collect();
    let before: Vec<Vec<u8>> = hosts.iter().map(|f| nat.send(0, f).remove(0).1).collect();
    nat.reconfigure(json!({"pool": ["203.0.113.2-203.0.113.3"]}));
    let mut kept = 0;
    for (frame, before) in hosts.iter().zip(before) {
        if before[26..30] == [203, 0, 113, 2] {
            kept += 1;
            assert_eq!(nat.send(0, frame), [(1, before)]);
        } else {
            assert_ne!(nat.send(0, frame)[0].1[26..30], [203, 0, 113, 1]);
        }
    }
    assert!(kept > 0, "some hosts had the address that stayed");
}

/// IEEE 802.1Q: a tag with identifier 0 has a priority and is of no VLAN. Catches: it is a VLAN of its own.
// promise: 10.35
#[test]
fn a_priority_tag_is_of_no_vlan() {
    let mut nat = Bench::new(json!({"forward": ["tcp 203.0.113.1:80 -> 10.0.0.3:80"]}));
    nat.table(&[
        (
            "inside vlan 0 udp 10.0.0.2:5000 > 192.0.2.9:53",
            "outside vlan 0 udp 203.0.113.1:5000 > 192.0.2.9:53",
        ),
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "inside udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
        (
            "outside vlan 0 tcp 192.0.2.9:4000 > 203.0.113.1:80 syn",
            "inside vlan 0 tcp 192.0.2.9:4000 > 10.0.0.3:80 syn",
        ),
        (
            "inside vlan 0 vlan 7 udp 10.0.0.2:6000 > 192.0.2.9:53",
            "outside vlan 0 vlan 7 udp 203.0.113.1:6000 > 192.0.2.9:53",
        ),
        (
            "outside vlan 7 udp 192.0.2.9:53 > 203.0.113.1:6000",
            "inside vlan 7 udp 192.0.2.9:53 > 10.0.0.2:6000",
        ),
    ]);
}

/// RFC 4787 REQ-3a: IKE asks from port 500. Catches: the default range leaves well-known ports out.
// promise: 10.36
#[test]
fn a_well_known_port_stays_one_by_default() {
    let mut nat = Bench::new(json!({}));
    nat.table(&[(
        "inside udp 10.0.0.2:500 > 192.0.2.9:500",
        "outside udp 203.0.113.1:500 > 192.0.2.9:500",
    )]);
    let second = nat.play("inside udp 10.0.0.3:500 > 192.0.2.9:500");
    let source = second.split(' ').nth(2).expect("a source");
    let port: u16 = source
        .rsplit(':')
        .next()
        .expect("a port")
        .parse()
        .expect("a number");
    assert!(port < 1024, "{second}");
    let given = nat.play("inside udp 10.0.0.2:5000 > 192.0.2.9:500");
    assert!(given.contains(":5000 >"), "{given}");
    Bench::new(json!({"ports": "7000-7000"})).table(&[(
        "inside udp 10.0.0.2:500 > 192.0.2.9:500",
        "outside udp 203.0.113.1:7000 > 192.0.2.9:500",
    )]);
}

/// Catches: an operator that looks for a fault gets no answer; the NAT answers a packet that a host inside waits for.
// promise: 10.36
#[test]
fn the_nat_answers_pings_of_its_own_addresses() {
    let mut nat = Bench::new(json!({}));
    nat.table(&[
        (
            "outside icmp 192.0.2.9 > 203.0.113.1 echo 7",
            "outside icmp 203.0.113.1 > 192.0.2.9 reply 7",
        ),
        (
            "inside vlan 5 icmp 10.0.0.2 > 203.0.113.1 echo 8",
            "inside vlan 5 icmp 203.0.113.1 > 10.0.0.2 reply 8",
        ),
        (
            "outside icmp 255.255.255.255 > 203.0.113.1 echo 7",
            "drop no_mapping",
        ),
        (
            "outside icmp 192.0.2.9 > 203.0.113.1 reply 7",
            "drop no_mapping",
        ),
        (
            "outside icmp 192.0.2.9 > 203.0.113.2 echo 7",
            "drop untranslated",
        ),
    ]);
    assert_eq!(nat.metric("pings_answered_total", None), 2.0);
    assert_eq!(nat.metric("mappings", None), 0.0);
    Bench::new(json!({"answer_pings": false})).table(&[(
        "outside icmp 192.0.2.9 > 203.0.113.1 echo 7",
        "drop no_mapping",
    )]);
}
