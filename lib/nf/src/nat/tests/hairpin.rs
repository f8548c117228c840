use super::{Bench, describe, frame};
use nfluid_wire::MacAddr;
use nfluid_wire::ether::EthernetFrame;
use serde_json::json;

#[test]
fn a_host_reaches_another_through_its_external_end_point() {
    let mut nat = Bench::new(json!({"filtering": "endpoint-independent"}));
    nat.table(&[
        (
            "inside udp 10.0.0.3:6000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:6000 > 192.0.2.9:53",
        ),
        (
            "inside udp 10.0.0.2:5000 > 203.0.113.1:6000",
            "inside udp 203.0.113.1:5000 > 10.0.0.3:6000",
        ),
        (
            "inside udp 10.0.0.3:6000 > 203.0.113.1:5000",
            "inside udp 203.0.113.1:6000 > 10.0.0.2:5000",
        ),
    ]);
    assert_eq!(nat.metric("packets_translated_total", Some("hairpin")), 2.0);
}

#[test]
fn filtering_holds_for_hosts_inside_too() {
    Bench::new(json!({})).table(&[
        (
            "inside udp 10.0.0.3:6000 > 192.0.2.9:53",
            "outside udp 203.0.113.1:6000 > 192.0.2.9:53",
        ),
        (
            "inside udp 10.0.0.2:5000 > 203.0.113.1:6000",
            "drop filtered",
        ),
        (
            "inside udp 10.0.0.2:5000 > 203.0.113.1:7000",
            "drop no_mapping",
        ),
    ]);
}

#[test]
fn hairpinning_can_be_switched_off() {
    Bench::new(json!({"hairpin": false})).table(&[(
        "inside udp 10.0.0.2:5000 > 203.0.113.1:6000",
        "drop hairpin_off",
    )]);
}

#[test]
fn a_connection_turns_back_to_a_forwarded_server() {
    let mut nat = Bench::new(json!({"forward": ["tcp 203.0.113.1:80 -> 10.0.0.3:8080"]}));
    let gateway = MacAddr([2, 0, 0, 0, 0, 2]);
    let server = MacAddr([2, 0, 0, 0, 3, 3]);
    // The server speaks once, so that its hardware address is known.
    let (_, mut hello) = frame("inside udp 10.0.0.3:9 > 192.0.2.9:9");
    EthernetFrame::new_unchecked(&mut hello).set_src(server);
    nat.send(0, &hello);
    let (_, syn) = frame("inside tcp 10.0.0.2:5000 > 203.0.113.1:80 syn");
    let sent = nat.send(0, &syn);
    assert_eq!(
        describe(sent[0].0, &sent[0].1),
        "inside tcp 203.0.113.1:5000 > 10.0.0.3:8080 syn"
    );
    let ethernet = EthernetFrame::new_unchecked(&sent[0].1);
    assert_eq!((ethernet.src(), ethernet.dst()), (gateway, server));
    nat.table(&[(
        "inside tcp 10.0.0.3:8080 > 203.0.113.1:5000 syn ack 9/1",
        "inside tcp 203.0.113.1:80 > 10.0.0.2:5000 syn ack 9/1",
    )]);
}
