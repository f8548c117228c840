//! Programs that a test runs to their end.

pub use nfluid_testbed::command::Outcome;
use nfluid_testbed::command::of_line;
use std::process::Command;

/// Runs a command.
///
/// # Panics
/// If the program does not exist.
pub fn run_command(command: &mut Command) -> Outcome {
    Outcome::of(command).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Runs a command that must succeed.
///
/// # Panics
/// If the program does not exist, or fails; with all that it has said.
pub fn must_run(command: &mut Command) -> Outcome {
    let outcome = run_command(command);
    assert!(
        outcome.succeeded(),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    outcome
}

/// Runs a program with words as arguments.
///
/// # Panics
/// If the program does not exist.
pub fn run(line: &str) -> Outcome {
    run_command(&mut of_line(line))
}

/// Runs a program that must succeed; returns its standard output.
///
/// # Panics
/// If the program fails.
pub fn must(line: &str) -> String {
    must_with_input(line, "")
}

/// As [`must`], with this standard input.
///
/// # Panics
/// If the program fails.
pub fn must_with_input(line: &str, input: &str) -> String {
    let outcome = Outcome::with_input(&mut of_line(line), input);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(outcome.succeeded(), "{line}: {outcome:?}");
    outcome.stdout
}
