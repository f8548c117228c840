//! Waiting for a condition in a test.

pub use nfluid_testbed::patience::PATIENCE;
use nfluid_testbed::patience::until;

/// Waits until something is so.
///
/// # Panics
/// If it does not become so, or the test is interrupted.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    until(what, is_so).unwrap_or_else(|error| panic!("{error:#}"));
}
