//! Counts the tests of all steps from libtest's output.
//!
//! libtest has no test that is skipped at run time. Such a test writes the line `SKIPPED <test>: <reason>` to its
//! standard output, past libtest's capture, and returns; it is counted as skipped here and its reason is printed in the
//! summary.

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitStatus;

const RESULT: &str = "test result: ";
const SKIPPED: &str = "SKIPPED ";

/// At least one test failed. Nothing is printed for this error: the counting line shows it.
#[derive(Debug)]
pub struct TestsFailed;

impl fmt::Display for TestsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tests failed")
    }
}

impl std::error::Error for TestsFailed {}

/// Test counts of the whole run, and the summary lines of tests that did not pass.
#[derive(Debug, Default)]
pub struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    notes: Vec<String>,
}

impl Tally {
    /// Counts a check as one passed test.
    pub fn passed(&mut self) {
        self.passed += 1;
    }

    /// Counts a step that failed as a whole as one failed test.
    pub fn failed(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.note("FAILED", what.into());
    }

    /// Counts a step that cannot run here as one skipped test.
    pub fn skipped(&mut self, what: impl Into<String>) {
        self.skipped += 1;
        self.note("SKIPPED", what.into());
    }

    /// Adds the tests of one program's output.
    pub fn add(&mut self, step: &str, output: Output) {
        let skips = output.skips.len();
        self.passed += output.passed.saturating_sub(skips);
        self.skipped += output.ignored.len().max(output.ignored_count) + skips;
        self.failed += output.failed;
        for name in output.failures {
            self.note("FAILED", format!("{step}: {name}"));
        }
        for what in output.ignored.into_iter().chain(output.skips) {
            self.note("SKIPPED", format!("{step}: {what}"));
        }
    }

    /// Adds the counts of another tally.
    pub fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.notes.extend(other.notes);
    }

    pub fn has_failures(&self) -> bool {
        self.failed > 0
    }

    pub fn has_skipped(&self) -> bool {
        self.skipped > 0
    }

    pub fn has_passed(&self) -> bool {
        self.passed > 0
    }

    /// Prints the tests that did not pass, then the counting line, which is the last line of a test run.
    ///
    /// # Errors
    /// A test failed.
    pub fn conclude(&self) -> Result<(), TestsFailed> {
        println!();
        // Failures last, next to the count: readers look for them first.
        let mut notes: Vec<_> = self.notes().iter().collect();
        notes.sort_by_key(|note| note.starts_with("FAILED"));
        for note in notes {
            println!("{note}");
        }
        println!("{}", self.line());
        if self.failed > 0 {
            Err(TestsFailed)
        } else {
            Ok(())
        }
    }

    /// Returns the tests that did not pass with the reasons, in the order of the run.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, kind: &str, what: String) {
        self.notes.push(format!("{kind} {what}"));
    }

    /// The counting line.
    pub fn line(&self) -> String {
        let Self {
            passed,
            failed,
            skipped,
            ..
        } = self;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Output of the test programs of one command so far.
#[derive(Debug, Default)]
pub struct Output {
    passed: usize,
    failed: usize,
    ignored_count: usize,
    failures: Vec<String>,
    lists_failures: bool,
    ignored: Vec<String>,
    skips: BTreeSet<String>,
}

impl Output {
    /// Reads one line of output.
    pub fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix(RESULT) {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored_count += count(counts, "ignored");
        }
        if let Some(skip) = skip(line) {
            self.skips.insert(skip.to_owned());
        }
        if let Some(test) = line.strip_prefix("test ")
            && test.contains(" ... ignored")
        {
            self.ignored.push(test.replacen(" ... ignored", "", 1));
        }
        // A test's output may separate the verdict from the name: the list of failures at the end is complete.
        match line.strip_prefix("    ") {
            Some(name) if self.lists_failures => {
                self.failures.push(name.to_owned());
            }
            _ => {
                self.lists_failures =
                    line == "failures:" || (self.lists_failures && line.is_empty())
            }
        }
    }

    /// Ends the output: a program that ended without reporting a failure, or could not be built, counts as one.
    pub fn end(&mut self, status: ExitStatus) {
        if !status.success() && self.failed == 0 {
            self.broken(format!("ended with {status} without naming a failed test"));
        }
    }

    /// Counts a failure of the program itself rather than of one test.
    pub fn broken(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.failures.push(what.into());
    }

    pub fn has_failures(&self) -> bool {
        self.failed > 0
    }
}

/// Returns the number before a word of `ok. 12 passed; 0 failed; 1 ignored; ...`.
fn count(counts: &str, word: &str) -> usize {
    counts
        .split(';')
        .filter_map(|part| part.trim_end().strip_suffix(word))
        .filter_map(|part| part.split_whitespace().last()?.parse().ok())
        .next()
        .unwrap_or(0)
}

/// Returns the skip in a line. With one test thread libtest has already begun the line: `test name ... SKIPPED name:
/// reason`.
fn skip(line: &str) -> Option<&str> {
    line.strip_prefix(SKIPPED).or_else(|| {
        let (name, rest) = line.split_once(" ... ")?;
        name.starts_with("test ")
            .then_some(rest)?
            .strip_prefix(SKIPPED)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn tally(text: &str, status: i32) -> Tally {
        let mut output = Output::default();
        text.lines().for_each(|line| output.line(line));
        output.end(ExitStatus::from_raw(status << 8));
        let mut tally = Tally::default();
        tally.add("step", output);
        tally
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let text = "running 3 tests\n\
            test a ... ok\n\
            test b::c ... FAILED\n\
            test d ... ignored, needs a disk\n\
            \nfailures:\n\n---- b::c stdout ----\n    left: 1\n\nfailures:\n\x20   b::c\n\n\
            test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 1.20s";
        let tally = tally(text, 101);
        assert_eq!(tally.line(), "41 passed, 1 failed, 1 skipped");
        assert_eq!(
            tally.notes,
            ["FAILED step: b::c", "SKIPPED step: d, needs a disk"]
        );
    }

    #[test]
    fn a_test_that_skips_itself_is_not_counted_as_passed() {
        let text = "test x ... SKIPPED x: no captures\nok\n\
            SKIPPED y: no kvm\nSKIPPED y: no kvm\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(tally(text, 0).line(), "1 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let tally = tally("running 1 test\ntest a ... ", 134);
        assert_eq!(tally.line(), "0 passed, 1 failed, 0 skipped");
        assert!(tally.conclude().is_err());
    }

    #[test]
    fn a_words_number_is_not_taken_from_elsewhere() {
        assert_eq!(
            count("ok. 1 passed; 0 failed; 2 ignored; 7 measured", "measured"),
            7
        );
        assert_eq!(count("passed", "passed"), 0);
        assert_eq!(count("ok. x passed", "passed"), 0);
    }
}
