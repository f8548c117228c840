//! The promise: the fast paths of eFW, eLB and the guard are measured by packet.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::skip::is_root;

#[test]
fn a_packet_of_a_known_flow_costs_the_firewalls_fast_path_the_same_whatever_its_rules() {
    if !is_root(
        "a_packet_of_a_known_flow_costs_the_firewalls_fast_path_the_same_whatever_its_rules",
    ) {
        return;
    }
    one_holds(
        "a thousand times as many rules; a list would take hundreds of times as long",
        || {
            let output = text(&bench(&["efw", effort()]));
            for kind in ["ns", "drop_ns", "new_flow_ns"] {
                let figure = values(&output, &format!("efw.10.{kind}"))[0];
                assert!(figure > 0.0, "{output}");
            }
            ["efw.10000.ns", "efw.10.ns"].map(|id| values(&output, id)[0])
        },
        |[many, few]| *many < 20.0 * few,
    );
}

// promise: 13.17
#[test]
fn a_packet_of_a_known_connection_costs_the_balancer_less_than_the_first_one() {
    if !is_root("a_packet_of_a_known_connection_costs_the_balancer_less_than_the_first_one") {
        return;
    }
    one_holds(
        "of a known connection and of a new one, in each mode",
        || {
            let output = text(&bench(&["elb", effort()]));
            let figure = |id: &str| values(&output, id)[0];
            assert!(figure("elb.answer.ns") > 0.0, "{output}");
            assert_eq!(figure("elb.kept_percent"), 100.0, "{output}");
            ["elb", "elb.direct"]
                .map(|mode| ["established", "new"].map(|kind| figure(&format!("{mode}.{kind}.ns"))))
        },
        |modes| modes.iter().all(|[established, new]| established < new),
    );
}

#[test]
fn connections_come_about_behind_a_guard_whatever_floods_it() {
    if !is_root("connections_come_about_behind_a_guard_whatever_floods_it") {
        return;
    }
    let output = text(&bench(&["guard", effort()]));
    let figure = |id: &str| values(&output, id)[0];
    for lane in ["limit", "over", "connection", "syn"] {
        assert!(figure(&format!("guard.{lane}.ns")) > 0.0, "{output}");
    }
    assert!(figure("guard.kept_percent") > 0.0, "{output}");
}
