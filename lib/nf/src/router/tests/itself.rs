use super::*;
use nfluid_wire::ChecksumState;
use nfluid_wire::TcpFlags;
use nfluid_wire::ipv6::FragmentInfo;
use nfluid_wire::tcp::TcpPacket;

#[test]
fn every_address_answers_echo_requests() {
    let mut router = Bench::new(&acquainted());
    for own in ["10.0.0.1", "10.0.1.1", "2001:db8::1", "2001:db8:1::1"] {
        let from = if ip(own).is_ipv4() {
            "10.0.0.9"
        } else {
            "2001:db8::9"
        };
        let request = Frame::echo_request(ip(from), ip(own), 77, 5)
            .macs(ALICE, P0)
            .ttl(1);
        let (port, frame) = router.send_one(0, written(&request, b"anybody home?"));
        assert_eq!((port, link(&frame).0), (0, ALICE));
        let reply = icmp(&frame);
        assert_eq!((reply.from, reply.to), (ip(own), ip(from)));
        assert_eq!(
            (reply.kind, reply.code),
            (if ip(own).is_ipv4() { 0 } else { 129 }, 0)
        );
        assert_eq!(reply.rest, [0, 77, 0, 5]);
        assert_eq!(reply.quoted, b"anybody home?");
    }
    assert_eq!(router.metric("packets_made_total", Some("echo_reply")), 4);
}

#[test]
fn the_link_local_address_answers_on_its_link_only() {
    let mut config = acquainted();
    config["neighbours"][0] = json!({"port": "p0", "address": "fe80::9", "mac": ALICE.to_string()});
    let mut router = Bench::new(&config);
    let request = |own| {
        written(
            &Frame::echo_request(ip("fe80::9"), ip(own), 1, 1).macs(ALICE, P0),
            b"",
        )
    };
    let reply = icmp(&router.send_one(0, request("fe80::ff:fe00:0")).1);
    assert_eq!(reply.from, ip("fe80::ff:fe00:0"));
    let (_, reply) = router.send_one(0, request("ff02::1"));
    assert_eq!(icmp(&reply).from, ip("fe80::ff:fe00:0"));
    router.refuses(0, request("fe80::ff:fe00:1"), "link_local");
}

#[test]
fn an_echo_request_from_afar_waits_for_the_way_back() {
    let mut router = Bench::new(&plain());
    let request = Frame::echo_request(ip("192.0.2.7"), ip("10.0.0.1"), 1, 1).macs(BOB, P1);
    let (port, question) = router.send_one(1, written(&request, b""));
    assert_eq!(
        (port, arp(&question).target_ip),
        (1, Ipv4Addr::new(10, 0, 1, 254))
    );
    let (_, reply) = router.send_one(1, arp_reply(GATEWAY, [10, 0, 1, 254]));
    assert_eq!(icmp(&reply).kind, 0);
}

#[test]
fn options_of_an_echo_request_are_not_repeated() {
    let mut router = Bench::new(&acquainted());
    let request = Frame::echo_request(ip("10.0.0.9"), ip("10.0.0.1"), 1, 1).macs(ALICE, P0);
    let request = super::forwarding::with_options(&request, &[1, 1, 1, 0], b"data");
    let (_, reply) = router.send_one(0, request);
    assert_eq!(ipv4(&reply).header_len(), 20);
    assert_eq!(icmp(&reply).quoted, b"data");
}

#[test]
fn the_router_runs_no_services_and_says_so() {
    let mut router = Bench::new(&acquainted());
    let (_, frame) = router.send_one(0, written(&from_alice("10.0.1.1"), b""));
    let error = icmp(&frame);
    assert_eq!((error.kind, error.code, error.from), (3, 3, ip("10.0.1.1")));
    let (_, frame) = router.send_one(0, written(&from_alice("2001:db8:1::1"), b""));
    let error = icmp(&frame);
    assert_eq!(
        (error.kind, error.code, error.from),
        (1, 4, ip("2001:db8:1::1"))
    );

    let unknown = Frame::ip(ip("10.0.0.9"), ip("10.0.0.1"), IpProtocol(200)).macs(ALICE, P0);
    let error = icmp(&router.send_one(0, written(&unknown, &[0; 20])).1);
    assert_eq!((error.kind, error.code), (3, 2));
    let unknown = Frame::ip(ip("2001:db8::9"), ip("2001:db8::1"), IpProtocol(200)).macs(ALICE, P0);
    let error = icmp(&router.send_one(0, written(&unknown, &[0; 20])).1);
    assert_eq!((error.kind, error.code, error.rest), (4, 1, [0, 0, 0, 6]));
    let mut behind = written(
        &Frame::ip(ip("2001:db8::9"), ip("2001:db8::1"), IpProtocol::IPV6_OPTS).macs(ALICE, P0),
        &[0; 20],
    );
    behind[54] = 200;
    let error = icmp(&router.send_one(0, behind).1);
    assert_eq!((error.kind, error.code, error.rest), (4, 1, [0, 0, 0, 40]));
}

