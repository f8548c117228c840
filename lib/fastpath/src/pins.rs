//! Pins of fast paths and of their chains. Pins are removed by the folders' content, not by records.

use nfluid_netdev::PinnedProgram;
use std::path::{Path, PathBuf};

/// Returns the pin of the hold on the interface of this number, as made by a daemon without chains.
pub fn link_pin(pins: &Path, number: usize) -> PathBuf {
    pins.join(format!("link{number}"))
}

/// Removes the pins in a folder. Holds come first: the next daemon finds a program on an interface only by its tables.
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

/// Returns the names in a folder. Empty if the folder does not exist.
fn names_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}
