//! What is pinned of a fast path, and what was switched on its interfaces: found and undone by what is there.

use super::super::uplinks::namespace_path;
use super::super::written;
use super::record::Record;
use nfluid_switch::uplink::{PinnedProgram, Place};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where the hold on the interface of this number is pinned.
pub fn link_pin(pins: &Path, number: usize) -> PathBuf {
    pins.join(format!("link{number}"))
}

/// Where a firewall's counters are.
pub fn exits(pins: &Path) -> PathBuf {
    pins.join("exits")
}

/// Switches on again what a record says was switched off, where the interfaces are there still.
pub fn put_features_back(record: &Path) {
    let Ok(record) = written::load::<Record>(record) else {
        return;
    };
    let Ok(spec) = serde_json::from_str::<Value>(&record.spec) else {
        return;
    };
    let attach = &spec["attach"];
    let netns = attach["netns"].as_str().map(namespace_path);
    let interfaces = attach["interface"].as_array().into_iter().flatten();
    for (interface, changed) in interfaces.zip(&record.features) {
        let place = Place {
            interface: interface.as_str().unwrap_or_default().to_owned(),
            netns: netns.clone(),
        };
        if let Err(error) = place.restore(changed) {
            tracing::debug!(interface = place.interface, %error, "features stay");
        }
    }
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
