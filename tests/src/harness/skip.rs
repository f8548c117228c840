//! Skipping tests that cannot run on this host.

use nfluid_testbed::{CannotRun, need_root};
use std::io::Write;

/// Reports, past libtest's capture, that a test is skipped and why. The test must return then; it is counted as
/// skipped.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    let mut output = std::io::stdout().lock();
    // A closed standard output is no error of the test.
    let _written = output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush());
}

/// Returns true if the test runs as root. Otherwise reports that the test is skipped.
#[must_use]
pub fn is_root(test: &str) -> bool {
    match need_root() {
        Ok(()) => true,
        Err(CannotRun(reason)) => {
            skip(test, &reason);
            false
        }
    }
}
