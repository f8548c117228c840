use super::*;
use nfluid_wire::ndp::{self, AdvertFlags, NdpRepr};

const ROUTER: &str = "fe80::ff:fe00:1";

fn nd_frame(from: (MacAddr, &str), to: (MacAddr, &str), message: &NdpRepr) -> Vec<u8> {
    let v6 = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let mut buffer = vec![0; 128];
    let length = build::ndp(
        &mut buffer,
        (from.0, to.0),
        (v6(from.1), v6(to.1)),
        &[],
        message,
    );
    buffer.truncate(length.expect("it fits"));
    buffer
}

fn message(frame: &[u8]) -> NdpRepr {
    icmp(frame);
    assert_eq!(ipv6(frame).hop_limit(), 255);
    NdpRepr::parse(ipv6(frame).payload()).expect("neighbour discovery")
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// Bob's advertisement to the router.
fn advert(mac: Option<MacAddr>, solicited: bool, override_entry: bool) -> Vec<u8> {
    let message = NdpRepr::Advert {
        target: v6("2001:db8:1::9"),
        flags: AdvertFlags {
            router: false,
            solicited,
            override_entry,
        },
        target_link_layer: mac,
    };
    nd_frame((BOB, "2001:db8:1::9"), (P1, ROUTER), &message)
}

/// A router that knows bob.
fn knowing_bob() -> Bench {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("2001:db8:1::9"), b""));
    router.send(1, advert(Some(BOB), true, true));
    assert_eq!(router.state_of("2001:db8:1::9"), "reachable");
    router
}

fn way_to_bob(router: &mut Bench) -> MacAddr {
    link(
        &router
            .send_one(0, written(&from_alice("2001:db8:1::9"), b""))
            .1,
    )
    .0
}

#[test]
fn the_first_packet_solicits_waits_and_leaves_with_the_advertisement() {
    let mut router = Bench::new(&plain());
    let (port, frame) = router.send_one(0, written(&from_alice("2001:db8:1::9"), b"first"));
    assert_eq!(port, 1);
    assert_eq!(link(&frame).0, MacAddr([0x33, 0x33, 0xff, 0, 0, 9]));
    assert_eq!(ipv6(&frame).src(), v6(ROUTER));
    assert_eq!(ipv6(&frame).dst(), v6("ff02::1:ff00:9"));
    let asked = NdpRepr::Solicit {
        target: v6("2001:db8:1::9"),
        source_link_layer: Some(P1),
    };
    assert_eq!(message(&frame), asked);

    let (port, frame) = router.send_one(1, advert(Some(BOB), true, true));
    assert_eq!((port, link(&frame)), (1, (BOB, P1, EtherType::IPV6)));
    assert_eq!(&ipv6(&frame).payload()[8..], b"first");
    assert_eq!(way_to_bob(&mut router), BOB);
}

#[test]
fn silence_makes_the_address_unreachable() {
    let mut router = Bench::new(&acquainted());
    router.send(0, written(&from_alice("2001:db8:1::77"), b"lost"));
    let sent = router.wait(3_100);
    assert_eq!(sent.len(), 3);
    let error = icmp(&sent[2].1);
    assert_eq!((sent[2].0, error.kind, error.code), (0, 1, 3));
    assert_eq!(
        (error.from, error.to),
        (ip("2001:db8::1"), ip("2001:db8::9"))
    );
}

#[test]
fn advertisements_follow_the_rules_of_rfc_4861_section_7_2_5() {
    let other = MacAddr([2, 0xb, 0, 0, 0, 10]);
    // (announced address, solicited, override) -> (state, address believed)
    let cases = [
        (Some(BOB), true, false, "reachable", BOB),
        (Some(BOB), false, true, "reachable", BOB),
        (None, true, true, "reachable", BOB),
        (Some(other), true, false, "stale", BOB),
        (Some(other), false, false, "stale", BOB),
        (Some(other), true, true, "reachable", other),
        (Some(other), false, true, "stale", other),
    ];
    for (mac, solicited, override_entry, state, believed) in cases {
        let mut router = knowing_bob();
        router.send(1, advert(mac, solicited, override_entry));
        let case = (mac, solicited, override_entry);
        assert_eq!(router.state_of("2001:db8:1::9"), state, "{case:?}");
        assert_eq!(way_to_bob(&mut router), believed, "{case:?}");
    }
}

#[test]
fn an_advertisement_that_nobody_asked_for_adds_nothing() {
    let mut router = Bench::new(&plain());
    assert!(router.send(1, advert(Some(BOB), true, true)).is_empty());
    assert_eq!(router.state_of("2001:db8:1::9"), "none");
}

#[test]
fn an_unsolicited_answer_to_a_pending_question_is_stale() {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("2001:db8:1::9"), b""));
    assert_eq!(router.send(1, advert(Some(BOB), false, true)).len(), 1);
    assert_eq!(router.state_of("2001:db8:1::9"), "stale");
}

