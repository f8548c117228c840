//! Where fast paths keep what must outlive the daemon: records in the run directory, pins in the BPF file system.

use std::path::PathBuf;

/// The directories of the fast paths of one platform.
#[derive(Clone, Debug)]
pub struct Paths {
    run: PathBuf,
    pin: PathBuf,
}

impl Paths {
    /// `run`: the daemon's directory on a tmpfs (`/run/nfluid`); `pin`: the platform's directory on a BPF file system.
    pub fn new(run: PathBuf, pin: PathBuf) -> Self {
        Paths { run, pin }
    }

    /// The directories that have to exist before fast paths are made.
    pub fn directories(&self) -> [PathBuf; 4] {
        [
            self.records(),
            self.chain_records(),
            self.pins_of_all(),
            self.chain_pins_of_all(),
        ]
    }

    /// The record by which a fast path is found again.
    pub fn record(&self, name: &str) -> PathBuf {
        self.records().join(format!("{name}.json"))
    }

    /// All of them.
    pub fn records(&self) -> PathBuf {
        self.run.join("fast")
    }

    /// Pinned tables of one fast path.
    pub fn pins(&self, name: &str) -> PathBuf {
        self.pins_of_all().join(name)
    }

    /// Those of all.
    pub fn pins_of_all(&self) -> PathBuf {
        self.pin.join("fast")
    }

    /// The record of who is on an interface with fast paths.
    pub fn chain_record(&self, key: &str) -> PathBuf {
        self.chain_records().join(format!("{key}.json"))
    }

    /// All of them.
    pub fn chain_records(&self) -> PathBuf {
        self.run.join("rows")
    }

    /// The hold on such an interface, and what leads from member to member.
    pub fn chain_pins(&self, key: &str) -> PathBuf {
        self.chain_pins_of_all().join(key)
    }

    /// Those of all.
    pub fn chain_pins_of_all(&self) -> PathBuf {
        self.pin.join("rows")
    }
}
