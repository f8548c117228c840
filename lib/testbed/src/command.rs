//! Programs that run to their end.

use anyhow::{Context, bail};
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// What the program wrote to standard output.
    pub stdout: String,
    /// What the program wrote to standard error.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command without input.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn of(command: &mut Command) -> anyhow::Result<Self> {
        Self::with_input(command, "")
    }

    /// Runs a command with this standard input.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn with_input(command: &mut Command, input: &str) -> anyhow::Result<Self> {
        let line = shown(command);
        let stdin = if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        };
        let piped = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped.spawn().with_context(|| format!("starting {line}"))?;
        let output = thread::scope(|scope| {
            if let Some(mut pipe) = child.stdin.take() {
                // A program that does not read its input reports the reason by its exit code.
                scope.spawn(move || pipe.write_all(input.as_bytes()));
            }
            child.wait_with_output()
        });
        let output = output.with_context(|| format!("waiting for {line}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        })
    }

    /// Returns true if the program succeeded.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

/// Returns the command of a line of words: the program and its arguments.
pub fn of_line(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Runs a command without input to its end; returns its standard output.
///
/// # Errors
/// When the command cannot be started or fails, with its standard error.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    output_of(command, "")
}

/// As [`output`], with this standard input.
///
/// # Errors
/// As [`output`].
pub fn output_of(command: &mut Command, input: &str) -> anyhow::Result<String> {
    let outcome = Outcome::with_input(command, input)?;
    if !outcome.succeeded() {
        let line = shown(command);
        let ended = match outcome.code {
            Some(code) => format!("exit status: {code}"),
            None => "ended by a signal".to_owned(),
        };
        bail!("{line}: {ended}: {}", outcome.stderr.trim());
    }
    Ok(outcome.stdout)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Outcome, of_line, output};
    use std::process::Command;

    #[test]
    fn a_failing_command_says_why() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        let error = error.expect_err("it fails").to_string();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }

    #[test]
    fn input_is_read_to_its_end() {
        let text = "x".repeat(1 << 20);
        let outcome = Outcome::with_input(&mut of_line("cat"), &text).expect("cat");
        assert_eq!((outcome.succeeded(), outcome.stdout), (true, text));
    }
}
