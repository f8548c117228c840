//! The promise: experiments can be listed, run quickly, and say the same on the terminal and in JSON.

use nfluid_tests::harness::program::program;
use nfluid_tests::harness::skip::is_root;
use std::process::{Command, Output};

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
