//! Scratch directories.

use anyhow::Context;
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

const PREFIX: &str = "nfluid-bed-";

/// A directory; removed with everything inside when dropped.
#[derive(Debug)]
pub struct ScratchDirectory(TempDir);

impl ScratchDirectory {
    /// Makes a directory in the folder for temporary files.
    ///
    /// # Errors
    /// When the folder for temporary files cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        let made = Builder::new().prefix(PREFIX).tempdir();
        made.map(Self).context("making a temporary folder")
    }

    /// Makes the directory `name` in the folder for temporary files.
    ///
    /// # Errors
    /// As [`ScratchDirectory::new`]; also when the directory already exists.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let made = Builder::new().prefix(name).rand_bytes(0).tempdir();
        made.map(Self).context("making a temporary folder")
    }

    /// Makes a directory in memory (as `/run` is) if the host has a tmpfs that every user may write; otherwise as
    /// [`ScratchDirectory::new`].
    ///
    /// # Errors
    /// As [`ScratchDirectory::new`].
    pub fn in_memory() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            return Self::new();
        }
        let made = Builder::new().prefix(PREFIX).tempdir_in(memory);
        made.map(Self).context("making a folder in memory")
    }

    /// Returns a path within the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in the directory; returns the file's path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let file = self.path(name);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

impl AsRef<Path> for ScratchDirectory {
    fn as_ref(&self) -> &Path {
        self.0.path()
    }
}
