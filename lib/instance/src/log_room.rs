//! The bound of the logs of all instances together. Logs lie on the same file system as the records of running
//! instances, and an instance whose record cannot be written does not come back. So the logs have a share of that
//! file system, and its last part is reserved for records.
//!
//! When the logs reach their share, the instance with the longest log loses the older half, and then the rest. An
//! instance that writes little keeps its whole log, however much others write.

use crate::reserve;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Size in bytes at which a log file is moved aside; one older file is kept.
pub const FILE_MAX: u64 = 1 << 20;
/// Limit of all logs in bytes.
const ALL_MAX: u64 = 64 << 20;
/// The logs get at most this part of the file system: a fourth.
const SHARE: u64 = 4;
/// A tmpfs gives a file whole pages, of this many bytes.
const PAGE: u64 = 4096;
/// The suffixes of a log file and of its older part.
pub const ENDINGS: [&str; 2] = ["log", "log.1"];

/// Size in bytes of the two files of a log.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    new: u64,
    old: u64,
}

/// The logs that exist, by their newer files.
pub struct LogRoom {
    sizes: BTreeMap<PathBuf, Size>,
    all_max: u64,
    is_short: bool,
}

impl Default for LogRoom {
    fn default() -> Self {
        LogRoom {
            sizes: BTreeMap::new(),
            all_max: ALL_MAX,
            is_short: false,
        }
    }
}

impl LogRoom {
    /// Counts a log that exists already.
    pub fn adopt(&mut self, file: &Path) {
        let length = |ending| {
            let found = std::fs::metadata(file.with_extension(ending));
            found.map_or(0, |found| paged(found.len()))
        };
        let [new, old] = ENDINGS.map(length);
        self.sizes.insert(file.to_owned(), Size { new, old });
    }

    /// Appends to a log, if there is room or other logs can be shortened.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::StorageFull`] if no log is left to shorten.
    pub fn append(&mut self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let _until_written = reserve::taking();
        while !self.has_room(file, paged(bytes.len() as u64))? {
            if !self.is_short {
                self.is_short = true;
                tracing::warn!(
                    "the logs of instances have no more room: those that have written most lose the older part"
                );
            }
            self.shorten_longest()?;
        }
        if !self.sizes.contains_key(file) {
            self.adopt(file);
        }
        let size = self.sizes.entry(file.to_owned()).or_default();
        if size.new > FILE_MAX {
            std::fs::rename(file, file.with_extension(ENDINGS[1]))?;
            *size = Size {
                new: 0,
                old: size.new,
            };
        }
        let mut log = OpenOptions::new().append(true).create(true).open(file)?;
        log.write_all(bytes)?;
        size.new = paged(log.metadata()?.len());
        Ok(())
    }

    /// Removes a log.
    pub fn remove(&mut self, file: &Path) {
        self.sizes.remove(file);
        for ending in ENDINGS {
            let _absent = std::fs::remove_file(file.with_extension(ending));
        }
    }

    fn has_room(&self, file: &Path, bytes: u64) -> io::Result<bool> {
        let folder = file.parent().unwrap_or(file);
        let left = reserve::left(folder)?;
        let most = self.all_max.min(left.size / SHARE);
        let all: u64 = self.sizes.values().map(|size| size.new + size.old).sum();
        Ok(bytes <= left.bytes && all + bytes <= most)
    }

    /// Removes the older part of the longest log, or the whole log if it has no older part.
    fn shorten_longest(&mut self) -> io::Result<()> {
        let longest = self
            .sizes
            .iter()
            .max_by_key(|(_, size)| size.new + size.old);
        let Some((file, size)) = longest.map(|(file, size)| (file.clone(), *size)) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        if size.old == 0 {
            self.remove(&file);
            return Ok(());
        }
        let _absent = std::fs::remove_file(file.with_extension(ENDINGS[1]));
        self.sizes.insert(file, Size { old: 0, ..size });
        Ok(())
    }
}

fn paged(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: no total; a total without the files moved aside; a short log that is removed first.
    // promise: 7.25
    #[test]
    fn all_logs_together_have_a_bound_and_the_longest_gives_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(format!("{name}.log"));
        let mut room = LogRoom {
            all_max: 5 << 20,
            ..LogRoom::default()
        };
        room.append(&file("quiet"), b"words\n").expect("room");
        let turn = vec![b'x'; 16 << 10];
        for _ in 0..200 {
            for loud in 0..5 {
                room.append(&file(&loud.to_string()), &turn).expect("room");
            }
            let files = std::fs::read_dir(folder.path()).expect("it is there");
            let sizes =
                files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len());
            let all: u64 = sizes.sum();
            assert!(all <= room.all_max, "{all}");
        }
        let quiet = std::fs::read(file("quiet")).expect("it is kept");
        assert_eq!(quiet, b"words\n");
        assert!(room.is_short);
        // A later daemon counts the logs that it finds.
        let mut later = LogRoom {
            all_max: 1 << 20,
            ..LogRoom::default()
        };
        for loud in 0..5 {
            later.adopt(&file(&loud.to_string()));
        }
        later.append(&file("quiet"), b"more\n").expect("room");
        let all: u64 = later.sizes.values().map(|size| size.new + size.old).sum();
        assert!(all <= later.all_max, "{all}");
    }
}
