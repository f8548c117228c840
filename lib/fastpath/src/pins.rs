//! What is pinned of fast paths and of their interfaces: found and undone by what is there.

use nfluid_netdev::PinnedProgram;
use std::path::{Path, PathBuf};

/// Where a daemon that knew no rows has pinned the hold on the interface of this number.
pub fn link_pin(pins: &Path, number: usize) -> PathBuf {
    pins.join(format!("link{number}"))
}

/// Removes pins: holds first, so that nothing is on an interface without its tables being there for the next daemon to see.
pub fn remove_pins(folder: &Path) -> anyhow::Result<()> {
    let names = names_in(folder)?;
    for name in names.iter().filter(|name| name.starts_with("link")) {
        let pin = folder.join(name);
        match PinnedProgram::open(&pin) {
            Ok(hold) => hold.remove()?,
            Err(_) => std::fs::remove_file(&pin)?,
        }
    }
    remove_tables(folder)?;
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

pub fn remove_tables(folder: &Path) -> anyhow::Result<()> {
    for name in names_in(folder)? {
        if !name.starts_with("link") {
            std::fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

/// The names of what is in a folder; none: it is not there.
fn names_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}
