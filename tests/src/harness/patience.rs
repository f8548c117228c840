//! Waiting for a condition in a test.

pub use nfluid_testbed::patience::PATIENCE;
use nfluid_testbed::patience::until;

/// Waits until `is_so` returns true.
///
/// # Panics
/// If the condition does not become true in time, or the test is interrupted.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    until(what, is_so).unwrap_or_else(|error| panic!("{error:#}"));
}
