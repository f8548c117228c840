//! Paths of the programs under test.

use nfluid_testbed::program::{find_built, find_guest_image};
use std::path::PathBuf;

/// Returns the path of a program of this workspace, see [`find_built`].
///
/// # Panics
/// If the program has not been built: build the workspace first (`cargo build --workspace`).
pub fn program(name: &str) -> PathBuf {
    find_built(name)
        .unwrap_or_else(|| panic!("no program {name}; cargo build --workspace makes it"))
}

/// Returns the path of a guest image, as deployments name it.
///
/// # Panics
/// If the image has not been built.
pub fn guest_image(name: &str) -> String {
    let image = find_guest_image(name);
    let image =
        image.unwrap_or_else(|| panic!("no guest image {name}; cargo build --workspace makes it"));
    image.to_str().expect("a path that is text").to_owned()
}
