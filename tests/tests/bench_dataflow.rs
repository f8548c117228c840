//! The promise: what a message, a task, a schedule and a subframe cost is measured, beside others in the same run.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::skip::is_root;

/// Runs an experiment, and returns the only figure of each id.
fn figures(experiment: &str, ids: &[&str]) -> Vec<f64> {
    let output = text(&bench(&[experiment, effort()]));
    let figure = |id: &&str| {
        let found = values(&output, id);
        let [value] = found[..] else {
            panic!("{id}: {found:?} in {output}");
        };
        assert!(value.is_finite() && value >= 0.0, "{id}: {value}");
        value
    };
    ids.iter().map(figure).collect()
}

// promise: 13.19
#[test]
fn messages_are_measured_beside_those_of_other_queues() {
    let ids = [
        "dataflow.queue.stream1_mps",
        "dataflow.queue.stream32_mps",
        "dataflow.queue.oneway_ns",
        "dataflow.queue.rtrb.stream32_mps",
        "dataflow.queue.rtrb.oneway_ns",
        "dataflow.queue.array.oneway_ns",
        "dataflow.queue.mutex.oneway_ns",
    ];
    figures("dataflow-queues", &ids);
}

// promise: 13.19
#[test]
fn the_control_loop_and_tasks_are_measured() {
    let ids = [
        "dataflow.control.own_ns",
        "dataflow.control.on_pe_ns",
        "dataflow.control.process_ns",
        "dataflow.control.own.p999_ns",
    ];
    assert!(
        figures("dataflow-control", &ids)
            .iter()
            .all(|&value| value > 0.0)
    );
    let ids = [
        "dataflow.tasks_per_ms.gathered",
        "dataflow.utilisation.10us_percent",
        "dataflow.metg_us",
        "dataflow.makespan.vs_bound",
        "dataflow.pairs.cv_percent",
    ];
    let found = figures("dataflow-tasks", &ids);
    assert!(found[1] <= 100.0 && found[3] >= 1.0, "{found:?}");
}

// promise: 13.19
#[test]
fn schedules_are_compared_with_the_optimum_and_replayed() {
    let ids = [
        "dataflow.optimum.0.1.mcp",
        "dataflow.optimum.3.etf",
        "dataflow.replay.1_us",
        "dataflow.replay.64_us",
        "dataflow.decisions.etf_mps",
        "dataflow.compose.new_us",
    ];
    let found = figures("dataflow-schedules", &ids);
    assert!(
        found[0] >= 1.0 && found[1] >= 1.0 && found[2] > found[3],
        "{found:?}"
    );
}

// promise: 13.19
#[test]
fn a_subframe_is_measured_beside_the_serial_program_and_rayon() {
    let ids = [
        "dataflow.lte.bypass.serial_ms",
        "dataflow.lte.bypass.rayon_ms",
        "dataflow.lte.bypass.1_ms",
        "dataflow.lte.bypass.2.single_ms",
        "dataflow.lte.bypass.2.p99_ms",
        "dataflow.lte.bypass.1.process_ms",
        "dataflow.lte.turbo.serial_ms",
        "dataflow.lte.turbo.2.p99_ms",
    ];
    assert!(
        figures("dataflow-lte", &ids)
            .iter()
            .all(|&value| value > 0.0)
    );
}

// promise: 13.19
#[test]
fn an_idle_engine_is_measured() {
    let ids = [
        "dataflow.idle.timer_percent",
        "dataflow.idle.none_percent",
        "dataflow.idle.empty_percent",
    ];
    figures("dataflow-idle", &ids);
}

// promise: 13.19
#[test]
fn a_slice_in_a_chain_is_measured_at_its_pace() {
    if !is_root("a_slice_in_a_chain_is_measured_at_its_pace") {
        return;
    }
    let ids = [
        "dataflow.slice.bypass.1ms.done_percent",
        "dataflow.slice.turbo.1ms.done_percent",
        "dataflow.slice.turbo.4ms.done_percent",
    ];
    // How many this machine does in time is no promise.
    let done = figures("dataflow-slice", &ids);
    assert!(done.iter().all(|&percent| percent <= 100.0), "{done:?}");
}
