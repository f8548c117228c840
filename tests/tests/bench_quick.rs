//! The promise: experiments can be listed, run quickly, and say the same on the terminal and in JSON.

use nfluid_tests::harness::command::run;
use nfluid_tests::harness::measure::one_holds;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::skip::is_root;
use nfluid_tests::harness::soak;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Its results are thrown away.
fn bench(arguments: &[&str]) -> Output {
    let results = tempfile::tempdir().expect("a folder");
    bench_into(results.path(), arguments)
}

fn bench_into(results: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program("nfluid-bench"));
    command.args(arguments).arg("--results").arg(results);
    command.output().expect("it can be started")
}

/// How long experiments measure. `make test` checks that they run and hand in their figures; `make soak` runs them with
/// --quick.
fn effort() -> &'static str {
    if soak::is_on() { "--quick" } else { "--brief" }
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout.clone()).expect("text")
}

// promise: 13.1
#[test]
fn the_list_names_each_experiment() {
    let list = text(&bench(&["list"]));
    let names: Vec<_> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for name in [
        "hyperio",
        "h6",
        "h8",
        "noisy",
        "red4",
        "red4cost",
        "red4mptcp",
        "refusal",
        "congestion",
        "d4",
        "e5",
        "e6",
        "efw",
        "elb",
        "guard",
        "h11peers",
        "nonf",
        "nf",
        "wake",
        "chain",
        "routes",
        "rules",
        "footprint",
        "peers",
        "iperf3",
        "restart",
        "share",
        "l2",
        "l6",
        "l12",
        "l13",
        "l2peers",
        "l7",
        "l7migrate",
        "l8",
        "l10",
        "l11",
        "upgrade",
        "scaleout",
    ] {
        assert!(names.contains(&name), "no {name} in {list}");
    }
}

#[test]
fn an_unknown_experiment_is_an_error() {
    let output = bench(&["nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no experiment 'nonsense'"));
}

/// Values of the figures whose names end so.
fn values(output: &str, ending: &str) -> Vec<f64> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("figure "))
        .filter_map(|figure| figure.split_once(' '))
        .filter(|(id, _)| id.ends_with(ending))
        .map(|(_, value)| value.split(' ').next().expect("a value").parse())
        .map(|value| value.expect("a number"))
        .collect()
}

// promise: 13.2
#[test]
fn memif_is_compared_with_or_named_with_its_package() {
    if !is_root("memif_is_compared_with_or_named_with_its_package") {
        return;
    }
    let output = text(&bench(&["nonf", effort()]));
    assert!(values(&output, "nonf.64.mpps")[0] > 0.0, "{output}");
    let mut compared = values(&output, ".vs_memif");
    compared.extend(values(&output, ".vs_memif_copied"));
    if compared.is_empty() {
        assert!(output.contains("apt-get install"), "{output}");
        assert!(output.contains("libdpdk-dev"), "{output}");
    } else {
        assert_eq!(compared.len(), 4, "64 and 1514 bytes: {output}");
        assert!(compared.iter().all(|ratio| *ratio > 0.0), "{output}");
    }
}

// promise: 13.2
#[test]
fn peers_are_measured_or_left_out_by_name() {
    if !is_root("peers_are_measured_or_left_out_by_name") {
        return;
    }
    let output = text(&bench(&["peers", effort()]));
    for peer in [
        "nfluid_link",
        "nfluid_bridge",
        "linux_bridge",
        "linux_nftables",
        "xdp_redirect",
        "testpmd_memif",
        "ovs_dpdk",
    ] {
        let left_out = output.contains(&format!("{peer} left out: "));
        let rates: Vec<f64> = ["64", "1514"]
            .iter()
            .flat_map(|len| values(&output, &format!("peers.{peer}.{len}.mpps")))
            .collect();
        let expected = if left_out { 0 } else { 2 };
        assert_eq!(rates.len(), expected, "{peer}: {output}");
        assert!(rates.iter().all(|rate| *rate > 0.0), "{peer}: {output}");
        let idle = values(&output, &format!("peers.{peer}.idle_cpu_percent"));
        assert_eq!(idle.is_empty(), left_out, "{peer}: {output}");
    }
}

