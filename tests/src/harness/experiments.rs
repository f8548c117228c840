//! Runs of `nfluid-bench`, and the figures that they print.

use crate::harness::program::program;
use crate::harness::soak;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `nfluid-bench` with these arguments and discards the results.
///
/// # Panics
/// The program cannot be started.
pub fn bench(arguments: &[&str]) -> Output {
    let results = tempfile::tempdir().expect("a folder");
    bench_into(results.path(), arguments)
}

/// Runs `nfluid-bench` with these arguments; the results go to the folder `results`.
///
/// # Panics
/// The program cannot be started.
pub fn bench_into(results: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program("nfluid-bench"));
    command.args(arguments).arg("--results").arg(results);
    command.output().expect("it can be started")
}

/// Returns the option for the measuring time: `make test` checks that experiments run and print their figures; `make
/// soak` runs them with `--quick`.
pub fn effort() -> &'static str {
    if soak::is_on() { "--quick" } else { "--brief" }
}

/// Returns the standard output of a run that succeeded.
///
/// # Panics
/// The run failed; shows its standard error.
pub fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Returns the values of the figures whose ids end with `ending`.
///
/// # Panics
/// A figure has no number.
pub fn values(output: &str, ending: &str) -> Vec<f64> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("figure "))
        .filter_map(|figure| figure.split_once(' '))
        .filter(|(id, _)| id.ends_with(ending))
        .map(|(_, value)| value.split(' ').next().expect("a value").parse())
        .map(|value| value.expect("a number"))
        .collect()
}
