//! Records: what a daemon writes down for itself or a later daemon. A record is a file of JSON.
//!
//! [`save`] replaces a record in one step: a reader, or a daemon that starts after a crash, sees the old state or the new
//! one. What the records of a room say is the room's business.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The directories of one platform, in which each room has folders of its own.
#[derive(Clone, Debug)]
pub struct Directories {
    /// The daemon's directory on a tmpfs (`/run/nfluid`).
    pub run: PathBuf,
    /// The platform's directory on a BPF file system.
    pub pin: PathBuf,
}

impl Directories {
    /// The folder of the named pipes that wake uplinks, by their names.
    pub fn uplink_doorbells(&self) -> PathBuf {
        self.run.join("uplink-bells")
    }
}

/// The extension of a record that is not whole yet.
const UNFINISHED: &str = "new";

/// Writes a record. A reader sees the old state or the new one.
///
/// # Errors
/// When the file cannot be written.
pub fn save<T: Serialize>(what: &T, path: &Path) -> io::Result<()> {
    let fresh = path.with_extension(UNFINISHED);
    let saved = std::fs::write(&fresh, serde_json::to_vec(what)?)
        .and_then(|()| std::fs::rename(&fresh, path));
    if saved.is_err() {
        // Half of it may be there, on a disk that is full.
        let _absent = std::fs::remove_file(&fresh);
    }
    saved
}

/// Removes what a daemon has left in a directory of records that was killed in [`save`]. No other process may save there.
pub fn remove_unfinished(directory: &Path) {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for path in files.map(|file| file.path()) {
        if path.extension().is_some_and(|end| end == UNFINISHED) {
            let _absent = std::fs::remove_file(path);
        }
    }
}

/// Reads what [`save`] has written.
///
/// # Errors
/// When the file cannot be read or understood.
pub fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// Returns the names of all records in a directory: of `NAME.json` the `NAME`.
pub fn names(directory: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            file.file_name()
                .to_str()?
                .strip_suffix(".json")
                .map(str::to_owned)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_name_and_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("web.json");
        for state in [vec![1, 2], vec![3]] {
            save(&state, &path).expect("the directory is ours");
            assert_eq!(load::<Vec<u32>>(&path).expect("it is there"), state);
        }
        assert_eq!(names(folder.path()), BTreeSet::from(["web".to_owned()]));
        assert!(save(&1, &folder.path().join("absent").join("x.json")).is_err());
        assert!(names(&folder.path().join("absent")).is_empty());
    }

    /// Catches: records of a daemon that is killed again and again, which fill the directory.
    #[test]
    fn what_was_not_finished_is_removed_and_records_stay() {
        let folder = tempfile::tempdir().expect("a directory");
        save(&1, &folder.path().join("web.json")).expect("the directory is ours");
        std::fs::write(folder.path().join("dns.new"), "{").expect("the directory is ours");
        remove_unfinished(folder.path());
        let left = std::fs::read_dir(folder.path()).expect("it is there");
        let left: Vec<_> = left.flatten().map(|file| file.file_name()).collect();
        assert_eq!(left, ["web.json"]);
        remove_unfinished(Path::new("/nonexistent"));
    }
}
