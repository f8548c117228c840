use super::*;

#[test]
fn a_packet_leaves_for_the_gateway_with_one_hop_less() {
    let mut router = Bench::new(&acquainted());
    let (port, frame) = router.send_one(0, written(&from_alice("192.0.2.7").ttl(64), b"hello"));
    assert_eq!(port, 1);
    assert_eq!(link(&frame), (GATEWAY, P1, EtherType::IPV4));
    let packet = ipv4(&frame);
    assert_eq!(packet.ttl(), 63);
    assert_eq!(packet.src(), Ipv4Addr::new(10, 0, 0, 9));
    assert_eq!(&packet.payload()[8..], b"hello");
}

#[test]
fn a_packet_to_a_connected_host_leaves_for_that_host() {
    let mut router = Bench::new(&acquainted());
    let (port, frame) = router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!((port, link(&frame).0), (1, BOB));
    let (port, frame) = router.send_one(0, written(&from_alice("2001:db8:1::9"), b""));
    assert_eq!((port, link(&frame)), (1, (BOB, P1, EtherType::IPV6)));
    assert_eq!(ipv6(&frame).hop_limit(), 63);
}

#[test]
fn a_packet_may_leave_where_it_came_from() {
    let mut config = acquainted();
    config["redirects"] = json!(false);
    let mut router = Bench::new(&config);
    let frame = written(&datagram("10.0.1.9", "192.0.2.7").macs(BOB, P1), b"");
    let sent = router.send(1, frame);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0, link(&sent[0].1).0), (1, GATEWAY));
}

#[test]
fn the_longest_prefix_decides() {
    let mut config = acquainted();
    config["routes_text"] = "192.0.2.0/24 via 10.0.1.9\nblackhole 192.0.2.128/25\n".into();
    let mut router = Bench::new(&config);
    let (_, frame) = router.send_one(0, written(&from_alice("192.0.2.127"), b""));
    assert_eq!(link(&frame).0, BOB);
    router.refuses(0, written(&from_alice("192.0.2.128"), b""), "blackhole");
    let (_, frame) = router.send_one(0, written(&from_alice("192.0.3.0"), b""));
    assert_eq!(link(&frame).0, GATEWAY);
}

#[test]
fn what_follows_the_packet_is_cut_but_not_the_padding_of_a_short_frame() {
    let mut router = Bench::new(&acquainted());
    let mut frame = written(&from_alice("192.0.2.7"), b"x");
    frame.resize(60, 0);
    assert_eq!(router.send_one(0, frame.clone()).1.len(), 60);
    frame.resize(90, 0xee);
    assert_eq!(router.send_one(0, frame.clone()).1.len(), 60);
    frame.truncate(14 + 29);
    assert_eq!(router.send_one(0, frame).1.len(), 43);
}

#[test]
fn malformed_and_misdirected_frames_are_dropped_for_their_reason() {
    let mut router = Bench::new(&acquainted());
    let good = written(&from_alice("192.0.2.7"), &[0; 40]);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    router.refuses(0, with(5, 0x77), "not_for_us");
    router.refuses(0, with(14, 0x55), "bad_version");
    router.refuses(0, with(14, 0x44), "bad_header_length");
    router.refuses(0, with(17, 200), "bad_length");
    router.refuses(0, with(24, good[24] ^ 1), "bad_checksum");
    router.refuses(0, with(12, 0x88), "unknown_ethertype");
    router.refuses(0, good[..30].to_vec(), "bad_length");
    let mut tagged = good[..12].to_vec();
    tagged.extend([0x81, 0, 0, 5]);
    tagged.extend(&good[12..]);
    router.refuses(0, tagged.clone(), "vlan_tagged");
    // Catches: a tag of VLAN 0, which carries a priority only, taken for another network.
    tagged[14..16].copy_from_slice(&[0xe0, 0]);
    let (port, passed) = router.send_one(0, tagged.clone());
    assert_eq!((port, link(&passed).2), (1, EtherType::IPV4));
    assert_eq!((passed.len(), &passed[34..]), (good.len(), &good[34..]));
    let both = [&tagged[..16], &[0x81, 0, 0, 5], &good[12..]].concat();
    router.refuses(0, both, "vlan_tagged");
    router.refuses(0, tagged[..17].to_vec(), "vlan_tagged");
    router.refuses(7, good, "not_for_us");
}