#[test]
fn senders_and_uplinks_send_out_of_an_interface() {
    if !is_root("senders_and_uplinks_send_out_of_an_interface") {
        return;
    }
    let output = text(&bench(&["h6", effort()]));
    for by in ["hvd", "ddd", "ddd_one_core"] {
        for len in [64, 1514] {
            let rates = values(&output, &format!("h6.{by}.{len}.mpps"));
            assert!(rates.len() == 1 && rates[0] > 0.0, "{by}: {output}");
        }
    }
}

// promise: 13.8
#[test]
fn a_wire_leads_straight_into_nfs_or_by_a_switch() {
    if !is_root("a_wire_leads_straight_into_nfs_or_by_a_switch") {
        return;
    }
    let output = text(&bench(&["d4", effort()]));
    for lane in [
        "one.classified.1",
        "one.switch.1",
        "hybrid.0",
        "hybrid.50",
        "hybrid.100",
    ] {
        let rates = values(&output, &format!("d4.{lane}.64.mpps"));
        assert!(rates.len() == 1 && rates[0] > 0.0, "{lane}: {output}");
    }
    for nfs in [2, 100] {
        crowd_is_measured(&output, &format!("d4.{nfs}"));
        crowd_is_measured(&output, &format!("d4.switch.{nfs}"));
    }
    // Of each number throughput and latency of very many, throughput and its cost of the first hop alone.
    assert_eq!(values(&output, "_vs_switch").len(), 6, "{output}");
}

/// Throughput, latency, CPU time and memory.
fn crowd_is_measured(output: &str, id: &str) {
    for what in ["gbps", "mpps", "latency_ms", "p99_ms", "cpu_percent", "mb"] {
        let found = values(output, &format!("{id}.{what}"));
        assert!(found.len() == 1 && found[0] > 0.0, "{id}.{what}: {output}");
    }
}

// promise: 13.8
#[test]
fn a_nic_that_cannot_steer_flows_is_refused_with_the_alternative() {
    if !is_root("a_nic_that_cannot_steer_flows_is_refused_with_the_alternative") {
        return;
    }
    let output = bench(&["d4", effort(), "--nic", "lo"]);
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("lo cannot steer flows"), "{errors}");
    assert!(errors.contains("by XDP"), "{errors}");
}

// promise: 13.4
#[test]
fn tcp_through_the_demos_chain_is_compared_with_the_kernels() {
    if !is_root("tcp_through_the_demos_chain_is_compared_with_the_kernels") {
        return;
    }
    let output = text(&bench(&["iperf3", effort()]));
    for figure in [
        "demo.iperf3.gbps",
        "demo.iperf3.offloads_off_gbps",
        "demo.iperf3.kernel_gbps",
        "demo.iperf3.vs_kernel",
    ] {
        let values = values(&output, figure);
        assert_eq!(values.len(), 1, "{figure}: {output}");
        assert!(values[0] > 0.0, "{figure}: {output}");
    }
}

// promise: 13.5
#[test]
fn what_a_restart_costs_is_counted_in_packets() {
    if !is_root("what_a_restart_costs_is_counted_in_packets") {
        return;
    }
    let output = text(&bench(&["restart", effort()]));
    let one = |figure: &str| {
        let start = format!("figure {figure} ");
        let line = output.lines().find(|line| line.starts_with(&start));
        values(line.unwrap_or_default(), figure)[0]
    };
    for lane in [
        "restart",
        "restart.10k",
        "restart.100ms",
        "restart.100ms.10k",
        "restart.request",
        "restart.replace",
        "restart.none",
        "restart.none.10k",
    ] {
        // How much depends on what else the machine does; that some arrived does not.
        assert!(one(&format!("{lane}.lost_packets")) >= 0.0, "{output}");
        assert!(one(&format!("{lane}.gap_ms")) > 0.0, "{output}");
    }
}

// promise: 5.17
#[test]
fn new_instances_forward_and_are_compared_with_processes() {
    if !is_root("new_instances_forward_and_are_compared_with_processes") {
        return;
    }
    let output = text(&bench(&["l2", effort()]));
    for figure in [
        "l2.plain.1",
        "l2.plain.20",
        "l2.lean.1",
        "l2.lean.20",
        "l2.lean_pool.1",
        "l2.lean_pool.20",
        "l2.batched.1",
        "l2.batched.20",
        "l2.nopool.1",
        "l2.nopool.20",
        "l2.pool.1",
        "l2.pool.20",
        "l2.process",
        "l2.unshare",
    ] {
        let times = values(&output, &format!("{figure}.median_ms"));
        assert!(times.len() == 1 && times[0] > 0.0, "{figure}: {output}");
    }
    for phase in [
        "request", "check", "shell", "limits", "tell", "start", "connect",
    ] {
        let times = values(&output, &format!("l2.pool.20.phase.{phase}_ms"));
        assert!(times.len() == 1 && times[0] >= 0.0, "{phase}: {output}");
    }
    for peer in ["bubblewrap", "crun", "runc"] {
        let left_out = output.contains(&format!("{peer} left out: "));
        let times = values(&output, &format!("l2.{peer}.median_ms"));
        assert_eq!(times.is_empty(), left_out, "{peer}: {output}");
    }
}

