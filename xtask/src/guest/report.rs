//! Parses a guest's console: frames of tests/guest/init, libtest's output between them, and kernel messages in between.

use std::collections::VecDeque;
use std::time::Instant;

use crate::programs::Program;
use crate::tally::{Output, Tally};

const MARK: &str = "@@nfluid ";
/// Lines of the console that a failure shows.
const TAIL: usize = 40;
const PANIC: &str = "Kernel panic - not syncing";
/// Files are missing in the guest: tests fail for other reasons than their own.
const NO_ROOM: &str = "Initramfs unpacking failed";
/// Kernel complaints that init prints after the tests; during the tests a test itself may print the same words.
const COMPLAINTS: [&str; 3] = ["Oops:", "BUG:", "WARNING: CPU"];

/// State of a guest's report so far.
#[derive(Debug, Default)]
pub struct Report {
    finished: Vec<(String, Output)>,
    current: Option<(String, Output)>,
    problems: Vec<String>,
    tail: VecDeque<String>,
    done: bool,
    /// Start of the running test.
    begun: Option<Instant>,
}

/// A test that has ended.
#[derive(Debug)]
pub struct Case<'a> {
    /// The program that contains the test.
    pub program: String,
    pub name: &'a str,
    pub seconds: f64,
    /// libtest's verdict; empty if the test has printed something between its name and the verdict.
    pub verdict: &'a str,
}

