//! The promise: experiments can be listed, run, interrupted, and say the same on the terminal, in JSON and on the page
//! of all results.

use nfluid_tests::harness::command::run;
use nfluid_tests::harness::experiments::{bench, bench_into, effort, text};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::skip::is_root;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};

// promise: 13.1
#[test]
fn the_list_names_each_experiment() {
    let list = text(&bench(&["list"]));
    let line_of = |name: &str| {
        let words = list.lines().map(|line| line.split_whitespace());
        let mut lines = words.map(|words| words.collect::<Vec<_>>());
        lines.find(|words| words.first() == Some(&name))
    };
    for name in [
        "hyperio",
        "noisy",
        "red4",
        "refusal",
        "congestion",
        "efw",
        "elb",
        "guard",
        "nonf",
        "nf",
        "wake",
        "chain",
        "routes",
        "rules",
        "footprint",
        "peers",
        "iperf3",
        "super",
        "restart",
        "upgrade",
        "scaleout",
    ] {
        assert!(line_of(name).is_some(), "no {name} in {list}");
    }
    for (name, id) in [
        ("static-split", "h2"),
        ("sync-roundtrip", "h3"),
        ("sync-cost", "h4"),
        ("io-models", "h5"),
        ("nic-transmit", "h6"),
        ("consolidation", "h7"),
        ("shares", "h8"),
        ("dynamic-load", "h10"),
        ("chain-models", "h11"),
        ("chain-peers", "h11peers"),
        ("core-sharing", "r1"),
        ("ring-size", "r2"),
        ("cost-fairness", "r3"),
        ("busy-core", "r4"),
        ("firewall-dpi", "e5"),
        ("elephants", "e6"),
        ("http-balancing", "e7"),
        ("tail-call", "e8"),
        ("red4-cost", "red4cost"),
        ("red4-mptcp", "red4mptcp"),
        ("polling-nfs", "d1"),
        ("sleeping-nfs", "d2"),
        ("shared-ring", "d3"),
        ("flow-steering", "d4"),
        ("isolated-buffers", "d5"),
        ("creation", "l2"),
        ("creation-peers", "l2peers"),
        ("density", "l6"),
        ("save-restore", "l7"),
        ("migration", "l7migrate"),
        ("pause", "l8"),
        ("personal-firewalls", "l10"),
        ("just-in-time", "l11"),
        ("tls-termination", "l12"),
        ("compute-service", "l13"),
        ("share-change", "share"),
        ("dataflow-queues", "m5"),
        ("dataflow-schedules", "m6"),
        ("dataflow-tasks", "m7"),
    ] {
        let line = line_of(name).unwrap_or_else(|| panic!("no {name} in {list}"));
        assert_eq!(line[1], id, "{name} without its former name: {list}");
    }
}

// promise: 13.1
#[test]
fn an_experiment_is_found_by_name_and_by_id() {
    let packages = |name: &str| text(&bench(&["packages", name]));
    assert_eq!(packages("consolidation"), packages("h7"));
    let output = bench(&["packages", "consolidtion"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("did you mean 'consolidation'?"), "{errors}");
}

#[test]
fn an_unknown_experiment_is_an_error() {
    let output = bench(&["nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no experiment 'nonsense'"));
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

// promise: 13.3
#[test]
fn an_interrupted_experiment_leaves_nothing_behind() {
    if !is_root("an_interrupted_experiment_leaves_nothing_behind") {
        return;
    }
    let pages = || std::fs::read_to_string("/proc/sys/vm/nr_hugepages").expect("it is there");
    let before = pages();
    let others = || run("pgrep -x nfluid-bench").stdout.lines().count();
    let alone_at_first = others() == 0;
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
    // An error means that the process has ended, because it found no peer to compare with on this host.
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(130 | 3)), "{errors}");
    assert_eq!(namespaces(), 0, "{errors}");
    let after = pages();
    // Another experiment that runs at one of the two times may have reserved pages of its own then.
    if alone_at_first && others() == 0 {
        assert_eq!(after, before);
    }
}
