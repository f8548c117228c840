//! Where the programs under test are.

use std::path::{Path, PathBuf};

/// The path of a program of this workspace: in the folder that `NFLUID_BIN_DIR` names, or beside the running test.
///
/// # Panics
/// If it is in neither: build the workspace first (`cargo build --workspace`).
pub fn program(name: &str) -> PathBuf {
    let named = std::env::var_os("NFLUID_BIN_DIR").map(PathBuf::from);
    let test = std::env::current_exe().expect("/proc is mounted");
    // Tests lie in target/debug/deps, programs in target/debug.
    let beside = test.ancestors().skip(1).take(2).map(Path::to_owned);
    let folders: Vec<PathBuf> = named.into_iter().chain(beside).collect();
    let found = folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no program {name} in {folders:?}; cargo build --workspace makes it")
    })
}
