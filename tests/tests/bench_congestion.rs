//! The promise: congestion signals and refusal are measured beside what there is without them.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::skip::is_root;

// promise: 13.11
#[test]
fn what_signals_cost_is_measured_by_batch() {
    if !is_root("what_signals_cost_is_measured_by_batch") {
        return;
    }
    // Checks the presence of figures, not their values: the difference of two variants may be anything on a busy
    // machine.
    let output = text(&bench(&["red4-cost", effort()]));
    for id in ["red4.cost_ns", "red4.marked_ns"] {
        assert_eq!(values(&output, id).len(), 1, "{output}");
        assert_eq!(values(&output, id.trim_start_matches("red4")).len(), 4);
    }
}

// promise: 13.12
#[test]
fn what_signals_gain_is_told_beside_what_there_is_without_them() {
    if !is_root("what_signals_gain_is_told_beside_what_there_is_without_them") {
        return;
    }
    let output = text(&bench(&["red4", effort()]));
    for id in [
        "red4.16.delay_us",
        "red4.16.delay_off_us",
        "red4.16.delay_red4_us",
    ] {
        let found = values(&output, id);
        assert!(found.len() == 1 && found[0] > 0.0, "{id}: {output}");
    }
    for id in [
        "red4.16.unfairness_percent",
        "red4.16.lost_on",
        "red4.16.lost_off",
    ] {
        let found = values(&output, id);
        assert!((0.0..=100.0).contains(&found[0]), "{id}: {output}");
    }
    let off = values(&output, "off.marked_percent");
    assert_eq!(off, [0.0], "nobody asked for marks: {output}");
}

// promise: 13.12
#[test]
fn two_subflows_are_measured_or_the_kernel_lacks_them() {
    if !is_root("two_subflows_are_measured_or_the_kernel_lacks_them") {
        return;
    }
    let output = bench(&["red4-mptcp", effort()]);
    if output.status.code() == Some(3) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("MPTCP"), "{errors}");
        return;
    }
    let output = text(&output);
    for signals in ["off", "self_tuning"] {
        let part = values(&output, &format!("{signals}.multipath_percent"));
        assert!((0.0..=100.0).contains(&part[0]), "{output}");
        let subflows = values(&output, &format!("{signals}.cheap.subflow_mbps"));
        assert!(subflows[0] > 0.0, "{output}");
    }
}

// promise: 13.12
#[test]
fn refusal_spares_the_work_on_frames_that_die() {
    if !is_root("refusal_spares_the_work_on_frames_that_die") {
        return;
    }
    // The experiment itself fails if counters do not agree.
    one_holds(
        "percent of the CPU time that is wasted, with refusal and without",
        || {
            let output = text(&bench(&["refusal", effort()]));
            let one = |id: &str| values(&output, id)[0];
            assert!(one("refusal.off.chain_kpps") > 0.0, "{output}");
            assert!(one("refusal.on.chain_kpps") > 0.0, "{output}");
            assert_eq!(one("refusal.off.refused_percent"), 0.0, "{output}");
            let refused = one("refusal.on.refused_percent");
            let wasted =
                ["on", "off"].map(|lane| one(&format!("refusal.{lane}.wasted_cpu_percent")));
            (wasted, refused)
        },
        |([with, without], refused)| with < without && *refused > 0.0,
    );
}

// promise: 13.11
#[test]
fn what_idle_instances_cost_the_congestion_thread_is_measured() {
    if !is_root("what_idle_instances_cost_the_congestion_thread_is_measured") {
        return;
    }
    let output = text(&bench(&["congestion", effort()]));
    for id in [
        "congestion.100.off_cpu_percent",
        "congestion.100.idle_cpu_percent",
        "congestion.100.busy_cpu_percent",
        "congestion.idle_cpu_percent",
    ] {
        assert!(values(&output, id)[0] >= 0.0, "{id}: {output}");
    }
}
