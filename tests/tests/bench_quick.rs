//! The promise: experiments can be listed, run quickly, and say the same on the terminal and in JSON.

use nfluid_tests::harness::platform::{eventually, run};
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::skip::is_root;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(program("nfluid-bench"));
    command.args(arguments).output().expect("it can be started")
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_list_names_each_experiment() {
    let list = text(&bench(&["list"]));
    let names: Vec<_> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for name in [
        "hyperio",
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

#[test]
fn memif_is_compared_with_or_named_with_its_package() {
    if !is_root("memif_is_compared_with_or_named_with_its_package") {
        return;
    }
    let output = text(&bench(&["nonf", "--quick"]));
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

#[test]
fn peers_are_measured_or_left_out_by_name() {
    if !is_root("peers_are_measured_or_left_out_by_name") {
        return;
    }
    let output = text(&bench(&["peers", "--quick"]));
    for peer in [
        "nfluid_link",
        "nfluid_bridge",
        "linux_bridge",
        "linux_nftables",
        "xdp_redirect",
        "testpmd_memif",
        "testpmd_vhost",
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
fn tcp_through_the_demos_chain_is_compared_with_the_kernels() {
    if !is_root("tcp_through_the_demos_chain_is_compared_with_the_kernels") {
        return;
    }
    let output = text(&bench(&["iperf3", "--quick"]));
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

#[test]
fn what_a_restart_costs_is_counted_in_packets() {
    if !is_root("what_a_restart_costs_is_counted_in_packets") {
        return;
    }
    let output = text(&bench(&["restart", "--quick"]));
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
fn an_interrupted_experiment_leaves_nothing_behind() {
    if !is_root("an_interrupted_experiment_leaves_nothing_behind") {
        return;
    }
    let pages = || std::fs::read_to_string("/proc/sys/vm/nr_hugepages").expect("it is there");
    let before = pages();
    let mut child = Command::new(program("nfluid-bench"))
        .arg("peers")
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

#[test]
fn figures_on_the_terminal_are_those_of_the_file() {
    if !is_root("figures_on_the_terminal_are_those_of_the_file") {
        return;
    }
    let file = std::env::temp_dir().join(format!("nfluid-bench-{}.json", std::process::id()));
    let path = file.to_str().expect("a path in text");
    let output = bench(&["hyperio", "--quick", "--json", path]);
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
