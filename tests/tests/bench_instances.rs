//! The promise: the experiments on the life of instances, from creation to restart, and on their use cases run.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::skip::is_root;

// promise: 5.17
#[test]
fn new_instances_forward_and_are_compared_with_processes() {
    if !is_root("new_instances_forward_and_are_compared_with_processes") {
        return;
    }
    let output = text(&bench(&["creation", effort()]));
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

// promise: 13.16
#[test]
fn others_start_beside_none_and_many_instances() {
    if !is_root("others_start_beside_none_and_many_instances") {
        return;
    }
    let output = text(&bench(&["creation-peers", effort()]));
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

#[test]
fn idle_instances_are_counted_and_weighed() {
    if !is_root("idle_instances_are_counted_and_weighed") {
        return;
    }
    let output = text(&bench(&["density", effort()]));
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
        // The figure includes other activity of the machine.
        assert_eq!(values(&output, figure).len(), 1, "{figure}: {output}");
    }
}

#[test]
fn instances_are_paused_saved_restored_and_upgraded_under_traffic() {
    if !is_root("instances_are_paused_saved_restored_and_upgraded_under_traffic") {
        return;
    }
    hands_in("save-restore", &["l7.save_ms", "l7.restore_ms"]);
    hands_in(
        "pause",
        &["l8.pause_ms", "l8.unpause_ms", "l8.bypass.pause_ms"],
    );
}

#[test]
fn instances_are_upgraded_under_traffic() {
    if !is_root("instances_are_upgraded_under_traffic") {
        return;
    }
    let output = hands_in("upgrade", &["upgrade.took_ms", "upgrade.silent_ms"]);
    // The number of lost frames means nothing on a busy machine; the test checks that they are counted.
    assert!(output.contains("figure upgrade.lost "), "{output}");
}

#[test]
fn instances_move_to_another_host_under_traffic() {
    if !is_root("instances_move_to_another_host_under_traffic") {
        return;
    }
    let figures = ["l7.migrate_blocked_ms", "l7.migrate_took_ms"];
    hands_in("migration", &figures);
}

#[test]
fn members_come_and_go_under_traffic() {
    if !is_root("members_come_and_go_under_traffic") {
        return;
    }
    let figures = ["scaleout.1to2.held_ms", "scaleout.4to1.held_ms"];
    hands_in("scaleout", &figures);
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

#[test]
fn chains_over_two_hosts_are_changed() {
    if !is_root("chains_over_two_hosts_are_changed") {
        return;
    }
    let figures = [
        "chain.none.gap_ms",
        "chain.move.gap_ms",
        "chain.move.10k.gap_ms",
    ];
    let output = hands_in("chain-change", &figures);
    assert!(output.contains("figure chain.move.lost "), "{output}");
}

#[test]
fn frames_pass_personal_firewalls() {
    if !is_root("frames_pass_personal_firewalls") {
        return;
    }
    let output = text(&bench(&["personal-firewalls", effort()]));
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
    let output = text(&bench(&["just-in-time", effort()]));
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

// promise: 13.15
#[test]
fn programs_are_run_by_the_daemon_and_by_others() {
    if !is_root("programs_are_run_by_the_daemon_and_by_others") {
        return;
    }
    let output = bench(&["compute-service", effort()]);
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
