//! The paths of everything that must outlive the daemon.

use anyhow::Context;
use nfluid_records::Directories;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directories of the uplinks of one platform.
#[derive(Clone, Debug)]
pub struct Paths(Directories);

impl Paths {
    /// Below these directories.
    pub fn new(directories: Directories) -> Self {
        Paths(directories)
    }

    /// Returns the platform's directory on the BPF file system, in which a process finds the switch.
    pub fn pin(&self) -> &Path {
        &self.0.pin
    }

    /// Returns the folder in which the processes record their changes on interfaces.
    pub fn changes(&self) -> PathBuf {
        self.0.run.join("uplinks")
    }

    /// Returns the folder of the records of all uplinks.
    pub fn records(&self) -> PathBuf {
        self.0.run.join("uplink-processes")
    }

    /// Returns the record by which an uplink's process is found again.
    pub fn record(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.json"))
    }

    /// Returns the socket on which an uplink's process listens for the daemon.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.sock"))
    }

    /// Returns the file to which an uplink's process writes when it panics.
    pub fn errors(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.stderr"))
    }

    /// The named pipe that wakes an uplink's process.
    pub fn doorbell(&self, name: &str) -> PathBuf {
        self.0.uplink_doorbells().join(name)
    }

    /// Returns the folder of the pinned memory of an uplink's port.
    pub fn pins(&self, name: &str) -> PathBuf {
        self.all_pins().join(name)
    }

    fn all_pins(&self) -> PathBuf {
        self.0.pin.join("uplinks")
    }

    /// Makes the directories, for root only, and removes unfinished records of a daemon that was killed. The folder of
    /// changes is left as it is: processes that outlive the daemon write there.
    ///
    /// # Errors
    /// A directory cannot be made.
    pub fn create(&self) -> anyhow::Result<()> {
        let doorbells = self.0.uplink_doorbells();
        for directory in [self.changes(), self.records(), self.all_pins(), doorbells] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .with_context(|| format!("creating {}", directory.display()))?;
        }
        nfluid_records::remove_unfinished(&self.records());
        Ok(())
    }
}
