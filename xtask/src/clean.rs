//! Removes build results, and leftovers of tests that were killed.

use anyhow::Result;

use crate::deps;
use crate::leftovers;
use crate::session::Session;

/// # Errors
/// `cargo clean` fails.
pub fn run(session: &Session) -> Result<()> {
    if deps::is_root() {
        leftovers::sweep();
    }
    session.run(&mut session.cargo(["clean"]))
}
