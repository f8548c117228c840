//! ICMP redirects (RFC 1812 section 5.2.7.2).

use super::*;

/// A second router on alice's link.
const NEARER: MacAddr = MacAddr([2, 0xa, 0, 0, 0, 254]);

/// As [`acquainted`]; 192.0.2.0/24 is behind a router on alice's link, and p0 has a second network there.
fn one_armed() -> Value {
    let mut config = acquainted();
    config["addresses"]["p0"] = json!(["10.0.0.1/24", "10.9.0.1/24", "2001:db8::1/64"]);
    let routes = config["routes"].as_array_mut().expect("a list");
    routes.push(json!({"to": "192.0.2.0/24", "via": "10.0.0.254"}));
    let neighbours = config["neighbours"].as_array_mut().expect("a list");
    for (address, mac) in [
        ("10.0.0.254", NEARER),
        ("10.0.0.8", BOB),
        ("10.9.0.9", ALICE),
    ] {
        neighbours.push(json!({"port": "p0", "address": address, "mac": mac.to_string()}));
    }
    config
}

/// The packet that went on, and the redirect if there is one; panics if anything else left.
fn sent(router: &mut Bench, frame: Vec<u8>) -> Option<Vec<u8>> {
    let mut sent = router.send(0, frame.clone());
    let (port, on) = sent.pop().expect("the packet is forwarded");
    assert_eq!((port, ipv4(&on).dst()), (0, ipv4(&frame).dst()));
    assert_eq!(ipv4(&on).ttl(), ipv4(&frame).ttl() - 1);
    assert!(sent.len() <= 1);
    sent.pop().map(|(port, redirect)| {
        assert_eq!(port, 0);
        redirect
    })
}

// promise: 10.43
#[test]
fn a_host_is_notified_of_a_nearer_router_and_its_packet_goes_on() {
    let mut router = Bench::new(&one_armed());
    // By another router, and a destination on the own link.
    for (to, gateway) in [("192.0.2.7", [10, 0, 0, 254]), ("10.0.0.8", [10, 0, 0, 8])] {
        let packet = written(&from_alice(to), &[7; 30]);
        let frame = sent(&mut router, packet.clone()).expect("a redirect");
        assert_eq!(link(&frame), (ALICE, P0, EtherType::IPV4));
        let redirect = icmp(&frame);
        assert_eq!(
            (redirect.kind, redirect.code, redirect.rest),
            (5, 1, gateway)
        );
        assert_eq!(
            (redirect.from, redirect.to),
            (ip("10.0.0.1"), ip("10.0.0.9"))
        );
        assert_eq!(redirect.quoted, packet[14..], "as it arrived");
    }
    assert_eq!(router.metric("packets_made_total", Some("redirect")), 2);
    assert_eq!(router.metric("packets_forwarded_total", None), 2);
}

/// Catches: hosts sent to routers that they do not reach, and errors about errors.
// promise: 10.43
#[test]
fn nobody_else_is_redirected() {
    let mut router = Bench::new(&one_armed());
    let to = |from: &str, to: &str| Frame::udp((ip(from), 1000).into(), (ip(to), 53).into());
    let alice = |frame: Frame<'static>| written(&frame.macs(ALICE, P0), b"data");
    let silent = [
        (
            "the source is in another network",
            alice(to("10.9.0.9", "192.0.2.7")),
        ),
        (
            "the source is behind a router",
            alice(to("172.16.0.9", "192.0.2.7")),
        ),
        ("an ICMP error", {
            let error = Frame::icmp(ip("10.0.0.9"), ip("192.0.2.7"), 3, 3, [0; 4]);
            alice(error)
        }),
        ("a later fragment", {
            let mut frame = alice(to("10.0.0.9", "192.0.2.7"));
            let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
            packet.set_fragmentation(false, false, 64);
            packet.fill_checksum();
            frame
        }),
    ];
    for (why, frame) in silent {
        assert_eq!(sent(&mut router, frame), None, "{why}");
    }
    let (port, _) = router.send_one(0, written(&from_alice("198.18.0.7"), b"data"));
    assert_eq!(port, 1, "another port");
    let mut off = one_armed();
    off["redirects"] = json!(false);
    let mut router = Bench::new(&off);
    for frame in [
        written(&from_alice("192.0.2.7"), b""),
        with_option(RECORD_ROUTE),
    ] {
        assert_eq!(sent(&mut router, frame), None, "switched off");
    }
}

/// A packet of alice's with an option of this type that has room for an address.
fn with_option(kind: u8) -> Vec<u8> {
    let mut frame = written(&from_alice("192.0.2.7"), &[7; 30]);
    // Type, length, pointer, an address, end of list.
    frame.splice(34..34, [kind, 7, 4, 192, 0, 2, 1, 0]);
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    let length = packet.total_len() + 8;
    packet.set_version_and_header_len(28);
    packet.set_total_len(length);
    packet.fill_checksum();
    frame
}

const LOOSE_SOURCE_ROUTE: u8 = 131;
const RECORD_ROUTE: u8 = 7;

// promise: 10.43
#[test]
fn a_source_routed_packet_is_not_redirected() {
    let mut config = one_armed();
    config["source_routed"] = json!("forward");
    let mut router = Bench::new(&config);
    assert_eq!(sent(&mut router, with_option(LOOSE_SOURCE_ROUTE)), None);
    assert!(sent(&mut router, with_option(RECORD_ROUTE)).is_some());
}

/// Catches: a redirect for each packet of a host that takes none, and packets that all take the slow path for it.
// promise: 10.43
#[test]
fn redirects_are_limited_by_a_rate() {
    let mut router = Bench::new(&one_armed());
    let packet = || written(&from_alice("192.0.2.7"), b"");
    let redirects = |router: &Bench| router.metric("packets_made_total", Some("redirect"));
    for _ in 0..50 {
        router.send(0, packet());
    }
    assert_eq!(redirects(&router), 10);
    router.wait(1_000);
    let batch: Vec<Sent> = (0..64).map(|_| (0, packet())).collect();
    let sent = run(&mut router.nf, router.now, &batch);
    assert_eq!((sent.len(), redirects(&router)), (65, 11), "one of a batch");
    assert_eq!(router.metric("packets_forwarded_total", None), 50 + 64);
}