#[test]
fn connections_to_the_router_are_reset() {
    let mut router = Bench::new(&acquainted());
    for (from, own) in [("10.0.0.9", "10.0.0.1"), ("2001:db8::9", "2001:db8::1")] {
        let segment =
            |flags| Frame::tcp((ip(from), 999).into(), (ip(own), 22).into(), flags).macs(ALICE, P0);
        let (_, frame) =
            router.send_one(0, written(&segment(TcpFlags::SYN).sequence(100, 0), b"abc"));
        let reset = segment_of(&frame);
        assert_eq!(reset.flags(), TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0));
        assert_eq!((reset.seq(), reset.ack()), (0, 104));
        assert_eq!((reset.src_port(), reset.dst_port()), (22, 999));
        let (_, frame) =
            router.send_one(0, written(&segment(TcpFlags::ACK).sequence(100, 555), b""));
        let reset = segment_of(&frame);
        assert_eq!((reset.flags(), reset.seq()), (TcpFlags::RST, 555));
        router.refuses(0, written(&segment(TcpFlags::RST), b""), "local_unused");
    }
}

fn segment_of(frame: &[u8]) -> TcpPacket<&[u8]> {
    let (payload, pseudo) = if frame[14] >> 4 == 4 {
        let length = usize::from(ipv4(frame).total_len());
        (&frame[34..14 + length], ipv4(frame).pseudo_header())
    } else {
        let packet = ipv6(frame);
        let layer = packet.upper_layer().expect("no extensions");
        (
            &frame[54..],
            nfluid_wire::ipv6::pseudo_header(&packet, &layer),
        )
    };
    let segment = TcpPacket::new_checked(payload).expect("a segment");
    assert!(segment.verify_checksum(pseudo, ChecksumState::Complete));
    segment
}

#[test]
fn what_cannot_be_answered_is_dropped_for_its_reason() {
    let mut router = Bench::new(&acquainted());
    let request = Frame::echo_request(ip("10.0.0.9"), ip("10.0.0.1"), 1, 1).macs(ALICE, P0);
    let mut corrupt = written(&request, b"data");
    corrupt[43] ^= 1;
    router.refuses(0, corrupt, "local_malformed");
    let first = FragmentInfo {
        offset: 0,
        more: true,
        ident: 9,
    };
    router.refuses(
        0,
        written(&request.fragment(first), &[0; 16]),
        "local_fragment",
    );
    let reply = Frame::echo_reply(ip("10.0.0.9"), ip("10.0.0.1"), 1, 1).macs(ALICE, P0);
    router.refuses(0, written(&reply, b""), "local_unused");
    let request = Frame::echo_request(ip("2001:db8::9"), ip("2001:db8::1"), 1, 1).macs(ALICE, P0);
    router.refuses(
        0,
        written(&request.fragment(first), &[0; 16]),
        "local_fragment",
    );
}

/// Catches: an answer without the recorded route, or without the router's own address.
// promise: 10.28
#[test]
fn recorded_routes_and_times_go_back_with_the_answer() {
    let mut router = Bench::new(&acquainted());
    let request = Frame::echo_request(ip("10.0.0.9"), ip("10.0.0.1"), 1, 1).macs(ALICE, P0);
    let asked = [148, 4, 0, 0, 7, 11, 8, 10, 0, 0, 9, 0, 0, 0, 0, 0];
    let request = super::forwarding::with_options(&request, &asked, b"data");
    let (_, reply) = router.send_one(0, request);
    let expected = [1, 1, 1, 1, 7, 11, 12, 10, 0, 0, 9, 10, 0, 0, 1, 0];
    assert_eq!(ipv4(&reply).header()[20..], expected);
    let reply = icmp(&reply);
    assert_eq!((reply.kind, reply.quoted), (0, b"data".to_vec()));
}

/// Catches: a source route that leads on past the router, answered or dropped in silence.
// promise: 10.28
#[test]
fn the_router_is_no_hop_of_a_source_route() {
    let mut router = Bench::new(&acquainted());
    let request = Frame::echo_request(ip("10.0.0.9"), ip("10.0.0.1"), 1, 1).macs(ALICE, P0);
    let with = |options: &[u8]| super::forwarding::with_options(&request, options, b"");
    let error = icmp(&router.send_one(0, with(&[131, 7, 4, 10, 0, 1, 9, 0])).1);
    assert_eq!((error.kind, error.code), (3, 5));
    assert_eq!(router.dropped("source_routed"), 1);
    let done = icmp(&router.send_one(0, with(&[131, 7, 8, 10, 0, 1, 9, 0])).1);
    assert_eq!(done.kind, 0, "it ends here");
    let error = icmp(&router.send_one(0, with(&[7, 0, 0, 0])).1);
    assert_eq!((error.kind, error.code, error.rest[0]), (12, 0, 21));
    assert_eq!(router.dropped("bad_options"), 1);
}

