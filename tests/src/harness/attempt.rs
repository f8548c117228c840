//! Reports of the hostile test program.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

/// Result of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel performed the call, with this result.
    Done(i64),
    /// The kernel refused, with this error number.
    Refused(i32),
    /// The attempt killed the process.
    Fatal,
}

/// The report of one run: the attempts in order, each with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(pub Vec<(String, Answer)>);

impl Report {
    /// Returns the result of an attempt; `attempt` as on the command line.
    ///
    /// # Panics
    /// If the attempt was not made.
    pub fn of(&self, attempt: &str) -> Answer {
        let found = self.0.iter().find(|(name, _)| name == attempt);
        found
            .unwrap_or_else(|| panic!("{attempt} was not attempted: {self:?}"))
            .1
    }

    /// Returns the value of an attempt that must have succeeded.
    ///
    /// # Panics
    /// If the attempt failed.
    pub fn value(&self, attempt: &str) -> i64 {
        match self.of(attempt) {
            Answer::Done(value) => value,
            other => panic!("{attempt}: {other:?}"),
        }
    }
}

/// Reads reports from the read end of the program's pipe.
#[derive(Debug)]
pub struct Reports {
    lines: std::io::Lines<BufReader<File>>,
}

impl Reports {
    /// Reads from `pipe`.
    pub fn new(pipe: OwnedFd) -> Self {
        Self {
            lines: BufReader::new(File::from(pipe)).lines(),
        }
    }

    /// Waits for the result of the next attempt; `None` when the program has ended.
    ///
    /// # Panics
    /// If the report has another format.
    pub fn next_answer(&mut self) -> Option<(String, Answer)> {
        let begin = self.next_line()?;
        let name = begin
            .strip_prefix("begin ")
            .expect("an attempt begins")
            .to_owned();
        let Some(end) = self.next_line() else {
            return Some((name, Answer::Fatal));
        };
        let end = end
            .strip_prefix("end ")
            .and_then(|end| end.strip_prefix(&name));
        let words: Vec<&str> = end
            .expect("the same attempt ends")
            .split_whitespace()
            .collect();
        let answer = match words[..] {
            ["ok", value] => Answer::Done(value.parse().expect("a number")),
            ["errno", errno] => Answer::Refused(errno.parse().expect("a number")),
            _ => panic!("{name} ended with {words:?}"),
        };
        Some((name, answer))
    }

    /// Returns all results until the program ends.
    pub fn rest(mut self) -> Report {
        Report(std::iter::from_fn(|| self.next_answer()).collect())
    }

    fn next_line(&mut self) -> Option<String> {
        self.lines
            .next()
            .map(|line| line.expect("the pipe is readable"))
    }
}
