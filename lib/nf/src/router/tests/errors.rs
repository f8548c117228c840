use super::*;
use nfluid_wire::ipv6::FragmentInfo;

#[test]
fn a_packet_at_the_end_of_its_life_is_reported_to_its_source() {
    let mut router = Bench::new(&acquainted());
    for ttl in [0, 1] {
        let expired = written(
            &from_alice("192.0.2.7").ttl(ttl).traffic_class(0x2e),
            &[7; 30],
        );
        let (port, frame) = router.send_one(0, expired.clone());
        assert_eq!((port, link(&frame)), (0, (ALICE, P0, EtherType::IPV4)));
        assert_eq!(ipv4(&frame).tos(), 0xc0 | 0x0e);
        let error = icmp(&frame);
        assert_eq!((error.kind, error.code, error.rest), (11, 0, [0; 4]));
        assert_eq!((error.from, error.to), (ip("10.0.0.1"), ip("10.0.0.9")));
        assert_eq!(error.quoted, expired[14..]);
    }
    assert_eq!(router.dropped("ttl_exceeded"), 2);

    let expired = written(&from_alice("2001:db8:5::7").ttl(1), &[7; 30]);
    let (port, frame) = router.send_one(0, expired.clone());
    let error = icmp(&frame);
    assert_eq!((port, error.kind, error.code), (0, 3, 0));
    assert_eq!(
        (error.from, error.to),
        (ip("2001:db8::1"), ip("2001:db8::9"))
    );
    assert_eq!(error.quoted, expired[14..]);
}

#[test]
fn an_error_quotes_as_much_as_every_host_can_take() {
    let mut router = Bench::new(&acquainted());
    let long = written(&from_alice("192.0.2.7").ttl(1), &[7; 1200]);
    let (_, frame) = router.send_one(0, long.clone());
    assert_eq!(ipv4(&frame).total_len(), 576);
    assert_eq!(icmp(&frame).quoted, long[14..14 + 576 - 28]);
    let long = written(&from_alice("2001:db8:5::7").ttl(1), &[7; 1400]);
    let (_, frame) = router.send_one(0, long);
    assert_eq!(frame.len(), 14 + 1280);
}

#[test]
fn without_a_route_the_source_is_notified() {
    let mut config = acquainted();
    config["routes"].as_array_mut().expect("a list").drain(..2);
    let mut router = Bench::new(&config);
    // Destination, type and code, reason.
    let cases = [
        ("192.0.2.7", (3, 0), "no_route"),
        ("198.51.100.7", (3, 1), "unreachable"),
        ("2001:db8:5::7", (1, 0), "no_route"),
        ("2001:db8:dead::7", (1, 6), "unreachable"),
    ];
    for (to, (kind, code), reason) in cases {
        let (port, frame) = router.send_one(0, written(&from_alice(to), b""));
        let error = icmp(&frame);
        assert_eq!((port, error.kind, error.code), (0, kind, code), "{to}");
        assert_eq!(
            router.dropped(reason) % 2,
            u64::from(to.contains('.')),
            "{to}"
        );
    }
    router.refuses(0, written(&from_alice("203.0.113.7"), b""), "blackhole");
}

