use super::*;

const BOB_IP: [u8; 4] = [10, 0, 1, 9];

#[test]
fn the_first_packet_asks_waits_and_leaves_with_the_answer() {
    let mut router = Bench::new(&plain());
    let (port, question) = router.send_one(0, written(&from_alice("10.0.1.9").ttl(9), b"first"));
    assert_eq!(port, 1);
    assert_eq!(link(&question), (MacAddr::BROADCAST, P1, EtherType::ARP));
    let asked = ArpRepr::request(P1, [10, 0, 1, 1].into(), BOB_IP.into());
    assert_eq!(arp(&question), asked);
    assert_eq!(router.state_of("10.0.1.9"), "incomplete");
    assert!(router.nf.has_timers(), "the question is asked again");

    let (port, frame) = router.send_one(1, arp_reply(BOB, BOB_IP));
    assert_eq!((port, link(&frame)), (1, (BOB, P1, EtherType::IPV4)));
    assert_eq!(ipv4(&frame).ttl(), 8);
    assert_eq!(&ipv4(&frame).payload()[8..], b"first");
    assert_eq!(router.state_of("10.0.1.9"), "reachable");

    let (_, frame) = router.send_one(0, written(&from_alice("10.0.1.9"), b"second"));
    assert_eq!(link(&frame).0, BOB);
}

#[test]
fn three_packets_wait_and_a_fourth_takes_the_place_of_the_first() {
    let mut router = Bench::new(&plain());
    for number in 1..=4u8 {
        router.send(0, written(&from_alice("10.0.1.9"), &[number]));
    }
    let sent = router.send(1, arp_reply(BOB, BOB_IP));
    let numbers: Vec<u8> = sent
        .iter()
        .map(|(_, frame)| ipv4(frame).payload()[8])
        .collect();
    assert_eq!(numbers, [2, 3, 4]);
    assert_eq!(router.metric("waiting_lost_total", None), 1);
    assert_eq!(router.metric("packets_waiting", None), 0);
}

#[test]
fn packets_to_one_neighbour_share_one_question() {
    let mut router = Bench::new(&plain());
    assert_eq!(
        router.send(0, written(&from_alice("192.0.2.1"), b"")).len(),
        1
    );
    assert_eq!(
        router.send(0, written(&from_alice("192.0.2.2"), b"")).len(),
        0
    );
    assert_eq!(router.send(1, arp_reply(GATEWAY, [10, 0, 1, 254])).len(), 2);
    let (_, frame) = router.send_one(0, written(&from_alice("192.0.2.3"), b""));
    assert_eq!(link(&frame).0, GATEWAY);
}

#[test]
fn three_questions_without_an_answer_make_the_host_unreachable() {
    let mut router = Bench::new(&acquainted());
    let lost = written(&from_alice("10.0.1.77"), b"lost");
    assert_eq!(link(&router.send_one(0, lost).1).2, EtherType::ARP);
    let sent = router.wait(2900);
    assert_eq!(sent.len(), 2, "two more questions");
    assert!(
        sent.iter()
            .all(|(port, frame)| *port == 1 && arp(frame).target_ip == Ipv4Addr::new(10, 0, 1, 77))
    );
    let sent = router.wait(200);
    assert_eq!(sent.len(), 1);
    let error = icmp(&sent[0].1);
    assert_eq!((sent[0].0, error.kind, error.code), (0, 3, 1));
    assert_eq!((error.from, error.to), (ip("10.0.0.1"), ip("10.0.0.9")));
    assert_eq!(&error.quoted[28..], b"lost");
    assert_eq!(router.state_of("10.0.1.77"), "none");
}

#[test]
fn a_neighbour_in_use_is_probed_and_kept_if_it_answers() {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, BOB_IP));
    assert!(router.wait(46_000).is_empty());
    assert_eq!(router.state_of("10.0.1.9"), "stale");
    router.send_one(0, written(&from_alice("10.0.1.9"), b"still forwarded"));
    assert!(router.wait(200).is_empty());
    assert_eq!(router.state_of("10.0.1.9"), "delay");
    let probes = router.wait(5_000);
    assert_eq!(probes.len(), 1);
    assert_eq!(
        link(&probes[0].1).0,
        BOB,
        "a probe goes to the neighbour alone"
    );
    router.send(1, arp_reply(BOB, BOB_IP));
    assert_eq!(router.state_of("10.0.1.9"), "reachable");
}