#[test]
fn solicitations_for_the_routers_addresses_are_answered() {
    for target in ["2001:db8:1::1", ROUTER] {
        let mut router = Bench::new(&plain());
        let question = NdpRepr::Solicit {
            target: v6(target),
            source_link_layer: Some(BOB),
        };
        let group = ndp::solicited_node(v6(target));
        let to = (ndp::multicast_mac(group), &*group.to_string());
        let (port, answer) = router.send_one(1, nd_frame((BOB, "2001:db8:1::9"), to, &question));
        assert_eq!((port, link(&answer).0), (1, BOB));
        assert_eq!(
            (ipv6(&answer).src(), ipv6(&answer).dst()),
            (v6(target), v6("2001:db8:1::9"))
        );
        let flags = AdvertFlags {
            router: true,
            solicited: true,
            override_entry: true,
        };
        let expected = NdpRepr::Advert {
            target: v6(target),
            flags,
            target_link_layer: Some(P1),
        };
        assert_eq!(message(&answer), expected);
        assert_eq!(router.state_of("2001:db8:1::9"), "stale");
        assert_eq!(way_to_bob(&mut router), BOB);
    }
}

#[test]
fn a_host_that_tests_its_address_is_answered_to_all_nodes() {
    let mut router = Bench::new(&plain());
    let question = NdpRepr::Solicit {
        target: v6("2001:db8:1::1"),
        source_link_layer: None,
    };
    let to = (MacAddr([0x33, 0x33, 0xff, 0, 0, 1]), "ff02::1:ff00:1");
    let (_, answer) = router.send_one(1, nd_frame((BOB, "::"), to, &question));
    assert_eq!(ipv6(&answer).dst(), v6("ff02::1"));
    assert!(matches!(message(&answer), NdpRepr::Advert { flags, .. } if !flags.solicited));
}

#[test]
fn what_did_not_come_from_the_link_is_not_believed() {
    let mut router = knowing_bob();
    let mut forged = advert(Some(ALICE), true, true);
    forged[21] = 254;
    router.refuses(1, forged, "bad_neighbour_message");
    let mut corrupt = advert(Some(ALICE), true, true);
    corrupt[60] ^= 1;
    router.refuses(1, corrupt, "bad_neighbour_message");
    router.refuses(
        1,
        advert(Some(MacAddr::BROADCAST), true, true),
        "bad_neighbour_message",
    );
    assert_eq!(way_to_bob(&mut router), BOB);
}

#[test]
fn a_link_local_gateway_is_used_on_its_port() {
    let mut config = plain();
    config["routes"][1] = json!({"to": "::/0", "via": "fe80::99", "port": "p1"});
    let mut router = Bench::new(&config);
    let (port, question) = router.send_one(0, written(&from_alice("2001:db8:5::1"), b""));
    assert_eq!(port, 1);
    assert!(
        matches!(message(&question), NdpRepr::Solicit { target, .. } if target == v6("fe80::99"))
    );
    let flags = AdvertFlags {
        router: true,
        solicited: true,
        override_entry: true,
    };
    let answer = NdpRepr::Advert {
        target: v6("fe80::99"),
        flags,
        target_link_layer: Some(GATEWAY),
    };
    router.send_one(1, nd_frame((GATEWAY, "fe80::99"), (P1, ROUTER), &answer));
    let (_, frame) = router.send_one(0, written(&from_alice("2001:db8:5::2"), b""));
    assert_eq!(link(&frame).0, GATEWAY);
}

#[test]
fn a_neighbour_in_use_is_probed_alone() {
    let mut router = knowing_bob();
    router.wait(46_000);
    way_to_bob(&mut router);
    let probes = router.wait(5_200);
    assert_eq!(probes.len(), 1);
    assert_eq!(link(&probes[0].1).0, BOB);
    assert_eq!(ipv6(&probes[0].1).dst(), v6("2001:db8:1::9"));
    router.send(1, advert(Some(BOB), true, false));
    assert_eq!(router.state_of("2001:db8:1::9"), "reachable");
}

/// Catches: a router that does not answer for the anycast address of a network, or an answer that takes the address
/// from others (section 7.2.7).
#[test]
fn an_anycast_address_is_answered_for_without_override() {
    let mut router = Bench::new(&plain());
    let question = NdpRepr::Solicit {
        target: v6("2001:db8:1::"),
        source_link_layer: Some(BOB),
    };
    let to = (MacAddr([0x33, 0x33, 0xff, 0, 0, 0]), "ff02::1:ff00:0");
    let (_, answer) = router.send_one(1, nd_frame((BOB, "2001:db8:1::9"), to, &question));
    assert_eq!(ipv6(&answer).src(), v6(ROUTER));
    let NdpRepr::Advert { target, flags, .. } = message(&answer) else {
        panic!("an advertisement");
    };
    assert_eq!((target, flags.override_entry), (v6("2001:db8:1::"), false));
}
