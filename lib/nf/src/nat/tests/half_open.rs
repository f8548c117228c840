//! Connections that give way when forged SYNs fill the tables, and segments that belong to a connection.

use super::Bench;
use serde_json::{Value, json};
use std::format;

/// A NAT with a forward and room for 16 sessions.
fn small(extra: Value) -> Bench {
    let mut config = json!({
        "forward": ["tcp 203.0.113.1:80 -> 10.0.0.80:80"],
        "sessions_max": 16,
        "host_sessions_max": 8,
    });
    for (key, value) in extra.as_object().expect("a map") {
        config[key] = value.clone();
    }
    Bench::new(config)
}

/// Returns true if the three segments of an opening from inside pass.
fn opens(nat: &mut Bench, port: u16) -> bool {
    let segments = [
        format!("inside tcp 10.0.0.2:{port} > 192.0.2.9:443 syn 100/0"),
        format!("outside tcp 192.0.2.9:443 > 203.0.113.1:{port} syn ack 900/101"),
        format!("inside tcp 10.0.0.2:{port} > 192.0.2.9:443 ack 101/901"),
    ];
    segments
        .iter()
        .all(|segment| !nat.play(segment).starts_with("drop"))
}

fn goes_on(nat: &mut Bench, port: u16) -> bool {
    let data = format!("outside tcp 192.0.2.9:443 > 203.0.113.1:{port} ack 901/101");
    nat.play(&data).starts_with("inside")
}

/// A SYN from a forged address to the forward, and the answer, which the forger never sees.
fn forged_opening(nat: &mut Bench, number: u32) {
    let from = format!("198.51.{}.{}:7777", number >> 8, number & 255);
    let syn = nat.play(&format!("outside tcp {from} > 203.0.113.1:80 syn 7/0"));
    assert!(syn.starts_with("inside"), "{syn}");
    let answer = nat.play(&format!("inside tcp 10.0.0.80:80 > {from} syn ack 5000/8"));
    assert!(answer.starts_with("outside"), "{answer}");
}

/// Catches: a SYN-ACK establishes; a full table or quota refuses the next connection; established connections give
/// way.
// promise: 10.32
#[test]
fn a_flood_of_answered_syns_shuts_nobody_out() {
    for quota in [8, 1000] {
        let mut nat = small(json!({"host_sessions_max": quota}));
        assert!(opens(&mut nat, 5000));
        (0..500).for_each(|number| forged_opening(&mut nat, number));
        assert!(goes_on(&mut nat, 5000), "an established connection");
        assert!(opens(&mut nat, 5001), "a new one from inside");
        (500..999).for_each(|number| forged_opening(&mut nat, number));
        nat.wait(600);
        assert!(goes_on(&mut nat, 5000) && goes_on(&mut nat, 5001));
        assert!(nat.metric("sessions_evicted_total", None) > 900.0);
    }
}

/// Catches: a host over its quota whose own half-open connections are not found behind those of another host.
// promise: 10.32
#[test]
fn a_flood_of_one_forward_does_not_shut_the_host_of_another_out() {
    let forwards = [
        "tcp 203.0.113.1:80 -> 10.0.0.80:80",
        "tcp 203.0.113.1:81 -> 10.0.0.81:80",
    ];
    let mut nat = small(json!({"forward": forwards, "sessions_max": 256, "host_sessions_max": 60}));
    for (host, port) in [("10.0.0.80", 80), ("10.0.0.81", 81)] {
        for number in 0..60 {
            let from = format!("198.51.{port}.{number}:7777");
            let syn = nat.play(&format!("outside tcp {from} > 203.0.113.1:{port} syn 7/0"));
            assert!(syn.starts_with("inside"), "{syn}");
            let answer = nat.play(&format!("inside tcp {host}:80 > {from} syn ack 5000/8"));
            assert!(answer.starts_with("outside"), "{answer}");
        }
    }
    let opened = nat.play("inside tcp 10.0.0.81:5000 > 192.0.2.9:443 syn 100/0");
    assert!(opened.starts_with("outside"), "{opened}");
    let next = nat.play("outside tcp 198.51.100.9:7777 > 203.0.113.1:81 syn 7/0");
    assert!(next.starts_with("inside"), "{next}");
}

#[test]
fn established_connections_give_way_to_nobody() {
    let mut nat = small(json!({"host_sessions_max": 1000}));
    // The forward takes one of the 16 mappings.
    assert!((0..15).all(|i| opens(&mut nat, 5000 + i)));
    assert!(!opens(&mut nat, 6000));
    forged_opening(&mut nat, 1);
    forged_opening(&mut nat, 2);
    assert!((0..15).all(|i| goes_on(&mut nat, 5000 + i)));
    assert_eq!(nat.metric("sessions_evicted_total", None), 1.0);
}

/// A host that opens more than it finishes pays with its own connections, and ports come back.
// promise: 10.32
#[test]
fn the_oldest_half_open_mapping_gives_its_port() {
    let mut nat = Bench::new(json!({"ports": "2000-2003", "port_preservation": false}));
    for port in 0..100 {
        let sent = nat.play(&format!(
            "inside tcp 10.0.0.2:{} > 192.0.2.9:443 syn 1/0",
            5000 + port
        ));
        assert!(sent.starts_with("outside"), "{port}: {sent}");
    }
    assert_eq!(nat.metric("ports_taken", Some("tcp")), 4.0);
    assert_eq!(nat.metric("mappings", None), 4.0);
    assert_eq!(nat.metric("sessions_half_open", None), 4.0);
}

/// RFC 5961. Catches: a RST with any sequence number ends a session.
// promise: 10.33
#[test]
fn a_blind_reset_does_not_end_a_connection() {
    let reset = |seq: u32| format!("outside tcp 192.0.2.9:443 > 203.0.113.1:5000 rst {seq}/0");
    let mut nat = small(json!({}));
    assert!(opens(&mut nat, 5000));
    assert_eq!(nat.play(&reset(77_000_000)), "drop tcp_out_of_window");
    assert!(nat.play(&reset(950)).starts_with("inside"), "in the window");
    nat.wait(600);
    assert!(goes_on(&mut nat, 5000));
    assert!(nat.play(&reset(901)).starts_with("inside"), "exact");
    nat.wait(240);
    assert!(!goes_on(&mut nat, 5000));
}

#[test]
fn segments_out_of_the_window_are_dropped_unless_the_operator_is_liberal() {
    let stray = "outside tcp 192.0.2.9:443 > 203.0.113.1:5000 ack 77000000/101";
    for (liberal, outcome) in [
        (false, "drop tcp_out_of_window"),
        (
            true,
            "inside tcp 192.0.2.9:443 > 10.0.0.2:5000 ack 77000000/101",
        ),
    ] {
        let mut nat = small(json!({"tcp_liberal": liberal}));
        assert!(opens(&mut nat, 5000));
        assert_eq!(nat.play(stray), outcome);
        assert!(goes_on(&mut nat, 5000));
    }
}
