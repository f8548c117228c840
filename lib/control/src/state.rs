//! The desired state on disk.
//!
//! The file is the deployment as JSON, in the syntax of the user's document, `version` included.
//! It is replaced in two steps: [`Store::stage`] writes the new text beside the old one and forces
//! it to disk, where a full disk is noticed while nothing has changed; [`Store::commit`] renames it
//! into place. Between the two the plan is carried out. So the file never says what could not be
//! done, and a crash in between leaves the old file: the next start compares it with what exists.

use crate::decode::decode;
use crate::model::Deployment;
use crate::report::Report;
use crate::yaml::Node;
use nfluid_api::types::Diagnostic;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest file that is read, in bytes: a document and its attachments, escaped.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Why the state cannot be kept or read.
#[derive(Debug, Error)]
pub enum StateError {
    /// Reading, writing or renaming failed.
    #[error("cannot {action} {path}: {cause}")]
    Io {
        /// What was tried, in words.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file is not a saved state.
    #[error("{path} is not a saved state: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The state cannot be written as JSON.
    #[error("the state cannot be written as JSON: {0}")]
    Serialize(#[from] serde_json::Error),
}

impl StateError {
    /// Whether there is no room for the new state.
    pub fn is_disk_full(&self) -> bool {
        matches!(
            self,
            StateError::Io { cause, .. } if matches!(
                cause.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        )
    }
}

/// Keeps the desired state.
pub trait Store {
    /// The state that was committed last; `None` if there never was one.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    fn load(&mut self) -> Result<Option<Deployment>, StateError>;

    /// Puts a new state where a crash cannot lose it, without making it the one that counts.
    ///
    /// # Errors
    /// It cannot be written; the old state is intact.
    fn stage(&mut self, deployment: &Deployment) -> Result<(), StateError>;

    /// Makes the staged state the one that counts.
    ///
    /// # Errors
    /// It may or may not count; stage and commit the one that shall.
    fn commit(&mut self) -> Result<(), StateError>;

    /// Forgets the staged state.
    fn discard(&mut self);
}

/// Keeps the state in a file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    staged: PathBuf,
}

impl FileStore {
    /// A store in the file `path`, whose directory exists.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let mut staged = path.clone().into_os_string();
        staged.push(".new");
        FileStore {
            path,
            staged: staged.into(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_staged(&self, text: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&self.staged)?;
        file.write_all(text)?;
        file.sync_all()
    }

    fn sync_directory(&self) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)?.sync_all()
    }

    fn read(&self) -> io::Result<Option<String>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }
}

/// Names the action and the file in an I/O error.
fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |cause| StateError::Io {
        action,
        path,
        cause,
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Option<Deployment>, StateError> {
        let text = self.read().map_err(io_error("read", &self.path))?;
        text.map(|text| deserialize(&text))
            .transpose()
            .map_err(|reason| StateError::Damaged {
                path: self.path.clone(),
                reason,
            })
    }

    fn stage(&mut self, deployment: &Deployment) -> Result<(), StateError> {
        let text = serde_json::to_vec(deployment)?;
        self.write_staged(&text).map_err(|cause| {
            // Half a file is of no use, and may be what fills the disk.
            self.discard();
            io_error("write", &self.staged)(cause)
        })
    }

    fn commit(&mut self) -> Result<(), StateError> {
        fs::rename(&self.staged, &self.path).map_err(io_error("replace", &self.path))?;
        self.sync_directory()
            .map_err(io_error("sync the directory of", &self.path))
    }

    fn discard(&mut self) {
        // A leftover is overwritten by the next stage; nobody reads it.
        let _ = fs::remove_file(&self.staged);
    }
}

/// Reads a saved state.
fn deserialize(text: &str) -> Result<Deployment, String> {
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let root = Node::from_json(&value);
    let mut report = Report::new(None, None);
    let deployment = decode(&root, &Default::default(), &mut report);
    match report.finish() {
        Ok(_) => Ok(deployment),
        Err(errors) => Err(errors
            .first()
            .map(Diagnostic::to_string)
            .unwrap_or_default()),
    }
}
