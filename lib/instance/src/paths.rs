//! Where a platform keeps what must outlive its daemon.

use nfluid_records::Directories;
use std::path::{Path, PathBuf};

/// The directories of one platform.
#[derive(Clone, Debug)]
pub struct Paths(Directories);

impl Paths {
    /// Below these directories.
    pub fn new(directories: Directories) -> Self {
        Paths(directories)
    }

    /// The directories of the platform.
    pub fn directories(&self) -> &Directories {
        &self.0
    }

    /// Pinned maps and the switch's attachment.
    pub fn pin(&self) -> &Path {
        &self.0.pin
    }

    /// Pinned maps of one instance.
    pub fn instance_pins(&self, name: &str) -> PathBuf {
        self.0.pin.join("instances").join(name)
    }

    /// The record by which a running instance is found again.
    pub fn record(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.json"))
    }

    /// All records.
    pub fn records(&self) -> PathBuf {
        self.0.run.join("instances")
    }

    /// The named pipe that wakes an instance.
    pub fn bell(&self, name: &str) -> PathBuf {
        self.0.run.join("bells").join(name)
    }

    /// The named pipe into which an instance writes its log.
    pub fn log_pipe(&self, name: &str) -> PathBuf {
        self.0.run.join("logs").join(format!("{name}.pipe"))
    }

    /// The instance's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.run.join("logs").join(format!("{name}.log"))
    }

    /// The socket on which an instance listens for the daemon.
    pub fn control(&self, name: &str) -> PathBuf {
        self.0.run.join("control").join(name)
    }

    /// Where its successor listens, until it has the ports.
    pub fn next_control(&self, name: &str) -> PathBuf {
        self.control(name).with_extension("next")
    }

    /// What is written down of a division of flows that has begun.
    pub fn scaling(&self, name: &str) -> PathBuf {
        self.scalings().join(format!("{name}.json"))
    }

    /// All of them.
    pub fn scalings(&self) -> PathBuf {
        self.0.run.join("scaling")
    }

    /// Scripts of functions that run.
    pub fn functions(&self) -> PathBuf {
        self.0.run.join("functions")
    }

    /// The record by which the process of the I/O threads is found again.
    pub fn io_record(&self) -> PathBuf {
        self.io().join("process.json")
    }

    /// The socket on which it listens for the daemon.
    pub fn io_socket(&self) -> PathBuf {
        self.io().join("process.sock")
    }

    /// What it says when it panics.
    pub fn io_errors(&self) -> PathBuf {
        self.io().join("process.stderr")
    }

    fn io(&self) -> PathBuf {
        self.0.run.join("io")
    }

    /// Pinned pools of trust groups.
    pub fn groups(&self) -> PathBuf {
        self.0.pin.join("groups")
    }

    /// Pinned pool of one trust group.
    pub fn group_pins(&self, name: &str) -> PathBuf {
        self.groups().join(name)
    }

    /// The numbers of the switches.
    pub fn switch_numbers(&self) -> PathBuf {
        self.0.run.join("switches.json")
    }

    /// Makes the directories, and `others` besides, for root only. Removes what a daemon has left that was killed while it wrote.
    ///
    /// # Errors
    /// Names the directory that could not be made.
    pub fn create(&self, others: &[PathBuf]) -> anyhow::Result<()> {
        use anyhow::Context;
        use std::os::unix::fs::DirBuilderExt;
        let below = ["instances", "bells", "logs", "control", "io", "scaling"];
        let below = below.map(|name| self.0.run.join(name));
        let pins = ["instances", "groups"].map(|name| self.0.pin.join(name));
        let all = below.iter().chain([&self.0.pin]).chain(&pins);
        for directory in all.chain(others) {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .with_context(|| format!("creating {}", directory.display()))?;
        }
        for directory in below.iter().chain([&self.0.run]).chain(others) {
            nfluid_records::remove_unfinished(directory);
        }
        Ok(())
    }
}