/// An echo request to the router with a chain of extension headers, `first` being the first one's type.
fn extended(to: &str, first: u8, headers: &[u8]) -> Vec<u8> {
    let (from, to) = (ip("2001:db8::9"), ip(to));
    let mut request = written(
        &Frame::echo_request(from, to, 1, 1).macs(ALICE, P0),
        b"data",
    );
    let message = request.split_off(54);
    request.extend(headers);
    request.extend(&message);
    request[20] = first;
    let length = (request.len() - 54) as u16;
    request[18..20].copy_from_slice(&length.to_be_bytes());
    request
}

/// Catches: routing headers followed (RFC 5095), unknown options and misplaced headers not reported (RFC 8200 sections 4.1, 4.2, 4.4).
// promise: 10.28
#[test]
fn extension_headers_of_packets_to_the_router_are_looked_at() {
    const OPTIONS: u8 = 60;
    const ROUTING: u8 = 43;
    let own = "2001:db8::1";
    let option = |next: u8, kind: u8| [next, 0, 1, 0, kind, 2, 0, 0];
    let mut route = [58, 2, 0, 1].to_vec();
    route.extend([0; 20]);
    let unused = [58, 0, 0, 0, 0, 0, 0, 0];
    let misplaced = [option(0, 5), option(58, 5)].concat();
    // The type of the first header, the headers, what comes back: type, code, pointer.
    let cases = [
        (OPTIONS, &option(58, 5)[..], (129, 0, 0)),
        (0, &option(58, 0x1e), (129, 0, 0)),
        (OPTIONS, &option(58, 0x9e), (4, 2, 44)),
        (0, &option(58, 0xde), (4, 2, 44)),
        (OPTIONS, &[58, 0, 1, 0, 5, 9, 0, 0], (4, 0, 45)),
        (ROUTING, &route, (4, 0, 42)),
        (ROUTING, &unused, (129, 0, 0)),
        (OPTIONS, &misplaced, (4, 1, 40)),
        (OPTIONS, &[option(ROUTING, 5), unused].concat(), (129, 0, 0)),
    ];
    let mut router = Bench::new(&acquainted());
    for (first, headers, expected) in cases {
        let answer = icmp(&router.send_one(0, extended(own, first, headers)).1);
        let rest = if answer.kind == 129 {
            0
        } else {
            u32::from_be_bytes(answer.rest)
        };
        assert_eq!(
            (answer.kind, answer.code, rest),
            expected,
            "{first}: {headers:?}"
        );
    }
    router.refuses(0, extended(own, OPTIONS, &option(58, 0x5e)), "bad_options");
    // To a group: 10 reports even so, 11 does not.
    let all_nodes = |kind: u8| {
        let mut frame = extended("ff02::1", OPTIONS, &option(58, kind));
        frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        frame
    };
    let answer = icmp(&router.send_one(0, all_nodes(0x9e)).1);
    assert_eq!((answer.kind, answer.code, answer.from), (4, 2, ip(own)));
    router.refuses(0, all_nodes(0xde), "bad_options");
}

/// Catches: a router that does not answer for the anycast addresses of its networks (RFC 4291 section 2.6.1), or answers from them.
// promise: 10.28
#[test]
fn the_subnet_router_anycast_address_is_the_routers() {
    let mut config = acquainted();
    let addresses = ["10.0.1.1/24", "2001:db8:1::1/64", "2001:db8:2::/127"];
    let pair = "2001:db8:3::1/127";
    config["addresses"]["p1"] = json!([&addresses[..], &[pair]].concat());
    let mut router = Bench::new(&config);
    for (anycast, own) in [
        ("2001:db8::", "2001:db8::1"),
        ("2001:db8:1::", "2001:db8::1"),
    ] {
        let request = Frame::echo_request(ip("2001:db8::9"), ip(anycast), 1, 1).macs(ALICE, P0);
        let reply = icmp(&router.send_one(0, written(&request, b"")).1);
        assert_eq!((reply.kind, reply.from), (129, ip(own)), "{anycast}");
        let error = icmp(&router.send_one(0, written(&from_alice(anycast), b"")).1);
        assert_eq!((error.kind, error.code, error.from), (1, 4, ip(own)));
    }
    // The other address of a network of two is a neighbour's (RFC 6164): the router looks for it.
    let request = Frame::echo_request(ip("2001:db8::9"), ip("2001:db8:3::"), 1, 1).macs(ALICE, P0);
    let (port, asked) = router.send_one(0, written(&request, b""));
    assert_eq!((port, icmp(&asked).kind), (1, 135));
}
