//! The paths of everything that must outlive the daemon.

use nfluid_control::model::UPLINK_DOORBELL;
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

    /// Returns the directory of pinned maps and of the switch's attachment.
    pub fn pin(&self) -> &Path {
        &self.0.pin
    }

    /// Returns the directory of an instance's pinned maps.
    pub fn instance_pins(&self, name: &str) -> PathBuf {
        self.0.pin.join("instances").join(name)
    }

    /// Returns the record by which a running instance is found again.
    pub fn record(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.json"))
    }

    /// Returns the directory of all records.
    pub fn records(&self) -> PathBuf {
        self.0.run.join("instances")
    }

    /// The named pipe that wakes an instance, or an uplink: the name is that of a doorbell (`PortRef::doorbell`).
    pub fn doorbell(&self, name: &str) -> PathBuf {
        match name.strip_prefix(UPLINK_DOORBELL) {
            Some(uplink) => self.0.uplink_doorbells().join(uplink),
            None => self.0.run.join("bells").join(name),
        }
    }

    /// Returns the named pipe into which an instance writes its log.
    pub fn log_pipe(&self, name: &str) -> PathBuf {
        self.0.run.join("logs").join(format!("{name}.pipe"))
    }

    /// Returns the instance's log file.
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.run.join("logs").join(format!("{name}.log"))
    }

    /// Returns the socket on which an instance listens for the daemon.
    pub fn control(&self, name: &str) -> PathBuf {
        self.0.run.join("control").join(name)
    }

    /// Returns the socket on which its successor listens until the successor has the ports.
    pub fn next_control(&self, name: &str) -> PathBuf {
        self.control(name).with_extension("next")
    }

    /// Returns the record of a division of flows that is under way.
    pub fn scaling(&self, name: &str) -> PathBuf {
        self.scalings().join(format!("{name}.json"))
    }

    /// Returns the directory of all records of divisions.
    pub fn scalings(&self) -> PathBuf {
        self.0.run.join("scaling")
    }

    /// Returns the directory of the scripts of running functions.
    pub fn functions(&self) -> PathBuf {
        self.0.run.join("functions")
    }

    /// Returns the record by which the process of the I/O threads is found again.
    pub fn io_record(&self) -> PathBuf {
        self.io().join("process.json")
    }

    /// Returns the socket on which the process of the I/O threads listens for the daemon.
    pub fn io_socket(&self) -> PathBuf {
        self.io().join("process.sock")
    }

    /// Returns the file to which the process of the I/O threads writes when it panics.
    pub fn io_errors(&self) -> PathBuf {
        self.io().join("process.stderr")
    }

    fn io(&self) -> PathBuf {
        self.0.run.join("io")
    }

    /// Returns the directory of pinned pools of trust groups.
    pub fn groups(&self) -> PathBuf {
        self.0.pin.join("groups")
    }

    /// Returns the directory of the pinned pool of one trust group.
    pub fn group_pins(&self, name: &str) -> PathBuf {
        self.groups().join(name)
    }

    /// The numbers of the switches.
    pub fn switch_numbers(&self) -> PathBuf {
        self.0.run.join("switches.json")
    }

    /// Creates the directories, and `others` besides, for root only. Removes temporary files of a daemon that was
    /// killed while it wrote.
    ///
    /// # Errors
    /// Names the directory that could not be created.
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
