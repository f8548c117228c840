//! What the hostile test program reports.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

/// How one attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel did it; with this result.
    Done(i64),
    /// The kernel refused, with this error number.
    Refused(i32),
    /// The process did not survive it.
    Fatal,
}

/// The report of one run: attempts in their order, each with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(pub Vec<(String, Answer)>);

impl Report {
    /// The answer to an attempt, as it was given on the command line.
    ///
    /// # Panics
    /// If it was not made.
    pub fn of(&self, attempt: &str) -> Answer {
        let found = self.0.iter().find(|(name, _)| name == attempt);
        found
            .unwrap_or_else(|| panic!("{attempt} was not attempted: {self:?}"))
            .1
    }

    /// The result of an attempt that must have succeeded.
    ///
    /// # Panics
    /// If it did not.
    pub fn value(&self, attempt: &str) -> i64 {
        match self.of(attempt) {
            Answer::Done(value) => value,
            other => panic!("{attempt}: {other:?}"),
        }
    }
}

/// Reads reports from the end of a pipe that the program writes to.
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

    /// Waits for the next attempt's answer; nothing when the program has ended.
    ///
    /// # Panics
    /// If the report is not in the agreed form.
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

    /// All answers until the program ends.
    pub fn rest(mut self) -> Report {
        Report(std::iter::from_fn(|| self.next_answer()).collect())
    }

    fn next_line(&mut self) -> Option<String> {
        self.lines
            .next()
            .map(|line| line.expect("the pipe is readable"))
    }
}
