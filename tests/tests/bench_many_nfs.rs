//! The promise: thousands of small NFs are measured by how frames find them and whose memory they are in.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::skip::is_root;

// promise: 13.8
#[test]
fn a_wire_leads_straight_into_nfs_or_by_a_switch() {
    if !is_root("a_wire_leads_straight_into_nfs_or_by_a_switch") {
        return;
    }
    let output = text(&bench(&["flow-steering", effort()]));
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

// promise: 13.8
#[test]
fn a_nic_that_cannot_steer_flows_is_refused_with_the_alternative() {
    if !is_root("a_nic_that_cannot_steer_flows_is_refused_with_the_alternative") {
        return;
    }
    let output = bench(&["flow-steering", effort(), "--nic", "lo"]);
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("lo cannot steer flows"), "{errors}");
    assert!(errors.contains("by XDP"), "{errors}");
}

// promise: 13.9
#[test]
fn a_trust_group_is_compared_with_memory_of_its_own() {
    if !is_root("a_trust_group_is_compared_with_memory_of_its_own") {
        return;
    }
    let output = text(&bench(&["isolated-buffers", effort()]));
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

/// Throughput, latency, CPU time and memory.
fn crowd_is_measured(output: &str, id: &str) {
    for what in ["gbps", "mpps", "latency_ms", "p99_ms", "cpu_percent", "mb"] {
        let found = values(output, &format!("{id}.{what}"));
        assert!(found.len() == 1 && found[0] > 0.0, "{id}.{what}: {output}");
    }
}
