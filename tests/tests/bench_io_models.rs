//! The promise: I/O models and shares of a core are measured side by side.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::skip::is_root;

// promise: 13.7
#[test]
fn an_io_thread_takes_longer_than_a_hyperio_call() {
    if !is_root("an_io_thread_takes_longer_than_a_hyperio_call") {
        return;
    }
    // Two switches between processes against none, on whatever machine.
    one_holds(
        "the time of an I/O thread, in that of a call",
        || {
            values(
                &text(&bench(&["sync-roundtrip", effort()])),
                "h3.roundtrip_ratio",
            )[0]
        },
        |ratio| *ratio > 1.0,
    );
}

// promise: 13.7
#[test]
fn the_switch_sees_the_batch_that_an_inline_sender_asks_for() {
    if !is_root("the_switch_sees_the_batch_that_an_inline_sender_asks_for") {
        return;
    }
    let output = text(&bench(&["sync-cost", effort()]));
    for batch in [1, 16, 64] {
        let seen = values(&output, &format!("h4.inline.{batch}.seen"));
        assert_eq!(seen, [f64::from(batch)], "{output}");
        for model in ["split", "split-polling", "merge", "mix"] {
            let seen = values(&output, &format!("h4.{model}.{batch}.seen"));
            assert!(seen[0] > 0.0, "{output}");
        }
    }
}

// promise: 13.7
#[test]
fn assignments_and_shares_are_measured_in_every_model() {
    if !is_root("assignments_and_shares_are_measured_in_every_model") {
        return;
    }
    let output = text(&bench(&["static-split", effort()]));
    assert_eq!(values(&output, ".best_nf_percent").len(), 4, "{output}");
    assert!(
        values(&output, "_mpps").iter().all(|mpps| *mpps > 0.0),
        "{output}"
    );
    let output = text(&bench(&["shares", effort()]));
    for model in ["inline", "split", "split-polling", "merge", "mix"] {
        let figure = format!("h8.A.{model}.error_percent_max");
        assert_eq!(values(&output, &figure).len(), 1, "{figure}: {output}");
    }
    for figure in ["h8.virtual", "h8.uplink", "h8.ten"] {
        let figure = format!("{figure}.max_error_percent");
        assert_eq!(values(&output, &figure).len(), 1, "{figure}: {output}");
    }
}

// promise: 13.10
#[test]
fn a_change_of_shares_is_followed() {
    if !is_root("a_change_of_shares_is_followed") {
        return;
    }
    let output = text(&bench(&["share-change", effort()]));
    for figure in ["share.change_ms", "share.apply_ms", "share.kept_percent"] {
        let start = format!("figure {figure} ");
        let line = output.lines().find(|line| line.starts_with(&start));
        let value = values(line.unwrap_or_default(), figure)[0];
        assert!(value >= 0.0, "{output}");
    }
}
