use super::Bench;
use serde_json::json;
use std::format;

// promise: 10.11
#[test]
fn a_full_table_is_refused_and_counted() {
    let mut nat = Bench::new(json!({"sessions_max": 16}));
    for port in 0..16 {
        let sent = nat.play(&format!(
            "inside udp 10.0.0.2:{} > 192.0.2.9:53",
            5000 + port
        ));
        assert!(sent.starts_with("outside"), "{sent}");
    }
    nat.table(&[
        (
            "inside udp 10.0.0.2:6000 > 192.0.2.9:53",
            "drop sessions_full",
        ),
        (
            "inside udp 10.0.0.2:5003 > 192.0.2.9:53",
            "outside udp 203.0.113.1:5003 > 192.0.2.9:53",
        ),
    ]);
    assert_eq!(nat.metric("mappings", None), 16.0);
    nat.table(&[
        ("wait 300", ""),
        (
            "inside udp 10.0.0.2:6000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:6000 > 192.0.2.9:53",
        ),
    ]);
}

#[test]
fn a_full_table_gives_up_what_has_expired_without_a_tick() {
    let mut nat = Bench::new(json!({"sessions_max": 16}));
    for port in 0..16 {
        nat.play(&format!(
            "inside udp 10.0.0.2:{} > 192.0.2.9:53",
            5000 + port
        ));
    }
    nat.now = crate::function::Nanos::from_secs(1300);
    nat.table(&[(
        "inside udp 10.0.0.2:6000 > 192.0.2.9:53",
        "outside udp 203.0.113.1:6000 > 192.0.2.9:53",
    )]);
}

#[test]
fn many_peers_of_one_mapping_fill_the_session_table() {
    let mut nat = Bench::new(json!({"sessions_max": 16}));
    for peer in 0..16 {
        nat.play(&format!("inside udp 10.0.0.2:5000 > 192.0.2.{peer}:53"));
    }
    nat.table(&[(
        "inside udp 10.0.0.2:5000 > 192.0.2.99:53",
        "drop sessions_full",
    )]);
    assert_eq!(nat.metric("mappings", None), 1.0);
    assert_eq!(nat.metric("sessions", None), 16.0);
    // A refused first packet leaves no mapping behind.
    nat.table(&[(
        "inside udp 10.0.0.2:5001 > 192.0.2.9:53",
        "drop sessions_full",
    )]);
    assert_eq!(nat.metric("mappings", None), 1.0);
}

#[test]
fn strangers_cannot_make_sessions_by_udp() {
    let mut nat = Bench::new(json!({"filtering": "endpoint-independent"}));
    nat.play("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    for peer in 0..200 {
        nat.play(&format!(
            "outside udp 198.51.100.{peer}:9 > 203.0.113.1:5000"
        ));
    }
    assert_eq!(nat.metric("sessions", None), 0.0);
}

// promise: 10.11
#[test]
fn a_host_has_a_quota_and_others_do_not_pay_for_it() {
    let mut nat = Bench::new(json!({"host_sessions_max": 3}));
    for port in 0..3 {
        nat.play(&format!(
            "inside udp 10.0.0.2:{} > 192.0.2.9:53",
            5000 + port
        ));
    }
    nat.table(&[
        ("inside udp 10.0.0.2:6000 > 192.0.2.9:53", "drop host_quota"),
        (
            "inside udp 10.0.0.3:6000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:6000 > 192.0.2.9:53",
        ),
    ]);
}

// promise: 10.11
#[test]
fn a_full_port_range_is_refused_and_counted() {
    let mut nat = Bench::new(json!({"ports": "2000-2003"}));
    for port in 0..4 {
        let sent = nat.play(&format!(
            "inside udp 10.0.0.2:{} > 192.0.2.9:53",
            5000 + port
        ));
        assert!(sent.contains("203.0.113.1:200"), "{sent}");
    }
    nat.table(&[
        (
            "inside udp 10.0.0.2:6000 > 192.0.2.9:53",
            "drop ports_exhausted",
        ),
        // Each protocol has its own ports.
        (
            "inside tcp 10.0.0.2:2002 > 192.0.2.9:53 syn",
            "outside tcp 203.0.113.1:2002 > 192.0.2.9:53 syn",
        ),
    ]);
    assert_eq!(nat.metric("ports_taken", Some("udp")), 4.0);
}

#[test]
fn pooling_is_paired_or_arbitrary() {
    let pool = json!(["203.0.113.1-203.0.113.4"]);
    let mut paired = Bench::new(json!({"pool": pool, "ports": "2000-2001"}));
    let mut arbitrary =
        Bench::new(json!({"pool": pool, "ports": "2000-2001", "pooling": "arbitrary"}));
    for port in 0..2 {
        let line = format!("inside udp 10.0.0.2:{} > 192.0.2.9:53", 5000 + port);
        assert!(paired.play(&line).starts_with("outside"));
        assert!(arbitrary.play(&line).starts_with("outside"));
    }
    let third = "inside udp 10.0.0.2:5002 > 192.0.2.9:53";
    assert_eq!(paired.play(third), "drop ports_exhausted");
    assert!(arbitrary.play(third).starts_with("outside"));
}

#[test]
fn parity_is_kept_if_asked() {
    let config = json!({"port_parity": true, "port_preservation": false});
    let mut nat = Bench::new(config);
    for port in 5000..5020u16 {
        let sent = nat.play(&format!("inside udp 10.0.0.2:{port} > 192.0.2.9:53"));
        let source = sent.split(' ').nth(2).unwrap();
        let external: u16 = source.rsplit(':').next().unwrap().parse().unwrap();
        assert_eq!(external % 2, port % 2, "{sent}");
    }
}

#[test]
fn hosts_are_forgotten_and_their_memory_returns() {
    let mut nat = Bench::new(json!({"sessions_max": 16}));
    for round in 0..4 {
        for host in 0..16 {
            let line = format!("inside udp 10.0.{round}.{host}:5000 > 192.0.2.9:53");
            assert!(nat.play(&line).starts_with("outside"), "{line}");
        }
        assert_eq!(nat.metric("hosts", None), 16.0);
        // The mappings go, and then the hosts.
        nat.wait(300);
        nat.wait(300);
        assert_eq!(nat.metric("hosts", None), 0.0);
    }
}

// promise: 10.24
#[test]
fn an_idle_nat_sleeps_until_something_ends() {
    let mut nat = Bench::new(json!({}));
    assert!(!nat.nf.has_timers());
    nat.play("inside udp 10.0.0.2:5000 > 192.0.2.9:53");
    nat.play("wait 100");
    assert!(
        nat.play("inside udp 10.0.0.2:5001 > 192.0.2.9:53")
            .starts_with("outside")
    );
    let left = |nat: &Bench| nat.nf.next_tick().since(nat.now).0 / 1_000_000_000;
    assert_eq!(left(&nat), 0, "nobody has looked yet");
    // The first mapping, the second, the host: with what ends within a second more.
    for seconds in [201, 100, 301] {
        nat.wait(0);
        assert_eq!(left(&nat), seconds);
        nat.wait(seconds);
    }
    assert_eq!(nat.metric("hosts", None), 0.0);
    assert!(!nat.nf.has_timers());
}
