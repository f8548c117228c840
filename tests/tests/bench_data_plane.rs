//! The promise: paths of frames are measured beside those that a user would otherwise take.

use nfluid_tests::harness::experiments::{bench, effort, text, values};
use nfluid_tests::harness::skip::{is_root, skip};

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

// promise: 13.2
#[test]
fn security_groups_are_measured_beside_the_kernels() {
    if !is_root("security_groups_are_measured_beside_the_kernels") {
        return;
    }
    let output = text(&bench(&["security-groups", effort()]));
    for way in ["guard", "hybrid", "bridge", "linux_bridge"] {
        for len in [64, 1514] {
            let rates = values(&output, &format!("m2.{way}.{len}.mpps"));
            assert!(rates.len() == 1 && rates[0] > 0.0, "{way}: {output}");
        }
    }
    assert_eq!(values(&output, ".vs_hybrid").len(), 2, "{output}");
}

// promise: 13.2
#[test]
fn netmaps_programs_are_measured_or_their_source_is_asked_for() {
    if !is_root("netmaps_programs_are_measured") {
        return;
    }
    let output = bench(&["netmap", effort()]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot run the experiment") {
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("set NETMAP_SOURCE"), "{said}");
        return;
    }
    let output = text(&output);
    for id in [
        "pktgen.64.mpps",
        "bridge.64.mpps",
        "pktgen.64.vs_own",
        "bridge.64.vs_own",
    ] {
        let found = values(&output, &format!("netmap.{id}"));
        assert!(found.len() == 1 && found[0] > 0.0, "{id}: {output}");
    }
}

// promise: 13.2
#[test]
fn programs_on_dpdk_are_measured_over_nfluids_driver_and_others() {
    if !is_root("programs_on_dpdk_are_measured_over_nfluids_driver_and_others") {
        return;
    }
    let output = bench(&["dpdk", effort()]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot run the experiment") {
        skip("programs_on_dpdk_are_measured", said.trim());
        return;
    }
    let output = text(&output);
    for place in ["", ".samecore"] {
        for len in [64, 1514] {
            let ratio = values(&output, &format!("dpdk.macswap{place}.{len}.vs_memif"));
            let is_one = ratio.len() == 1 && ratio[0] > 0.0;
            assert!(is_one || output.contains("memif left out: "), "{output}");
            let own = values(&output, &format!("dpdk.macswap{place}.{len}.per_cpu"));
            assert!(own.len() == 1 && own[0] > 0.0, "{output}");
        }
    }
}

#[test]
fn senders_and_uplinks_send_out_of_an_interface() {
    if !is_root("senders_and_uplinks_send_out_of_an_interface") {
        return;
    }
    let output = text(&bench(&["nic-transmit", effort()]));
    for by in ["hvd", "ddd", "ddd_one_core"] {
        for len in [64, 1514] {
            let rates = values(&output, &format!("h6.{by}.{len}.mpps"));
            assert!(rates.len() == 1 && rates[0] > 0.0, "{by}: {output}");
        }
    }
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
        "demo.iperf3.kernel_offloads_gbps",
        "demo.iperf3.vs_kernel_offloads",
        "demo.iperf3.vs_kernel",
        "demo.iperf3.plain_vs_kernel",
    ] {
        is_one_number(&output, figure);
    }
}

// promise: 13.4
#[test]
fn super_frames_cross_the_demos_chain_between_veths_and_between_taps() {
    if !is_root("super_frames_cross_the_demos_chain_between_veths_and_between_taps") {
        return;
    }
    let output = text(&bench(&["super", effort()]));
    assert!(
        output.contains("the uplinks' frames: super"),
        "the level is checked: {output}"
    );
    for figure in [
        "super.gbps",
        "super.tap.gbps",
        "super.kernel.gbps",
        "super.cpu_s_per_gbit.vs_kernel",
        "super.p99_us",
        "super.p99_us.vs_kernel",
        "super.jumbo.9000.gbps",
    ] {
        is_one_number(&output, figure);
    }
    let lost = values(&output, "super.retransmits_per_gb");
    assert!(lost.len() == 1 && lost[0] >= 0.0, "{output}");
}

/// Asserts that the output has one figure with this id's ending, and that the figure is more than 0.
fn is_one_number(output: &str, figure: &str) {
    let values = values(output, figure);
    assert!(
        values.len() == 1 && values[0] > 0.0,
        "{figure} is {values:?}: {output}"
    );
}
