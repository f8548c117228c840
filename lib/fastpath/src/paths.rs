//! Paths of the state of fast paths that must outlive the daemon: records in the run directory, pins in the BPF file
//! system.

use nfluid_records::Directories;
use std::path::PathBuf;

/// The directories of the fast paths of one platform.
#[derive(Clone, Debug)]
pub struct Paths(Directories);

impl Paths {
    /// Returns the paths below these directories.
    pub fn new(directories: Directories) -> Self {
        Paths(directories)
    }

    /// Returns the directories that must exist before fast paths are made.
    pub fn directories(&self) -> [PathBuf; 4] {
        [
            self.records(),
            self.chain_records(),
            self.pins_of_all(),
            self.chain_pins_of_all(),
        ]
    }

    /// Returns the record of a fast path.
    pub fn record(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.json"))
    }

    /// Returns the folder of the records of all fast paths.
    pub fn records(&self) -> PathBuf {
        self.0.run.join("fast")
    }

    /// Returns the folder of the pinned tables of a fast path.
    pub fn pins(&self, name: &str) -> PathBuf {
        self.pins_of_all().join(name)
    }

    /// Returns the folder of the pins of all fast paths.
    pub fn pins_of_all(&self) -> PathBuf {
        self.0.pin.join("fast")
    }

    /// Returns the record of a chain.
    pub fn chain_record(&self, key: &str) -> PathBuf {
        self.chain_records().join(format!("{key}.json"))
    }

    /// Returns the folder of the records of all chains.
    pub fn chain_records(&self) -> PathBuf {
        self.0.run.join("rows")
    }

    /// Returns the folder of the pins of a chain: its hold on the interface, and the maps of successors.
    pub fn chain_pins(&self, key: &str) -> PathBuf {
        self.chain_pins_of_all().join(key)
    }

    /// Returns the folder of the pins of all chains.
    pub fn chain_pins_of_all(&self) -> PathBuf {
        self.0.pin.join("rows")
    }
}