impl Report {
    /// Returns the test that ends with this line of the console.
    pub fn case<'a>(&mut self, line: &'a str) -> Option<Case<'a>> {
        let (program, _) = self.current.as_ref()?;
        let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let now = Instant::now();
        let begun = self.begun.replace(now).unwrap_or(now);
        let verdict = ["ok", "FAILED", "ignored"]
            .into_iter()
            .find(|word| verdict.starts_with(word));
        Some(Case {
            program: program.clone(),
            name,
            seconds: (now - begun).as_secs_f64(),
            verdict: verdict.unwrap_or_default(),
        })
    }

    /// Takes a line of the console; returns its part for the reader.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        self.remember(line);
        if let Some(at) = line.find(MARK) {
            self.mark(&line[at + MARK.len()..]);
            return None;
        }
        if let Some((_, output)) = &mut self.current {
            output.line(line);
        }
        let after_tests = self.current.is_none() && !self.finished.is_empty();
        let complains = after_tests && COMPLAINTS.iter().any(|what| line.contains(what));
        if complains || line.contains(PANIC) {
            self.problems
                .push(format!("the kernel says: {}", line.trim()));
        }
        if line.contains(NO_ROOM) {
            let remedy = "the guest's memory has no room for its files: raise MEMORY_MIB";
            self.problems.push(format!("{}: {remedy}", line.trim()));
        }
        Some(line)
    }

    /// Returns true if the kernel has panicked before any program of ours has begun.
    pub fn died_early(&self) -> bool {
        let has_begun = self.done || self.current.is_some() || !self.finished.is_empty();
        !has_begun && self.problems.iter().any(|it| it.contains(PANIC))
    }

    /// Notes a failure outside the tests.
    pub fn broken(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }

    /// Adds everything to the tally; each program that should have run and did not end is a failure. Returns the last
    /// lines of the console if there was a failure outside the tests.
    pub fn count<'a>(
        mut self,
        step: &str,
        tests: impl Iterator<Item = &'a Program>,
        tally: &mut Tally,
    ) -> Vec<String> {
        if let Some((name, mut output)) = self.current.take() {
            output.broken("did not end");
            self.finished.push((name, output));
        } else if !self.done {
            self.problems
                .push("the guest stopped before its tests were over".to_owned());
        }
        for test in tests {
            if !self.finished.iter().any(|(name, _)| *name == test.name) {
                self.problems.push(format!("{} did not run", test.name));
            }
        }
        let mut tail = Vec::new();
        if !self.problems.is_empty() {
            tail.push("the last lines of the console:".to_owned());
            tail.extend(self.tail.into_iter().map(|line| format!("  {line}")));
        }
        for (name, output) in self.finished {
            tally.add(&format!("{step}: {name}"), output);
        }
        for problem in self.problems {
            tally.failed(format!("{step}: {problem}"));
        }
        tail
    }

    fn remember(&mut self, line: &str) {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
    }

    /// `begin NAME`, `end NAME STATUS`, `done`
    fn mark(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["begin", name] => {
                self.current = Some((name.to_owned(), Output::default()));
                self.begun = Some(Instant::now());
            }
            ["end", name, status] => match self.current.take() {
                Some((current, mut output)) if current == name => {
                    if status != "0" && !output.has_failures() {
                        output.broken(format!("ended with status {status}"));
                    }
                    self.finished.push((current, output));
                }
                _ => self.broken(format!("unexpected end of {name}")),
            },
            ["done"] => self.done = true,
            _ => self.broken(format!("the guest says: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(console: &str, tests: &[&str]) -> (String, String) {
        let mut report = Report::default();
        for line in console.lines() {
            report.line(line);
        }
        let program = |name: &&str| Program {
            name: (*name).to_owned(),
            package: String::new(),
            path: "/".into(),
            folder: "/".into(),
        };
        let tests: Vec<Program> = tests.iter().map(program).collect();
        let mut tally = Tally::default();
        report.count("k", tests.iter(), &mut tally);
        (tally.line(), tally.notes().join("\n"))
    }

    const GOOD: &str = "@@nfluid begin a\ntest x ... ok\n\
        test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured\n@@nfluid end a 0\n@@nfluid done";

    #[test]
    fn files_that_have_no_room_are_said() {
        let console = format!("[    3.55] Initramfs unpacking failed: write error\n{GOOD}");
        let (line, notes) = count(&console, &["a"]);
        assert_eq!(line, "1 passed, 1 failed, 1 skipped");
        assert!(notes.contains("raise MEMORY_MIB"), "{notes}");
    }

    #[test]
    fn a_good_run_counts_its_tests() {
        assert_eq!(count(GOOD, &["a"]).0, "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn each_test_that_ends_is_told_with_its_program() {
        let mut report = Report::default();
        let cases = GOOD.lines().filter_map(|line| {
            let case = report
                .case(line)
                .map(|case| (case.program, case.name, case.verdict));
            report.line(line);
            case
        });
        assert_eq!(cases.collect::<Vec<_>>(), [("a".to_owned(), "x", "ok")]);
    }

    #[test]
    fn a_program_that_did_not_run_is_a_failure() {
        let (line, notes) = count(GOOD, &["a", "b"]);
        assert_eq!(line, "1 passed, 1 failed, 1 skipped");
        assert!(notes.contains("b did not run"), "{notes}");
    }

    #[test]
    fn a_panic_in_the_middle_fails_the_program_and_names_the_kernel() {
        let (line, notes) = count(
            "@@nfluid begin a\ntest x ... \nKernel panic - not syncing: Oops",
            &["a"],
        );
        assert_eq!(line, "0 passed, 2 failed, 0 skipped");
        assert!(
            notes.contains("did not end") && notes.contains("Kernel panic"),
            "{notes}"
        );
    }

    #[test]
    fn a_kernel_dies_early_if_it_panics_before_the_first_program() {
        let panic = "[  7.8] Kernel panic - not syncing: Fatal exception";
        for (console, is_early) in [
            (panic.to_owned(), true),
            (format!("@@nfluid begin a\n{panic}"), false),
            (
                format!("@@nfluid begin a\n@@nfluid end a 0\n{panic}"),
                false,
            ),
            ("hello".to_owned(), false),
        ] {
            let mut report = Report::default();
            for line in console.lines() {
                report.line(line);
            }
            assert_eq!(report.died_early(), is_early, "{console}");
        }
    }

    #[test]
    fn a_complaint_of_the_kernel_counts_only_outside_a_program() {
        let shown = GOOD.replace(
            "@@nfluid done",
            "[  1.0] WARNING: CPU: 0 PID: 1\n@@nfluid done",
        );
        assert_eq!(count(&shown, &["a"]).0, "1 passed, 1 failed, 1 skipped");
        let quoted = GOOD.replace("test x", "a test prints BUG: in its text\ntest x");
        assert_eq!(count(&quoted, &["a"]).0, "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_program_that_dies_after_its_last_test_is_a_failure() {
        let died = GOOD.replace("end a 0", "end a 139");
        assert_eq!(count(&died, &["a"]).0, "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_guest_without_marks_is_a_failure() {
        let (line, notes) = count("hello", &["a"]);
        assert_eq!(line, "0 passed, 2 failed, 0 skipped");
        assert!(notes.contains("stopped before"), "{notes}");
    }
}