#[test]
fn idle_instances_are_counted_and_weighed() {
    if !is_root("idle_instances_are_counted_and_weighed") {
        return;
    }
    let output = text(&bench(&["l6", effort()]));
    assert_eq!(values(&output, "l6.instances"), [100.0], "{output}");
    for figure in ["l6.process_mb", "l6.maps_mb"] {
        let each = values(&output, figure);
        assert!(each.len() == 1 && each[0] > 0.0, "{figure}: {output}");
    }
    for figure in [
        "l6.instance_mb",
        "l6.idle_cpu_percent",
        "l6.idle_stateful_cpu_percent",
    ] {
        // What else the machine does is in it.
        assert_eq!(values(&output, figure).len(), 1, "{figure}: {output}");
    }
}

#[test]
fn instances_are_paused_saved_restored_and_upgraded_under_traffic() {
    if !is_root("instances_are_paused_saved_restored_and_upgraded_under_traffic") {
        return;
    }
    hands_in("l7", &["l7.save_ms", "l7.restore_ms"]);
    hands_in(
        "l8",
        &["l8.pause_ms", "l8.unpause_ms", "l8.bypass.pause_ms"],
    );
}

#[test]
fn instances_are_upgraded_under_traffic() {
    if !is_root("instances_are_upgraded_under_traffic") {
        return;
    }
    let output = hands_in("upgrade", &["upgrade.took_ms", "upgrade.silent_ms"]);
    // How many are lost on a machine with much else to do says nothing; that it is counted does.
    assert!(output.contains("figure upgrade.lost "), "{output}");
}

#[test]
fn instances_move_to_another_host_under_traffic() {
    if !is_root("instances_move_to_another_host_under_traffic") {
        return;
    }
    let figures = ["l7.migrate_blocked_ms", "l7.migrate_took_ms"];
    hands_in("l7migrate", &figures);
}

#[test]
fn members_come_and_go_under_traffic() {
    if !is_root("members_come_and_go_under_traffic") {
        return;
    }
    let figures = ["scaleout.1to2.held_ms", "scaleout.4to1.held_ms"];
    hands_in("scaleout", &figures);
}

/// Runs an experiment, checks that it measures each of these figures once and none is 0, and returns its output.
fn hands_in(experiment: &str, figures: &[&str]) -> String {
    let output = text(&bench(&[experiment, effort()]));
    for figure in figures {
        let times = values(&output, figure);
        assert!(times.len() == 1 && times[0] > 0.0, "{figure}: {output}");
    }
    assert_eq!(
        output.contains("figure upgrade.lost "),
        experiment == "upgrade",
        "{output}"
    );
    output
}

#[test]
fn frames_pass_personal_firewalls() {
    if !is_root("frames_pass_personal_firewalls") {
        return;
    }
    let output = text(&bench(&["l10", effort()]));
    for active in [1, 31] {
        for figure in ["mbps_each", "sent_mbps_each", "p99_ms"] {
            let found = values(&output, &format!("l10.{active}.{figure}"));
            assert!(
                found.len() == 1 && found[0] > 0.0,
                "{active} {figure}: {output}"
            );
        }
        let added = values(&output, &format!("l10.{active}.added_latency_ms"));
        assert_eq!(added.len(), 1, "{output}");
    }
}

#[test]
fn first_datagrams_of_new_clients_are_answered() {
    if !is_root("first_datagrams_of_new_clients_are_answered") {
        return;
    }
    let output = text(&bench(&["l11", effort()]));
    for gap in [25, 10, 5, 1] {
        for figure in ["median_ms", "p99_ms", "known_ms"] {
            let times = values(&output, &format!("l11.{gap}.{figure}"));
            assert!(
                times.len() == 1 && times[0] > 0.0,
                "{gap} {figure}: {output}"
            );
        }
        assert_eq!(values(&output, &format!("l11.{gap}.lost")).len(), 1);
    }
}

