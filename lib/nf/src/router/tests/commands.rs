use super::*;
use crate::function::CommandError;

#[test]
fn routes_are_listed_within_a_prefix() {
    let mut router = Bench::new(&acquainted());
    let listed = router.command("routes", &["10.0.1.0/24"]);
    let expected = json!([
        {"to": "10.0.1.0/24", "type": "connected", "port": "p1"},
        {"to": "10.0.1.1/32", "type": "local", "port": "p1"},
        {"to": "10.0.1.255/32", "type": "broadcast"},
    ]);
    assert_eq!(
        listed["routes"], expected,
        "without the host routes of neighbours"
    );
    assert_eq!(listed["more"], false);
    let all = router.command("routes", &[]);
    assert_eq!(all["routes"].as_array().map(Vec::len), Some(17));
    assert_eq!(all["total"], 17);
}

#[test]
fn listings_are_bounded() {
    let mut config = plain();
    let lines: Vec<String> = (0..3000)
        .map(|i| std::format!("172.{}.{}.0/24 via 10.0.1.254", 16 + i / 256, i % 256))
        .collect();
    config["routes_text"] = lines.join("\n").into();
    let mut router = Bench::new(&config);
    let listed = router.command("routes", &[]);
    assert_eq!(listed["routes"].as_array().map(Vec::len), Some(1000));
    assert_eq!(
        (&listed["more"], &listed["total"]),
        (&true.into(), &3017.into())
    );
}

#[test]
fn lookup_tells_route_neighbour_and_address() {
    let mut router = Bench::new(&acquainted());
    let found = router.command("lookup", &["192.0.2.7"]);
    assert_eq!(found["to"], "0.0.0.0/0");
    assert_eq!(
        (&found["via"], &found["port"]),
        (&"10.0.1.254".into(), &"p1".into())
    );
    assert_eq!(
        (&found["neighbour"], &found["mac"]),
        (&"permanent".into(), &GATEWAY.to_string().into())
    );
    assert_eq!(
        router.command("lookup", &["10.0.1.50"])["neighbour"],
        "unknown"
    );
    assert_eq!(router.command("lookup", &["10.0.0.1"])["type"], "local");
    assert_eq!(
        router.command("lookup", &["198.51.100.1"])["type"],
        "unreachable"
    );
    assert_eq!(router.command("lookup", &["fe80::1"])["type"], "not routed");
}

#[test]
fn neighbours_are_flushed_but_not_configured_ones() {
    let mut router = Bench::new(&acquainted());
    router.send(0, written(&from_alice("10.0.1.77"), b""));
    assert_eq!(router.command("neighbours", &["p1"])["total"], 5);
    assert_eq!(router.command("flush-neighbours", &["p0"])["flushed"], 0);
    assert_eq!(router.command("flush-neighbours", &[])["flushed"], 1);
    assert_eq!(router.command("neighbours", &[])["total"], 6);
    assert_eq!(router.command("counters", &[])["waiting_lost_total"], 1);
}

#[test]
fn wrong_commands_are_explained() {
    let mut router = Bench::new(&plain());
    let mut error = |name: &str, args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        router
            .nf
            .command(Nanos(0), name, &args)
            .expect_err("refused")
            .to_string()
    };
    assert!(error("route", &[]).contains("routes [PREFIX]"));
    assert!(error("lookup", &[]).contains("usage: lookup ADDRESS"));
    assert!(error("lookup", &["x"]).contains("'x' is not an IP address"));
    assert!(error("routes", &["10.0.0.1/8"]).contains("10.0.0.0/8"));
    assert!(error("neighbours", &["p9"]).contains("there are: p0, p1"));
    let unknown = router.nf.command(Nanos(0), "x", &[]);
    assert!(matches!(unknown, Err(CommandError::Unknown(names)) if names.len() == 5));
}
