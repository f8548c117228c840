use super::*;

fn apply(router: &mut Bench, config: &Value) {
    router.nf.reconfigure(config, &ports(2)).expect("valid");
}

#[test]
fn routes_change_while_neighbours_stay() {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, [10, 0, 1, 9]));
    let mut config = plain();
    config["routes"] =
        json!([{"to": "default", "via": "10.0.1.9"}, {"to": "192.0.2.0/24", "type": "blackhole"}]);
    apply(&mut router, &config);
    assert_eq!(router.state_of("10.0.1.9"), "reachable");
    let (_, frame) = router.send_one(0, written(&from_alice("8.8.8.8"), b""));
    assert_eq!(link(&frame).0, BOB);
    let (_, frame) = router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(link(&frame).0, BOB);
    router.refuses(0, written(&from_alice("192.0.2.1"), b""), "blackhole");
    assert_eq!(router.command("lookup", &["2001:db8:5::1"])["type"], "none");
}

// promise: 10.7
#[test]
fn an_invalid_configuration_changes_nothing() {
    let mut router = Bench::new(&acquainted());
    let before = router.command("routes", &[]);
    let mut config = acquainted();
    config["routes"] = json!([{"to": "0.0.0.0/0", "via": "192.0.2.1"}]);
    let error = router
        .nf
        .reconfigure(&config, &ports(2))
        .expect_err("refused");
    assert_eq!(error.path, "routes[0]");
    assert_eq!(router.command("routes", &[]), before);
    router.send_one(0, written(&from_alice("8.8.8.8"), b""));
}

#[test]
fn neighbours_leave_with_their_network() {
    let mut router = Bench::new(&plain());
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    router.send(1, arp_reply(BOB, [10, 0, 1, 9]));
    let config = json!({"addresses": {"p0": ["10.0.0.1/24"], "p1": ["10.0.2.1/24"]}});
    apply(&mut router, &config);
    assert_eq!(router.state_of("10.0.1.9"), "none");
    router.send(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(router.dropped("no_route"), 1);
    router.command("flush-neighbours", &[]);
    assert_eq!(
        router.metric("routes", None),
        6,
        "two addresses, networks, broadcasts"
    );
    assert_eq!(router.metric("next_hops", None), 5);
}

#[test]
fn configured_neighbours_come_and_go() {
    let mut router = Bench::new(&acquainted());
    apply(&mut router, &plain());
    assert_eq!(router.state_of("10.0.1.9"), "none");
    let (_, frame) = router.send_one(0, written(&from_alice("10.0.1.9"), b""));
    assert_eq!(link(&frame).2, EtherType::ARP);
    apply(&mut router, &acquainted());
    assert_eq!(router.state_of("10.0.1.9"), "permanent");
    assert_eq!(router.metric("packets_waiting", None), 0);
}

#[test]
fn a_new_mac_address_of_a_port_is_used_at_once() {
    let mut router = Bench::new(&acquainted());
    let mut two = ports(2);
    two[1].mac = MacAddr([2, 9, 9, 9, 9, 9]);
    router.nf.reconfigure(&acquainted(), &two).expect("valid");
    let (_, frame) = router.send_one(0, written(&from_alice("8.8.8.8"), b""));
    assert_eq!(link(&frame).1, two[1].mac);
    assert!(!router.tick().is_empty(), "announced again");
}

#[test]
fn the_same_configuration_again_changes_nothing() {
    let mut router = Bench::new(&acquainted());
    let tables = (
        router.metric("route_table_bytes", None),
        router.metric("next_hops", None),
    );
    let changed = router.metric("routes_changed_total", None);
    for _ in 0..5 {
        apply(&mut router, &acquainted());
    }
    assert_eq!(router.metric("routes_changed_total", None), changed);
    let mut config = acquainted();
    config["routes_text"] = "192.0.2.0/24 via 10.0.1.9".into();
    apply(&mut router, &config);
    assert_eq!(router.metric("routes_changed_total", None), changed + 1);
    apply(&mut router, &acquainted());
    assert_eq!(router.metric("routes_changed_total", None), changed + 2);
    assert_eq!(
        tables,
        (
            router.metric("route_table_bytes", None),
            router.metric("next_hops", None)
        )
    );
    assert!(router.tick().is_empty());
}
