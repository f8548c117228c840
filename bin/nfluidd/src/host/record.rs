//! What the daemon writes down about what runs, so that a later daemon can adopt it.

use nfluid_control::spec::InstanceSpec;
use nfluid_sandbox::ProcessIdentity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// One instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The specification from which it was made, as JSON: only an instance of the same
    /// specification is adopted.
    pub spec: String,
    /// Platform-wide number of its first port; the others follow.
    pub first_port: u32,
    /// Number of its ports, queues counted.
    #[serde(default)]
    pub ports: u32,
    /// Number of its pool.
    pub pool: u32,
    /// Index of its kernel user.
    pub user: u32,
    /// Its process; absent: it was being made.
    pub process: Option<RecordedProcess>,
    /// Seed of its hash tables, so that nobody outside can aim at one bucket.
    #[serde(default)]
    pub seed: u64,
    /// The instances whose bells it was given, by port.
    pub bells: Vec<Option<String>>,
}

/// A process, as [`ProcessIdentity`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedProcess {
    pid: u32,
    start_time: u64,
    boot_id: String,
}

impl From<&ProcessIdentity> for RecordedProcess {
    fn from(identity: &ProcessIdentity) -> Self {
        RecordedProcess {
            pid: identity.pid,
            start_time: identity.start_time,
            boot_id: identity.boot_id.clone(),
        }
    }
}

impl From<&RecordedProcess> for ProcessIdentity {
    fn from(recorded: &RecordedProcess) -> Self {
        ProcessIdentity {
            pid: recorded.pid,
            start_time: recorded.start_time,
            boot_id: recorded.boot_id.clone(),
        }
    }
}

impl Record {
    /// Of an instance that is made from `spec` and has nothing yet.
    ///
    /// # Errors
    /// When the specification cannot be written as JSON.
    pub fn of(spec: &InstanceSpec) -> serde_json::Result<Self> {
        Ok(Record {
            spec: serde_json::to_string(spec)?,
            ports: spec.ports.iter().map(|port| u32::from(port.queues)).sum(),
            ..Record::default()
        })
    }

    /// Writes the record; a reader sees the old one or the new one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let fresh = path.with_extension("new");
        let saved = std::fs::write(&fresh, serde_json::to_vec(self)?)
            .and_then(|()| std::fs::rename(&fresh, path));
        if saved.is_err() {
            // Half of it may be there, on a disk that is full.
            let _ = std::fs::remove_file(&fresh);
        }
        saved
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn load(path: &Path) -> std::io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// The names of all recorded instances.
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
