use super::{config, two_ports};
use crate::function::ConfigError;
use serde_json::{Value, json};

fn refused(extra: Value) -> ConfigError {
    super::super::build(&config(extra), &two_ports())
        .err()
        .expect("refused")
}

#[test]
fn every_bad_value_names_its_key() {
    let cases = [
        (json!({"pool": []}), "pool"),
        (json!({"pool": ["203.0.113.1", "no"]}), "pool[1]"),
        (json!({"pool": ["203.0.113.1-203.0.113.0"]}), "pool[0]"),
        (json!({"pool": ["203.0.113.1-203.0.113.200"]}), "pool[0]"),
        (json!({"pool": ["0.0.0.0-255.255.255.254"]}), "pool[0]"),
        (json!({"pool": ["203.0.113.1", "203.0.113.1"]}), "pool[1]"),
        (json!({"pool": ["224.0.0.1"]}), "pool[0]"),
        (json!({"ports": "0-5"}), "ports"),
        (json!({"ports": "9-5"}), "ports"),
        (json!({"ports": "1024-70000"}), "ports"),
        (json!({"inside": ["10.0.0.1/8"]}), "inside[0]"),
        (json!({"forward": ["tcp 1.2.3.4:80"]}), "forward[0]"),
        (json!({"filtering": "open"}), "filtering"),
        (json!({"sessions_max": 1}), "sessions_max"),
        (json!({"sessions_max": 1_000_000_000}), "sessions_max"),
        (json!({"host_sessions_max": 0}), "host_sessions_max"),
        (json!({"fragments_max": 1_000_000}), "fragments_max"),
        (json!({"timeouts": {"udp": 119}}), "timeouts.udp"),
        (
            json!({"timeouts": {"tcp_established": 7439}}),
            "timeouts.tcp_established",
        ),
        (
            json!({"timeouts": {"tcp_transitory": 239}}),
            "timeouts.tcp_transitory",
        ),
        (json!({"timeouts": {"icmp": 59}}), "timeouts.icmp"),
        (json!({"timeouts": {"udp": u32::MAX}}), "timeouts.udp"),
        (json!({"timeouts": {"sctp": 1}}), "timeouts.sctp"),
        (json!({"proxy_arp": "maybe"}), "proxy_arp"),
    ];
    for (extra, path) in cases {
        let error = refused(extra.clone());
        assert_eq!(error.path, path, "{extra}: {error}");
    }
}

#[test]
fn colliding_forwards_are_refused() {
    let twice_outside = refused(json!({"forward": [
        "tcp 203.0.113.1:80 -> 10.0.0.2:80",
        "tcp 203.0.113.1:80 -> 10.0.0.3:80",
    ]}));
    assert_eq!(twice_outside.path, "forward[1]");
    let twice_inside = refused(json!({"forward": [
        "tcp 203.0.113.1:80 -> 10.0.0.2:80",
        "tcp 203.0.113.1:81 -> 10.0.0.2:80",
    ]}));
    assert_eq!(twice_inside.path, "forward[1]");
}

#[test]
fn an_unknown_key_and_a_missing_pool_are_refused() {
    assert!(refused(json!({"pools": []})).message.contains("pools"));
    let missing = super::super::build(&json!({}), &two_ports())
        .err()
        .expect("refused");
    assert!(missing.message.contains("pool"), "{missing}");
}

// promise: 10.7
#[test]
fn a_refused_reconfiguration_changes_nothing() {
    let mut nat = super::Bench::new(json!({}));
    let out = (
        "inside udp 10.0.0.2:5000 > 192.0.2.9:53",
        "outside udp 203.0.113.1:5000 > 192.0.2.9:53",
    );
    nat.table(&[out]);
    let bad = config(json!({"ports": "x"}));
    assert!(nat.nf.reconfigure(&bad, &two_ports()).is_err());
    nat.table(&[
        (
            "outside udp 192.0.2.9:53 > 203.0.113.1:5000",
            "inside udp 192.0.2.9:53 > 10.0.0.2:5000",
        ),
        out,
    ]);
}
