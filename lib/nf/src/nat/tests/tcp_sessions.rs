use super::Bench;
use serde_json::json;

const SYN: (&str, &str) = (
    "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 syn",
    "outside tcp 203.0.113.1:5000 > 192.0.2.9:80 syn",
);
const SYN_ACK: (&str, &str) = (
    "outside tcp 192.0.2.9:80 > 203.0.113.1:5000 syn ack 9/1",
    "inside tcp 192.0.2.9:80 > 10.0.0.2:5000 syn ack 9/1",
);
const ACK: (&str, &str) = (
    "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 ack 1/10",
    "outside tcp 203.0.113.1:5000 > 192.0.2.9:80 ack 1/10",
);
const DATA: (&str, &str) = (
    "outside tcp 192.0.2.9:80 > 203.0.113.1:5000 psh ack 10/1",
    "inside tcp 192.0.2.9:80 > 10.0.0.2:5000 psh ack 10/1",
);
const FIN_OUT: (&str, &str) = (
    "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 fin ack 1/10",
    "outside tcp 203.0.113.1:5000 > 192.0.2.9:80 fin ack 1/10",
);
const FIN_IN: (&str, &str) = (
    "outside tcp 192.0.2.9:80 > 203.0.113.1:5000 fin ack 10/2",
    "inside tcp 192.0.2.9:80 > 10.0.0.2:5000 fin ack 10/2",
);
const GONE: (&str, &str) = (DATA.0, "drop no_mapping");

// promise: 10.10
#[test]
fn an_established_connection_lives_for_two_hours_and_four_minutes() {
    let established = ("wait 7439", "");
    let mut nat = Bench::new(json!({}));
    nat.table(&[SYN, SYN_ACK, ACK, established, DATA, established, ACK]);
    nat.table(&[("wait 7440", ""), GONE]);
    assert_eq!(nat.metric("sessions", None), 0.0);
    assert_eq!(nat.metric("mappings", None), 0.0);
    assert_eq!(nat.metric("ports_taken", None), 0.0);
}

// promise: 10.10
#[test]
fn a_half_open_connection_lives_for_four_minutes() {
    Bench::new(json!({})).table(&[SYN, ("wait 239", ""), SYN_ACK]);
    Bench::new(json!({})).table(&[SYN, ("wait 240", ""), (SYN_ACK.0, "drop no_mapping")]);
    // Catches: established by the answer alone.
    Bench::new(json!({})).table(&[SYN, SYN_ACK, ("wait 239", ""), ACK]);
    Bench::new(json!({})).table(&[SYN, SYN_ACK, ("wait 240", ""), (ACK.0, "drop tcp_not_syn")]);
}

#[test]
fn a_closed_connection_lives_for_four_minutes_whatever_trickles_in() {
    Bench::new(json!({})).table(&[
        SYN,
        SYN_ACK,
        ACK,
        FIN_OUT,
        ("wait 5000", ""),
        DATA,
        FIN_IN,
        ACK,
        ("wait 200", ""),
        ACK,
        DATA,
        ("wait 40", ""),
        GONE,
    ]);
}

#[test]
fn a_reset_connection_lives_for_four_minutes_unless_it_goes_on() {
    let reset = (
        "outside tcp 192.0.2.9:80 > 203.0.113.1:5000 rst 10/1",
        "inside tcp 192.0.2.9:80 > 10.0.0.2:5000 rst 10/1",
    );
    let opened = [SYN, SYN_ACK, ACK];
    let mut nat = Bench::new(json!({}));
    nat.table(&opened);
    nat.table(&[reset, ("wait 240", ""), GONE]);
    nat.table(&opened);
    nat.table(&[reset, ACK, ("wait 5000", ""), DATA]);
}

#[test]
fn a_segment_without_an_opening_is_dropped_or_picked_up() {
    Bench::new(json!({})).table(&[
        (ACK.0, "drop tcp_not_syn"),
        (
            "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 rst",
            "drop tcp_not_syn",
        ),
        (
            "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 syn ack",
            "drop tcp_not_syn",
        ),
    ]);
    Bench::new(json!({"tcp_pickup": true})).table(&[
        (
            "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 rst",
            "drop tcp_not_syn",
        ),
        ACK,
        DATA,
        ("wait 5000", ""),
        DATA,
    ]);
    // Catches: an unanswered session is kept for two hours.
    let mut unanswered = Bench::new(json!({"tcp_pickup": true}));
    unanswered.table(&[ACK, ("wait 240", ""), GONE]);
}

#[test]
fn strangers_open_connections_as_far_as_the_filtering_says() {
    let other_port = (
        "outside tcp 192.0.2.9:4000 > 203.0.113.1:5000 syn",
        "inside tcp 192.0.2.9:4000 > 10.0.0.2:5000 syn",
    );
    let other_host = (
        "outside tcp 198.51.100.1:4000 > 203.0.113.1:5000 syn",
        "inside tcp 198.51.100.1:4000 > 10.0.0.2:5000 syn",
    );
    let dropped = |line: (&'static str, &str)| (line.0, "drop filtered");
    let nat = |filtering| Bench::new(json!({ "filtering": filtering }));
    nat("endpoint-independent").table(&[SYN, other_port, other_host]);
    nat("address-dependent").table(&[SYN, other_port, dropped(other_host)]);
    nat("address-and-port").table(&[SYN, dropped(other_port), dropped(other_host)]);
}

#[test]
fn a_simultaneous_open_passes() {
    Bench::new(json!({"filtering": "address-and-port"})).table(&[
        SYN,
        (
            "outside tcp 192.0.2.9:80 > 203.0.113.1:5000 syn",
            "inside tcp 192.0.2.9:80 > 10.0.0.2:5000 syn",
        ),
        (
            "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 syn ack 0/1",
            "outside tcp 203.0.113.1:5000 > 192.0.2.9:80 syn ack 0/1",
        ),
        (
            "outside tcp 192.0.2.9:80 > 203.0.113.1:5000 syn ack 0/1",
            "inside tcp 192.0.2.9:80 > 10.0.0.2:5000 syn ack 0/1",
        ),
        ("wait 7000", ""),
        (
            "inside tcp 10.0.0.2:5000 > 192.0.2.9:80 ack 1/1",
            "outside tcp 203.0.113.1:5000 > 192.0.2.9:80 ack 1/1",
        ),
    ]);
}

#[test]
fn a_mapping_lives_as_long_as_one_of_its_connections() {
    let second = (
        "inside tcp 10.0.0.2:5000 > 198.51.100.1:443 syn",
        "outside tcp 203.0.113.1:5000 > 198.51.100.1:443 syn",
    );
    let mut nat = Bench::new(json!({}));
    nat.table(&[SYN, SYN_ACK, ACK, second, ("wait 1000", "")]);
    assert_eq!(nat.metric("sessions", None), 1.0);
    nat.table(&[DATA, second]);
    assert_eq!(nat.metric("sessions", None), 2.0);
    assert_eq!(nat.metric("mappings", None), 1.0);
}
