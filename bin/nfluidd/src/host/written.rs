//! What the daemon writes down for itself or a later daemon: JSON, a file each.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Writes something down; a reader sees the old state or the new one.
///
/// # Errors
/// When the file cannot be written.
pub fn save<T: Serialize>(what: &T, path: &Path) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let saved = std::fs::write(&fresh, serde_json::to_vec(what)?)
        .and_then(|()| std::fs::rename(&fresh, path));
    if saved.is_err() {
        // Half of it may be there, on a disk that is full.
        let _absent = std::fs::remove_file(&fresh);
    }
    saved
}

/// Reads what [`save`] has written.
///
/// # Errors
/// When it cannot be read or understood.
pub fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