#[test]
fn impossible_addresses_are_dropped() {
    let cases = [
        ("0.1.2.3", "192.0.2.7", "martian_source"),
        ("127.0.0.1", "192.0.2.7", "martian_source"),
        ("224.0.0.1", "192.0.2.7", "martian_source"),
        ("250.0.0.1", "192.0.2.7", "martian_source"),
        ("10.0.1.1", "192.0.2.7", "martian_source"),
        // Catches: a broadcast address as a source.
        ("10.0.0.255", "192.0.2.7", "martian_source"),
        ("10.0.1.255", "192.0.2.7", "martian_source"),
        ("169.254.0.9", "192.0.2.7", "link_local"),
        ("10.0.0.9", "169.254.0.9", "link_local"),
        ("10.0.0.9", "0.0.0.1", "martian_destination"),
        ("10.0.0.9", "127.0.0.1", "martian_destination"),
        ("10.0.0.9", "250.0.0.1", "martian_destination"),
        ("10.0.0.9", "239.1.2.3", "multicast"),
        ("10.0.0.9", "255.255.255.255", "broadcast"),
        ("10.0.0.9", "10.0.1.255", "broadcast"),
        ("::", "2001:db8:1::9", "martian_source"),
        ("::1", "2001:db8:1::9", "martian_source"),
        ("ff02::9", "2001:db8:1::9", "martian_source"),
        ("::ffff:10.0.0.9", "2001:db8:1::9", "martian_source"),
        ("2001:db8::9", "::", "martian_destination"),
        ("2001:db8::9", "::1", "martian_destination"),
        ("2001:db8::9", "::ffff:10.0.1.9", "martian_destination"),
        ("2001:db8::9", "fe80::9", "link_local"),
        ("2001:db8::9", "ff0e::9", "multicast"),
    ];
    let mut router = Bench::new(&acquainted());
    for (from, to, reason) in cases {
        let frame = written(&datagram(from, to).macs(ALICE, P0), b"");
        router.refuses(0, frame, reason);
    }
}

#[test]
fn a_unicast_packet_in_a_broadcast_frame_is_not_forwarded() {
    let mut router = Bench::new(&acquainted());
    let everybody = from_alice("192.0.2.7").macs(ALICE, MacAddr::BROADCAST);
    router.refuses(0, written(&everybody, b""), "link_broadcast");
}

// promise: 10.15
#[test]
fn every_frame_is_counted_once() {
    let mut router = Bench::new(&acquainted());
    router.send(0, written(&from_alice("192.0.2.7"), b""));
    router.send(0, written(&from_alice("203.0.113.1"), b""));
    router.send(0, written(&from_alice("10.0.1.77"), b""));
    router.send(
        0,
        written(
            &Frame::echo_request(ip("10.0.0.9"), ip("10.0.0.1"), 1, 1).macs(ALICE, P0),
            b"",
        ),
    );
    assert_eq!(router.metric("packets_received_total", None), 4);
    assert_eq!(router.metric("packets_forwarded_total", None), 1);
    assert_eq!(router.metric("packets_dropped_total", None), 1);
    assert_eq!(router.metric("packets_waited_total", None), 1);
    assert_eq!(router.metric("packets_consumed_total", None), 1);
}

#[test]
fn options_are_forwarded_and_record_route_is_filled_in() {
    let mut router = Bench::new(&acquainted());
    let options = [7, 7, 4, 0, 0, 0, 0, 1];
    let (_, frame) = router.send_one(0, with_options(&from_alice("192.0.2.7"), &options, b"data"));
    let packet = ipv4(&frame);
    assert_eq!(&packet.header()[20..], [7, 7, 8, 10, 0, 1, 1, 1]);
    assert_eq!(&packet.payload()[8..], b"data");
    assert_eq!(packet.ttl(), 63);
}

#[test]
fn source_routes_are_refused_unless_the_operator_says_otherwise() {
    let options = [131, 7, 4, 10, 0, 1, 9, 0];
    let frame = with_options(&from_alice("192.0.2.7"), &options, b"");
    let mut router = Bench::new(&acquainted());
    // Catches: a source route dropped in silence (RFC 1812 section 5.2.7.1).
    let (port, error) = router.send_one(0, frame.clone());
    let error = icmp(&error);
    assert_eq!((port, error.kind, error.code), (0, 3, 5));
    assert_eq!(router.dropped("source_routed"), 1);
    let mut config = acquainted();
    config["source_routed"] = "forward".into();
    let mut router = Bench::new(&config);
    let (_, frame) = router.send_one(0, frame);
    assert_eq!(&ipv4(&frame).header()[20..], options);
}

/// The frame with IPv4 options put in.
pub(super) fn with_options(frame: &Frame<'_>, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = written(frame, payload);
    let payload = bytes.split_off(34);
    bytes.extend(options);
    bytes.extend(payload);
    let total = (bytes.len() - 14) as u16;
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    packet.set_version_and_header_len(20 + options.len());
    packet.set_total_len(total);
    packet.fill_checksum();
    bytes
}
