//! Metrics of `count`.

use nfluid_evnf::guard::Exit;

/// Returns the verdict of an exit: nothing is dropped or sent.
pub fn verdict(_: Exit) -> &'static str {
    "pass"
}