#[test]
fn no_error_is_sent_about_what_must_not_be_answered() {
    let mut router = Bench::new(&acquainted());
    let alice = ip("10.0.0.9");
    let far = ip("192.0.2.7");
    let error = Frame::icmp(alice, far, 3, 1, [0; 4]).macs(ALICE, P0).ttl(1);
    router.refuses(0, written(&error, &[0; 28]), "ttl_exceeded");
    let later = Frame::ip(alice, far, IpProtocol::UDP)
        .macs(ALICE, P0)
        .ttl(1);
    let later = later.fragment(FragmentInfo {
        offset: 8,
        more: false,
        ident: 1,
    });
    router.refuses(0, written(&later, &[0; 28]), "ttl_exceeded");
    let unknown = written(
        &datagram("172.16.0.1", "192.0.2.7").macs(ALICE, P0).ttl(1),
        b"",
    );
    assert_eq!(
        router.send(0, unknown).len(),
        1,
        "the way back is the default route"
    );
    let error = Frame::icmp(ip("2001:db8::9"), ip("2001:db8:5::7"), 2, 0, [0; 4]);
    router.refuses(
        0,
        written(&error.macs(ALICE, P0).ttl(1), &[0; 48]),
        "ttl_exceeded",
    );

    let question = Frame::echo_request(alice, far, 1, 1).macs(ALICE, P0).ttl(1);
    assert_eq!(
        icmp(&router.send_one(0, written(&question, b"")).1).kind,
        11
    );
    let first = Frame::ip(alice, far, IpProtocol::UDP)
        .macs(ALICE, P0)
        .ttl(1);
    let first = first.fragment(FragmentInfo {
        offset: 0,
        more: true,
        ident: 1,
    });
    assert_eq!(
        icmp(&router.send_one(0, written(&first, &[0; 24])).1).kind,
        11
    );
}

#[test]
fn errors_are_limited_in_rate_per_port() {
    let mut config = acquainted();
    config["icmp_errors"] = json!({"per_second": 10, "burst": 5});
    let mut router = Bench::new(&config);
    let expired = written(&from_alice("192.0.2.7").ttl(1), b"");
    let errors = |router: &mut Bench| {
        (0..50)
            .map(|_| router.send(0, expired.clone()).len())
            .sum::<usize>()
    };
    assert_eq!(errors(&mut router), 5);
    assert_eq!(router.metric("icmp_errors_limited_total", None), 45);
    let other = written(&datagram("10.0.1.9", "192.0.2.7").macs(BOB, P1).ttl(1), b"");
    assert_eq!(
        router.send(1, other).len(),
        1,
        "another port has its own budget"
    );
    router.wait(300);
    assert_eq!(errors(&mut router), 3);
    assert_eq!(router.dropped("ttl_exceeded"), 101, "dropped all the same");
}

#[test]
fn the_source_of_an_error_is_the_address_on_the_way_back() {
    let mut config = acquainted();
    config["addresses"]["p0"] = json!(["172.16.0.1/24", "10.0.0.1/24", "2001:db8::1/64"]);
    let mut router = Bench::new(&config);
    let (_, frame) = router.send_one(0, written(&from_alice("192.0.2.7").ttl(1), b""));
    assert_eq!(icmp(&frame).from, ip("10.0.0.1"));
    // From a host behind bob's gateway, arriving on the wrong port: the answer leaves on p1.
    let stray = written(
        &datagram("192.0.2.1", "192.0.2.7").macs(ALICE, P0).ttl(1),
        b"",
    );
    let (port, frame) = router.send_one(0, stray);
    assert_eq!((port, icmp(&frame).from), (1, ip("10.0.1.1")));
}

#[test]
fn a_bad_option_is_pointed_out() {
    let mut router = Bench::new(&acquainted());
    let frame = super::forwarding::with_options(&from_alice("192.0.2.7"), &[1, 7, 200, 4], b"");
    let error = icmp(&router.send_one(0, frame).1);
    assert_eq!((error.kind, error.code, error.rest), (12, 0, [22, 0, 0, 0]));
    assert_eq!(router.dropped("bad_options"), 1);
}

#[test]
fn a_link_local_source_does_not_leave_its_link() {
    let mut router = Bench::new(&acquainted());
    let mut config = acquainted();
    config["neighbours"][0] = json!({"port": "p0", "address": "fe80::9", "mac": ALICE.to_string()});
    router.nf.reconfigure(&config, &ports(2)).expect("valid");
    let frame = written(&datagram("fe80::9", "2001:db8:1::9").macs(ALICE, P0), b"");
    let (port, frame) = router.send_one(0, frame);
    let error = icmp(&frame);
    assert_eq!((port, error.kind, error.code), (0, 1, 2));
    assert_eq!(error.from, ip("fe80::ff:fe00:0"));
}