#[test]
fn a_neighbour_in_use_that_does_not_answer_is_forgotten() {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, BOB_IP));
    router.wait(46_000);
    router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(router.wait(9_000).len(), 3);
    assert_eq!(router.state_of("10.0.1.9"), "none");
    let (_, question) = router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(link(&question).0, MacAddr::BROADCAST);
}

#[test]
fn a_neighbour_out_of_use_is_forgotten_in_time() {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, BOB_IP));
    router.wait(660_000);
    assert_eq!(router.state_of("10.0.1.9"), "none");
    assert_eq!(router.metric("next_hops", None), 9, "its hop is gone too");
}

// promise: 10.24
#[test]
fn an_idle_router_sleeps_until_a_neighbour_needs_something() {
    let mut router = Bench::new(&plain());
    assert!(!router.nf.has_timers());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.tick();
    assert_eq!(router.nf.next_tick().since(router.now), Nanos::from_secs(1));
    router.send(1, arp_reply(BOB, BOB_IP));
    let mut ticks = 0;
    while router.nf.has_timers() {
        assert!(
            router.nf.next_tick() > router.now,
            "it is not woken for nothing"
        );
        router.now = router.nf.next_tick();
        assert!(router.tick().is_empty(), "nobody uses it: nothing is asked");
        ticks += 1;
    }
    assert_eq!((ticks, router.state_of("10.0.1.9").as_str()), (2, "none"));
}

#[test]
fn questions_for_the_routers_addresses_are_answered() {
    let mut router = Bench::new(&plain());
    let question = ArpRepr::request(ALICE, [10, 0, 0, 9].into(), [10, 0, 0, 1].into());
    let (port, answer) = router.send_one(0, arp_frame(&question));
    assert_eq!((port, link(&answer).0), (0, ALICE));
    assert_eq!(arp(&answer), question.reply_from(P0));
    assert_eq!(router.state_of("10.0.0.9"), "stale");
    let (_, frame) = router.send_one(
        1,
        written(&datagram("192.0.2.1", "10.0.0.9").macs(BOB, P1), b""),
    );
    assert_eq!(link(&frame).0, ALICE, "learned from the question");

    let probe = ArpRepr::request(ALICE, Ipv4Addr::UNSPECIFIED, [10, 0, 0, 1].into());
    assert_eq!(arp(&router.send_one(0, arp_frame(&probe)).1).sender_mac, P0);
    let other = ArpRepr::request(ALICE, [10, 0, 0, 9].into(), [10, 0, 0, 2].into());
    assert!(router.send(0, arp_frame(&other)).is_empty());
    let wrong_link = ArpRepr::request(ALICE, [10, 0, 0, 9].into(), [10, 0, 1, 1].into());
    assert!(router.send(0, arp_frame(&wrong_link)).is_empty());
}

#[test]
fn an_announcement_changes_what_is_known_and_adds_nothing() {
    let mut router = Bench::new(&plain());
    let moved = MacAddr([2, 0xb, 0, 0, 0, 10]);
    let announcement = arp_frame(&ArpRepr::request(moved, BOB_IP.into(), BOB_IP.into()));
    assert!(router.send(1, announcement.clone()).is_empty());
    assert_eq!(router.state_of("10.0.1.9"), "none");

    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, BOB_IP));
    router.send(1, announcement);
    assert_eq!(router.state_of("10.0.1.9"), "stale");
    let (_, frame) = router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(link(&frame).0, moved);
}

#[test]
fn an_answer_that_nobody_asked_for_adds_nothing() {
    let mut router = Bench::new(&plain());
    assert!(router.send(1, arp_reply(BOB, BOB_IP)).is_empty());
    assert_eq!(router.state_of("10.0.1.9"), "none");
}

#[test]
fn configured_neighbours_cannot_be_changed_from_the_link() {
    let mut router = Bench::new(&acquainted());
    let thief = MacAddr([2, 0xb, 0, 0, 0, 66]);
    router.send(1, arp_reply(thief, BOB_IP));
    router.send(
        1,
        arp_frame(&ArpRepr::request(
            thief,
            BOB_IP.into(),
            [10, 0, 1, 1].into(),
        )),
    );
    let (_, frame) = router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(link(&frame).0, BOB);
}

#[test]
fn somebody_with_the_routers_address_is_counted() {
    let mut router = Bench::new(&plain());
    let claim = ArpRepr::request(BOB, [10, 0, 1, 1].into(), [10, 0, 1, 1].into());
    assert!(router.send(1, arp_frame(&claim)).is_empty());
    assert_eq!(router.metric("address_conflicts_total", None), 1);
}

