//! The program: what it prints and writes, and with which code it ends.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

fn sim(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfluid-sim"));
    command.args(arguments).arg("--results").arg(folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// As short as it gets.
const SHORT: [&str; 5] = ["--quick", "--seconds", "1", "--repetitions", "1"];

fn short(experiment: &str, more: &[&str], folder: &Path) -> Output {
    let arguments = [&[experiment], &SHORT[..], more].concat();
    sim(&arguments, folder)
}

// promise: 14.1
#[test]
fn the_same_seed_prints_and_writes_the_same_bytes() {
    let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let run = |folder: &Path, seed: &str| {
        let output = short("line", &["--seed", seed], folder);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json = std::fs::read(folder.join("line.json")).unwrap();
        let svg = std::fs::read(folder.join("sim.line.svg")).unwrap();
        let printed = text(&output.stdout).replace(&folder.display().to_string(), "");
        (json, svg, printed)
    };
    let first = run(folders[0].path(), "9");
    assert!(
        first == run(folders[1].path(), "9"),
        "another outcome with the same seed"
    );
    assert!(
        first.0 != run(folders[1].path(), "10").0,
        "the seed has no effect"
    );
}

// promise: 14.1
#[test]
fn figures_on_the_terminal_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures");
    let output = short(
        "two-flows",
        &["--json", file.to_str().unwrap()],
        folder.path(),
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let figures = record["figures"].as_array().unwrap();
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed
        .lines()
        .filter(|l| l.starts_with("figure "))
        .collect();
    assert_eq!(lines.len(), figures.len());
    for (line, figure) in lines.iter().zip(figures) {
        let id = figure["id"].as_str().unwrap();
        assert!(line.starts_with(&format!("figure {id} ")), "{line}");
    }
    assert!(
        printed.contains("figure sim.red4mq.two_flows_percent "),
        "{printed}"
    );
    assert!(folder.path().join("sim.two_flows.svg").exists());
}

// promise: 14.1
#[test]
fn every_experiment_of_the_list_runs() {
    let folder = tempfile::tempdir().unwrap();
    let list = text(&sim(&["list"], folder.path()).stdout);
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        names,
        ["two-flows", "line", "batch", "pooling", "thresholds"]
    );
    let output = short("all", &[], folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in names {
        assert!(
            folder.path().join(format!("{name}.json")).exists(),
            "{name}"
        );
    }
}

#[test]
fn completions_name_the_experiments() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = sim(&["completion", shell], folder.path());
        assert!(output.status.success() && text(&output.stdout).contains("two-flows"));
    }
}

// promise: 14.3
#[test]
fn absurd_numbers_are_refused_with_the_bounds() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["line", "--seconds", "0"][..],
        &["line", "--seconds", "99999999999999999999"],
        &["line", "--seconds=-1"],
        &["line", "--round-trip-us", "0"],
        &["line", "--target-us", "18446744073709551615"],
        &["line", "--repetitions", "0"],
        &["line", "--control", "vegas"],
        &["line", "--seed", "x"],
        &["nothing"],
        &[],
    ] {
        let output = sim(arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}

// promise: 14.3
#[test]
fn too_much_is_refused_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let output = sim(
        &["line", "--seconds", "3600", "--repetitions", "1000"],
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("simulate a shorter time"), "{error}");
}

#[test]
fn results_that_cannot_be_written_are_an_error_that_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = short("batch", &[], &file);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("file"),
        "{}",
        text(&output.stderr)
    );
}

// promise: 14.4
#[test]
fn signals_by_cost_reach_the_optimum_where_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let figures = |experiment: &str| {
        let output = sim(&[experiment, "--quick"], folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let printed = figures("two-flows") + &figures("line");
    let figure = |id: &str| -> f64 {
        let mut lines = printed
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let line = lines.find(|words| words.get(1) == Some(&id)).unwrap();
        line[2].parse().unwrap()
    };
    assert!(figure("sim.red4mq.two_flows_percent") <= 5.0, "{printed}");
    assert!(figure("sim.red4mq.line_percent") <= 5.0, "{printed}");
    assert!(
        figure("sim.redmq.two_flows_percent") > 50.0,
        "without the cost: {printed}"
    );
    // Half of every core: (n - 1) / 2 of n + 1 is lost, 30 % at n = 4.
    assert!(
        (figure("sim.cpu_fair.line_percent") - 30.0).abs() < 1.0,
        "{printed}"
    );
}
