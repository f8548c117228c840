use super::Bench;
use crate::function::CommandError;
use serde_json::{Value, json};
use std::format;
use std::string::ToString;

fn busy() -> Bench {
    let mut nat = Bench::new(json!({
        "host_sessions_max": 5,
        "forward": ["tcp 203.0.113.1:80 -> 10.0.0.4:80"],
    }));
    for port in 0..8 {
        nat.play(&format!(
            "inside udp 10.0.0.2:{} > 192.0.2.9:53",
            5000 + port
        ));
    }
    for _ in 0..20 {
        nat.play("inside tcp 10.0.0.3:6000 > 192.0.2.9:80 syn");
    }
    nat
}

#[test]
fn sessions_are_listed_with_their_state() {
    let mut nat = busy();
    let answer = nat.command("sessions", &["host=10.0.0.3"]);
    let expected = json!({
        "protocol": "tcp",
        "vlan": Value::Null,
        "inside": "10.0.0.3:6000",
        "external": "203.0.113.1:6000",
        "peer": "192.0.2.9:80",
        "state": "opening",
        "forward": false,
        "expires_secs": 240,
        "mapping_packets": 20,
    });
    assert_eq!(answer["list"], json!([expected]));
    assert_eq!(answer["matched"], 1);
    assert_eq!(answer["mappings"], 7);
}

#[test]
fn lists_are_filtered_and_bounded() {
    let mut nat = busy();
    let lines = |nat: &mut Bench, args: &[&str]| {
        nat.command("sessions", args)["list"]
            .as_array()
            .map(|list| list.len())
    };
    assert_eq!(lines(&mut nat, &[]), Some(7));
    assert_eq!(lines(&mut nat, &["limit=2"]), Some(2));
    assert_eq!(lines(&mut nat, &["protocol=udp"]), Some(5));
    assert_eq!(lines(&mut nat, &["external=203.0.113.9"]), Some(0));
}

// promise: 10.11
#[test]
fn top_talkers_say_who_fills_the_table() {
    let mut nat = busy();
    let first = |nat: &mut Bench, by: &str| nat.command("top-talkers", &[by])["list"][0].clone();
    let by_sessions = first(&mut nat, "by=sessions");
    assert_eq!(by_sessions["host"], "10.0.0.2");
    assert_eq!(
        (&by_sessions["mappings"], &by_sessions["refusals"]),
        (&json!(5), &json!(3))
    );
    assert_eq!(first(&mut nat, "by=packets")["host"], "10.0.0.3");
    assert_eq!(first(&mut nat, "by=refusals")["host"], "10.0.0.2");
}

#[test]
fn flush_ends_the_named_sessions_and_spares_forwards() {
    let mut nat = busy();
    nat.play("outside tcp 198.51.100.1:4000 > 203.0.113.1:80 syn");
    assert_eq!(
        nat.command("flush", &["host=10.0.0.2"]),
        json!({"mappings": 5, "sessions": 5})
    );
    nat.table(&[
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "drop no_mapping",
        ),
        (
            "outside tcp 192.0.2.9:80 > 203.0.113.1:6000 syn ack 9/1",
            "inside tcp 192.0.2.9:80 > 10.0.0.3:6000 syn ack 9/1",
        ),
    ]);
    assert_eq!(
        nat.command("flush", &[]),
        json!({"mappings": 1, "sessions": 2})
    );
    assert_eq!(nat.metric("mappings", None), 1.0);
    assert_eq!(nat.metric("sessions", None), 0.0);
    nat.table(&[(
        "outside tcp 198.51.100.1:4000 > 203.0.113.1:80 syn",
        "inside tcp 198.51.100.1:4000 > 10.0.0.4:80 syn",
    )]);
}

#[test]
fn bad_arguments_say_what_would_be_right() {
    let mut nat = busy();
    let mut refused = |name: &str, arg: &str| {
        nat.nf
            .command(nat.now, name, &[arg.to_string()])
            .expect_err("refused")
    };
    assert_eq!(
        refused("session", ""),
        CommandError::Unknown(&["flush", "sessions", "top-talkers"])
    );
    for (name, arg) in [
        ("sessions", "limit=0"),
        ("sessions", "limit=99999"),
        ("sessions", "limit"),
        ("sessions", "host=me"),
        ("sessions", "protocol=sctp"),
        ("sessions", "color=red"),
        ("top-talkers", "by=size"),
        ("flush", "limit=1"),
    ] {
        let error = refused(name, arg);
        assert!(
            matches!(error, CommandError::BadArgument(_)),
            "{name} {arg}"
        );
    }
}