// promise: 13.10
#[test]
fn a_change_of_shares_is_followed() {
    if !is_root("a_change_of_shares_is_followed") {
        return;
    }
    let output = text(&bench(&["share", effort()]));
    for figure in ["share.change_ms", "share.apply_ms", "share.kept_percent"] {
        let start = format!("figure {figure} ");
        let line = output.lines().find(|line| line.starts_with(&start));
        let value = values(line.unwrap_or_default(), figure)[0];
        assert!(value >= 0.0, "{output}");
    }
}

// promise: 13.3
#[test]
fn an_interrupted_experiment_leaves_nothing_behind() {
    if !is_root("an_interrupted_experiment_leaves_nothing_behind") {
        return;
    }
    let pages = || std::fs::read_to_string("/proc/sys/vm/nr_hugepages").expect("it is there");
    let before = pages();
    let results = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(program("nfluid-bench"))
        .arg("peers")
        .arg("--results")
        .arg(results.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let prefix = format!("nfl-{}-", child.id());
    let namespaces = || run("ip netns list").stdout.matches(&prefix).count();
    eventually("it has made all its namespaces", || {
        let over = child.try_wait().expect("it can be asked").is_some();
        over || namespaces() >= 18
    });
    // What it says if it has ended: that nothing here can be compared with.
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(130 | 3)), "{errors}");
    assert_eq!(namespaces(), 0, "{errors}");
    assert_eq!(pages(), before);
}

// promise: 13.11
#[test]
fn what_signals_cost_is_measured_by_batch() {
    if !is_root("what_signals_cost_is_measured_by_batch") {
        return;
    }
    // What is measured, not how much: a difference of two lanes may be anything on a busy machine.
    let output = text(&bench(&["red4cost", effort()]));
    for id in ["red4.cost_ns", "red4.marked_ns"] {
        assert_eq!(values(&output, id).len(), 1, "{output}");
        assert_eq!(values(&output, id.trim_start_matches("red4")).len(), 4);
    }
}

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
    let output = bench(&["red4mptcp", effort()]);
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
    // It fails by itself if counters do not agree.
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

// promise: 13.7
#[test]
fn an_io_thread_takes_longer_than_a_hyperio_call() {
    if !is_root("an_io_thread_takes_longer_than_a_hyperio_call") {
        return;
    }
    // Two switches between processes against none, on whatever machine.
    one_holds(
        "the time of an I/O thread, in that of a call",
        || values(&text(&bench(&["h3", effort()])), "h3.roundtrip_ratio")[0],
        |ratio| *ratio > 1.0,
    );
}

// promise: 13.7
#[test]
fn the_switch_sees_the_batch_that_an_inline_sender_asks_for() {
    if !is_root("the_switch_sees_the_batch_that_an_inline_sender_asks_for") {
        return;
    }
    let output = text(&bench(&["h4", effort()]));
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
    let output = text(&bench(&["h2", effort()]));
    assert_eq!(values(&output, ".best_nf_percent").len(), 4, "{output}");
    assert!(
        values(&output, "_mpps").iter().all(|mpps| *mpps > 0.0),
        "{output}"
    );
    let output = text(&bench(&["h8", effort()]));
    for model in ["inline", "split", "split-polling", "merge", "mix"] {
        let figure = format!("h8.A.{model}.error_percent_max");
        assert_eq!(values(&output, &figure).len(), 1, "{figure}: {output}");
    }
    for figure in ["h8.virtual", "h8.uplink", "h8.ten"] {
        let figure = format!("{figure}.max_error_percent");
        assert_eq!(values(&output, &figure).len(), 1, "{figure}: {output}");
    }
}

// promise: 13.9
#[test]
fn a_trust_group_is_compared_with_memory_of_its_own() {
    if !is_root("a_trust_group_is_compared_with_memory_of_its_own") {
        return;
    }
    let output = text(&bench(&["d5", effort()]));
    for nfs in [2, 100] {
        crowd_is_measured(&output, &format!("d5.{nfs}"));
        crowd_is_measured(&output, &format!("d5.shared.{nfs}"));
    }
    // In a row: three lengths, and the round trip.
    assert_eq!(values(&output, "shared_vs_isolated").len(), 4, "{output}");
    assert_eq!(values(&output, "_vs_shared").len(), 4, "{output}");
    assert!(
        values(&output, ".mpps_per_cpu")
            .iter()
            .all(|mpps| *mpps > 0.0),
        "{output}"
    );
}

