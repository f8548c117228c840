//! Paths of the programs under test.

use nfluid_testbed::program::find_built;
use std::path::PathBuf;

/// Returns the path of a program of this workspace, see [`find_built`].
///
/// # Panics
/// If the program has not been built: build the workspace first (`cargo build --workspace`).
pub fn program(name: &str) -> PathBuf {
    find_built(name)
        .unwrap_or_else(|| panic!("no program {name}; cargo build --workspace makes it"))
}
