//! Paths of the programs under test.

use nfluid_testbed::program::{find_built, find_guest_image};
use std::path::{Path, PathBuf};

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

/// Returns the path of a program of `tests/requirements.txt`: on the path, where `cargo xtask test` puts it, or where that
/// installs it.
pub fn find_python_program(name: &str) -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([installed]);
    let mut programs = folders.map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}