#[test]
fn implausible_arp_is_dropped() {
    let mut router = Bench::new(&plain());
    let mut packet = ArpRepr::request(MacAddr::BROADCAST, BOB_IP.into(), [10, 0, 1, 1].into());
    router.refuses(1, arp_frame(&packet), "bad_arp");
    packet.sender_mac = BOB;
    packet.sender_ip = [192, 0, 2, 1].into();
    router.refuses(1, arp_frame(&packet), "bad_arp");
    packet.sender_ip = [10, 0, 1, 255].into();
    router.refuses(1, arp_frame(&packet), "bad_arp");
    packet.sender_ip = BOB_IP.into();
    packet.target_mac = P1;
    packet.operation = Operation(9);
    router.refuses(1, arp_frame(&packet), "bad_arp");
    router.refuses(1, arp_frame(&packet)[..40].to_vec(), "bad_arp");
}

/// Small tables: eight entries per port, two of them for questions, two for what is unconfirmed.
fn cramped() -> Value {
    let mut config = plain();
    config["neighbour_table"] = json!({"entries_per_port": 8});
    config
}

// promise: 10.14
#[test]
fn a_scan_of_the_network_evicts_no_reachable_neighbour() {
    let mut router = Bench::new(&cramped());
    for host in 9..15 {
        router.send(0, written(&from_alice(&std::format!("10.0.1.{host}")), b""));
        router.send(
            1,
            arp_reply(MacAddr([2, 0xb, 0, 0, 0, host]), [10, 0, 1, host]),
        );
    }
    for host in 100..200 {
        router.send(
            0,
            written(&from_alice(&std::format!("10.0.1.{host}")), b"scan"),
        );
    }
    for host in 9..15 {
        assert_eq!(router.state_of(&std::format!("10.0.1.{host}")), "reachable");
    }
    assert_eq!(router.metric("neighbours", Some("incomplete")), 2);
    assert!(router.metric("packets_waiting", None) <= 2);
}

// promise: 10.14
#[test]
fn forged_questions_evict_only_each_other() {
    let mut router = Bench::new(&cramped());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, BOB_IP));
    router.wait(46_000);
    assert_eq!(
        router.state_of("10.0.1.9"),
        "stale",
        "even a stale one stays"
    );
    for host in 100..200 {
        let forged = ArpRepr::request(
            MacAddr([2, 0xb, 0, 0, 1, host]),
            [10, 0, 1, host].into(),
            [10, 0, 1, 1].into(),
        );
        router.send(1, arp_frame(&forged));
    }
    assert_eq!(router.state_of("10.0.1.9"), "stale");
    assert_eq!(router.metric("neighbours", Some("stale")), 3);
}

#[test]
fn the_number_of_waiting_packets_is_bounded() {
    let mut config = plain();
    config["neighbour_table"] = json!({"waiting": 10});
    let mut router = Bench::new(&config);
    for host in 20..80 {
        for _ in 0..3 {
            router.send(0, written(&from_alice(&std::format!("10.0.1.{host}")), b""));
        }
    }
    assert_eq!(router.metric("packets_waiting", None), 10);
    assert!(router.dropped("waiting_full") > 100);
}

#[test]
fn questions_are_limited_in_rate() {
    let mut config = plain();
    config["addresses"]["p1"][0] = "10.1.0.1/16".into();
    config["routes"][0]["via"] = "10.1.0.254".into();
    let mut router = Bench::new(&config);
    let mut questions = 0;
    for host in 0..1000u32 {
        let to = std::format!("10.1.{}.{}", 1 + host / 250, 1 + host % 250);
        questions += router.send(0, written(&from_alice(&to), b"")).len();
    }
    assert_eq!(questions, 256);
    assert_eq!(router.dropped("neighbour_rate"), 744);
}

#[test]
fn the_router_announces_its_addresses_once() {
    let config = Config::parse(&plain(), &ports(2)).expect("valid");
    let mut router = Bench {
        nf: Router::new(config),
        now: Nanos(0),
    };
    let sent = router.tick();
    let v4: Vec<_> = sent
        .iter()
        .filter(|(_, f)| link(f).2 == EtherType::ARP)
        .collect();
    assert_eq!(v4.len(), 2);
    assert_eq!(
        arp(&v4[0].1),
        ArpRepr::request(P0, [10, 0, 0, 1].into(), [10, 0, 0, 1].into())
    );
    let advertisements = sent.iter().filter(|(_, frame)| frame.get(54) == Some(&136));
    assert_eq!(
        advertisements.count(),
        4,
        "a global and a link-local address per port"
    );
    assert!(router.tick().is_empty());
}
