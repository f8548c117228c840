//! The desired state on disk.
//!
//! The file is the deployment as JSON, in the syntax of the user's document, `version` included.
//! It is replaced in two steps: [`Store::stage`] writes the new text beside the old one and forces
//! it to disk, where a full disk is noticed while nothing has changed; [`Store::commit`] renames it
//! into place. Between the two the plan is carried out. So the file never says what could not be
//! done, and a crash in between leaves the old file: the next start compares it with what exists.
//!
//! Changes of single instances do not rewrite the file: they are appended to a [`journal`] beside it, in the same two steps.

pub mod journal;

use crate::decode::decode;
use crate::model::Deployment;
use crate::report::Report;
use crate::single::step::{Step, replay};
use crate::yaml::Node;
use journal::{Durable, Journal, name_of};
use nfluid_api::types::Diagnostic;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest file that is read, in bytes: a document and its attachments, escaped.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// A journal longer than this, and than the state itself, is made a part of it.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

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

    /// Puts a small change where a crash cannot make half of it count.
    ///
    /// # Errors
    /// It cannot be written; the old state is intact.
    fn stage_step(&mut self, step: &Step<'_>) -> Result<(), StateError>;

    /// Makes the staged change count.
    ///
    /// # Errors
    /// It does not count.
    fn commit_step(&mut self) -> Result<Durable, StateError>;

    /// Forgets the staged change.
    fn discard_step(&mut self);

    /// Whether so many small changes are kept that the whole state had better be committed.
    fn is_fragmented(&self) -> bool {
        false
    }
}

/// Keeps the state in a file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    staged: PathBuf,
    journal_path: PathBuf,
    journal: Option<Journal>,
    /// Name and length of the state that was committed last, and of the staged one.
    base: (u64, u64),
    staged_base: (u64, u64),
}

impl FileStore {
    /// A store in the file `path`, whose directory exists.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let beside = |ending: &str| {
            let mut name = path.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        FileStore {
            staged: beside(".new"),
            journal_path: beside(".journal"),
            journal: None,
            base: (0, 0),
            staged_base: (0, 0),
            path,
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
        let damaged = |path: &Path| {
            let path = path.to_owned();
            move |reason| StateError::Damaged { path, reason }
        };
        let state = text.as_deref().map(deserialize).transpose();
        let mut state = state.map_err(damaged(&self.path))?;
        self.base = base_of(text.as_deref().map(str::as_bytes));
        let opened = Journal::open(&self.journal_path, self.base.0);
        if let Some((journal, lines)) = opened.map_err(io_error("read", &self.journal_path))? {
            replay(state.get_or_insert_default(), &lines).map_err(damaged(&self.journal_path))?;
            self.journal = Some(journal);
        }
        Ok(state)
    }

    fn stage(&mut self, deployment: &Deployment) -> Result<(), StateError> {
        let text = serde_json::to_vec(deployment)?;
        self.staged_base = base_of(Some(&text));
        self.write_staged(&text).map_err(|cause| {
            // Half a file is of no use, and may be what fills the disk.
            self.discard();
            io_error("write", &self.staged)(cause)
        })
    }

    fn commit(&mut self) -> Result<(), StateError> {
        fs::rename(&self.staged, &self.path).map_err(io_error("replace", &self.path))?;
        self.base = self.staged_base;
        let synced = self
            .sync_directory()
            .map_err(io_error("sync the directory of", &self.path));
        // Only now: until then a power cut may bring back the old state, whose changes it has.
        if let (Ok(()), Some(journal)) = (&synced, self.journal.take()) {
            journal.remove();
        }
        synced
    }

    fn discard(&mut self) {
        // A leftover is overwritten by the next stage; nobody reads it.
        let _ = fs::remove_file(&self.staged);
    }

    fn stage_step(&mut self, step: &Step<'_>) -> Result<(), StateError> {
        let line = serde_json::to_vec(step)?;
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => {
                let made = Journal::create(&self.journal_path, self.base.0);
                self.journal
                    .insert(made.map_err(io_error("write", &self.journal_path))?)
            }
        };
        journal
            .stage(&line)
            .map_err(io_error("write", &self.journal_path))
    }

    fn commit_step(&mut self) -> Result<Durable, StateError> {
        match &mut self.journal {
            Some(journal) => journal
                .commit()
                .map_err(io_error("write", &self.journal_path)),
            None => Ok(Durable::default()),
        }
    }

    fn discard_step(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.discard();
        }
    }

    fn is_fragmented(&self) -> bool {
        let long = JOURNAL_BYTES_MAX.max(self.base.1);
        self.journal
            .as_ref()
            .is_some_and(|journal| journal.bytes() > long)
    }
}

/// Name and length of a state.
fn base_of(text: Option<&[u8]>) -> (u64, u64) {
    (name_of(text), text.map_or(0, <[u8]>::len) as u64)
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