// promise: 13.6
#[test]
fn results_are_joined_into_one_page() {
    if !is_root("results_are_joined_into_one_page") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    let missing = bench_into(folder.path(), &["report"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no results in"));
    let output = text(&bench_into(folder.path(), &["hyperio", effort()]));
    assert!(
        output.contains("hyperio.frames.svg, hyperio.json"),
        "it says where: {output}"
    );
    assert!(read("hyperio.frames.svg").contains("batch 256"));
    text(&bench_into(folder.path(), &["report"]));
    for page in [read("report.html"), read("report.md")] {
        for id in ["hyperio.call_ratio", "nfluid-bench hyperio --quick", "H3"] {
            assert!(page.contains(id), "no {id} in {page}");
        }
    }
    std::fs::write(folder.path().join("damaged.json"), "{").expect("it can be written");
    let damaged = bench_into(folder.path(), &["report"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("damaged.json"));
}

// promise: 13.1
#[test]
fn figures_on_the_terminal_are_those_of_the_file() {
    if !is_root("figures_on_the_terminal_are_those_of_the_file") {
        return;
    }
    let file = std::env::temp_dir().join(format!("nfluid-bench-{}.json", std::process::id()));
    let path = file.to_str().expect("a path in text");
    let output = bench(&["hyperio", effort(), "--json", path]);
    let written = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    let printed = text(&output);
    let printed: Vec<_> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("figure "))
        .map(|figure| {
            let words: Vec<_> = figure.split(' ').collect();
            assert_eq!(words.len(), 3, "not 'figure ID VALUE UNIT': {figure}");
            let value: f64 = words[1].parse().expect("a number");
            assert!(value.is_finite() && value > 0.0, "{figure}");
            words[0].to_owned()
        })
        .collect();
    assert!(printed.contains(&"hyperio.call_ratio".to_owned()));
    let json: serde_json::Value =
        serde_json::from_str(&written.expect("the file was written")).expect("valid JSON");
    let figures = json["figures"].as_array().expect("a list of figures");
    let ids: Vec<_> = figures.iter().map(|f| f["id"].as_str().unwrap()).collect();
    assert_eq!(printed, ids);
    assert_eq!(json["quick"], true);
    assert!(json["environment"]["kernel"].is_string());
}

// promise: 13.15
#[test]
fn programs_are_run_by_the_daemon_and_by_others() {
    if !is_root("programs_are_run_by_the_daemon_and_by_others") {
        return;
    }
    let output = bench(&["l13", effort()]);
    if output.status.code() == Some(3) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("python3"), "{errors}");
        return;
    }
    let output = text(&output);
    for way in ["process", "nfluid", "unshare", "bubblewrap", "crun", "runc"] {
        let left_out = output.contains(&format!("{way} left out: "));
        for load in [50, 107] {
            let median = values(&output, &format!("l13.{way}.{load}.median_ms"));
            assert_eq!(median.is_empty(), left_out, "{way}: {output}");
            let rate = values(&output, &format!("l13.{way}.{load}.rate_per_s"));
            assert!(median.into_iter().chain(rate).all(|value| value > 0.0));
        }
    }
    assert!(!output.contains("nfluid left out: "), "{output}");
    assert_eq!(values(&output, ".created_ms").len(), 2, "{output}");
}

// promise: 13.16
#[test]
fn others_start_beside_none_and_many_instances() {
    if !is_root("others_start_beside_none_and_many_instances") {
        return;
    }
    let output = text(&bench(&["l2peers", effort()]));
    for way in ["nfluid", "nfluid_packet", "process"] {
        for idle in [0, 10] {
            let median = values(&output, &format!("l2peers.{way}.{idle}.median_ms"));
            assert!(median.len() == 1 && median[0] > 0.0, "{way}: {output}");
        }
    }
    for way in ["unshare", "bubblewrap", "crun", "runc"] {
        let left_out = output.contains(&format!("{way} left out: "));
        let found = values(&output, &format!("l2peers.{way}.10.median_ms"));
        assert_eq!(found.is_empty(), left_out, "{way}: {output}");
    }
}
