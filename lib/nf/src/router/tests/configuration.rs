use super::*;

/// Path, line and message of the error that a change to [`plain`] makes.
fn error(change: impl FnOnce(&mut Value)) -> (String, Option<u32>, String) {
    let mut config = plain();
    change(&mut config);
    let error = Config::parse(&config, &ports(2)).expect_err("refused");
    (error.path, error.line, error.message)
}

fn text_error(text: &str) -> (Option<u32>, String) {
    let (path, line, message) = error(|config| config["routes_text"] = text.into());
    assert_eq!(path, "routes_text");
    (line, message)
}

#[test]
fn an_error_names_the_key() {
    let at = |change: fn(&mut Value)| error(change).0;
    assert_eq!(at(|c| c["adresses"] = json!({})), "adresses");
    assert_eq!(at(|c| c["addresses"]["p7"] = json!([])), "addresses");
    assert_eq!(
        at(|c| c["addresses"]["p0"][1] = "10.0.0.300/24".into()),
        "addresses.p0[1]"
    );
    assert_eq!(
        at(|c| c["addresses"]["p0"][0] = "10.0.0.255/24".into()),
        "addresses.p0[0]"
    );
    assert_eq!(
        at(|c| c["addresses"]["p1"][0] = "10.0.0.1/24".into()),
        "addresses.p1[0]"
    );
    assert_eq!(
        at(|c| c["addresses"]["p1"][0] = "10.0.0.2/24".into()),
        "addresses.p1"
    );
    assert_eq!(
        at(|c| c["routes"][1]["to"] = "10.0.0.0/40".into()),
        "routes[1].to"
    );
    assert_eq!(at(|c| c["routes"][0]["via"] = 5.into()), "routes[0].via");
    assert_eq!(
        at(|c| c["routes"][0]["via"] = "192.0.2.1".into()),
        "routes[0]"
    );
    assert_eq!(
        at(|c| c["routes"][0]["via"] = "10.0.1.1".into()),
        "routes[0]"
    );
    assert_eq!(
        at(|c| c["routes"][0]["type"] = "prohibit".into()),
        "routes[0].type"
    );
    assert_eq!(
        at(|c| c["routes"][2]["via"] = "10.0.1.9".into()),
        "routes[2]"
    );
    assert_eq!(
        at(|c| c["routes"][3]["to"] = "203.0.113.0/24".into()),
        "routes[3]"
    );
    assert_eq!(
        at(|c| c["routes"][3]["to"] = "224.0.0.0/4".into()),
        "routes[3]"
    );
    assert_eq!(
        at(|c| c["neighbours"] =
            json!([{"port": "p0", "address": "10.0.1.9", "mac": "02:00:00:00:00:09"}])),
        "neighbours[0].address"
    );
    assert_eq!(
        at(|c| c["neighbours"] =
            json!([{"port": "p0", "address": "10.0.0.9", "mac": "03:00:00:00:00:09"}])),
        "neighbours[0].mac"
    );
    assert_eq!(
        at(|c| c["neighbour_table"] = json!({"waiting": 0})),
        "neighbour_table.waiting"
    );
    assert_eq!(
        at(|c| c["source_routed"] = "accept".into()),
        "source_routed"
    );
}

#[test]
fn an_error_in_a_million_routes_names_the_line() {
    let mut text: String = (0..20_000)
        .map(|i| std::format!("172.16.{}.{}/32 via 10.0.1.254\n", i / 256, i % 256))
        .collect();
    text.push_str("172.17.0.0/16 via 10.0.9.9\n");
    let (line, message) = text_error(&text);
    assert_eq!(line, Some(20_001));
    assert!(
        message.contains("10.0.9.9 is not in a network"),
        "{message}"
    );
    assert_eq!(text_error("\n# one\n10.0.0.0 8").0, Some(3));
    let (line, message) = text_error("1.0.0.0/8 dev p0\n2.0.0.0/8 dev p0\n1.0.0.0/8 dev p1");
    assert_eq!(line, Some(3));
    assert!(message.contains("1.0.0.0/8"), "{message}");
    assert_eq!(
        text_error("10.0.1.0/24 dev p0").0,
        Some(1),
        "connected already"
    );
    assert_eq!(
        text_error("9.0.0.0/8 via 10.0.1.9 dev p0").0,
        Some(1),
        "not on that port"
    );
    assert_eq!(
        text_error("2001:db8:7::/48 via fe80::1").0,
        Some(1),
        "link-local needs a port"
    );
}

#[test]
fn ipv6_needs_its_mtu() {
    let mut small = ports(2);
    small[1].mtu = 1279;
    let error = Config::parse(&plain(), &small).expect_err("refused");
    assert_eq!(error.path, "addresses.p1[1]");
    assert!(error.message.contains("1280"), "{}", error.message);
}

#[test]
fn too_many_routes_are_refused_where_they_begin() {
    let mut text = String::with_capacity(60 << 20);
    for i in 0..(2 << 20) + 1u32 {
        use core::fmt::Write;
        let _ = writeln!(text, "{} dev p0", Ipv4Addr::from_bits(0x1400_0000 + i));
    }
    let (line, message) = text_error(&text);
    assert!(line.is_some_and(|line| line > 2_000_000), "{line:?}");
    assert!(message.contains("more than"), "{message}");
}

#[test]
fn link_local_addresses_come_from_the_mac_or_the_configuration() {
    let config = Config::parse(&plain(), &ports(2)).expect("valid");
    assert_eq!(
        config.ports[1].link_local.map(IpAddr::V6),
        Some(ip("fe80::ff:fe00:1"))
    );
    let mut own = plain();
    own["addresses"]["p1"][1] = "fe80::1/64".into();
    own["routes"].as_array_mut().expect("a list").remove(1);
    let config = Config::parse(&own, &ports(2)).expect("valid");
    assert_eq!(
        config.ports[1].link_local.map(IpAddr::V6),
        Some(ip("fe80::1"))
    );
}

#[test]
fn no_configuration_is_a_router_that_routes_nothing() {
    let mut router = Bench::new(&Value::Null);
    router.refuses(0, written(&from_alice("192.0.2.7"), b""), "no_route");
}
