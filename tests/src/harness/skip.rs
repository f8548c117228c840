//! Tests that find out that they cannot run here.

use nfluid_testbed::{CannotRun, need_root};
use std::io::Write;

/// Tells, past libtest's capture, that a test does not run and why. Return from the test then; it is counted as skipped.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    let mut output = std::io::stdout().lock();
    // Nobody listens to a test whose standard output is closed.
    let _written = output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush());
}

/// Returns true if the test may go on: it runs as root. Tells that it is skipped if not.
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
