//! The desired state on disk.
//!
//! The file contains the deployment as JSON, in the syntax of the user's document, with its `version`. The file is
//! replaced in two steps. [`Store::stage`] writes the new text beside the old one and syncs it to the disk: a full disk
//! is noticed then, while nothing has changed. [`Store::commit`] renames it into place. The plan is executed between
//! the two steps. So the file never contains a change that could not be made, and a crash between the steps leaves the
//! old file: the next start compares it with the existing objects.
//!
//! Changes of single instances do not rewrite the file: they are appended to a [`journal`] beside it, in the same two
//! steps. A background thread merges a journal that has become long into the file ([`tidying`]).

pub mod journal;
pub mod tidying;

use crate::decode::decode;
use crate::model::Deployment;
use crate::report::Report;
use crate::single::step::{Step, replay};
use crate::yaml::Node;
use journal::{Durable, Head, Journal, name_of};
use nfluid_api::types::Diagnostic;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;
use tidying::{Progress, Stage, Tidying};

/// Maximum number of bytes of the file that are read: a document and its attachments, escaped.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Mode of the files.
const OWNER_ONLY: u32 = 0o600;
/// A journal longer than this, and longer than the state itself, is merged into the state.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

/// The reason why the state cannot be saved or read.
#[derive(Debug, Error)]
pub enum StateError {
    /// Reading, writing or renaming failed.
    #[error("cannot {action} {path}: {cause}")]
    Io {
        /// The action that failed, in words.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file is not a saved state.
    #[error("{path} is not a saved state: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        reason: String,
    },
    /// The state cannot be written as JSON.
    #[error("the state cannot be written as JSON: {0}")]
    Serialize(#[from] serde_json::Error),
}

impl StateError {
    /// Returns true if the disk has no room for the new state.
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
    /// Returns the state that was committed last; `None` if there was none.
    ///
    /// # Errors
    /// The state cannot be read, or is damaged.
    fn load(&mut self) -> Result<Option<Deployment>, StateError>;

    /// Writes a new state to a place where a crash cannot lose it, without committing it.
    ///
    /// # Errors
    /// The state cannot be written; the old state is intact.
    fn stage(&mut self, deployment: &Deployment) -> Result<(), StateError>;

    /// Commits the staged state.
    ///
    /// # Errors
    /// The staged state may or may not be committed; stage and commit the intended state again.
    fn commit(&mut self) -> Result<(), StateError>;

    /// Discards the staged state.
    fn discard(&mut self);

    /// Writes a small change so that a crash cannot commit only a part of it.
    ///
    /// # Errors
    /// The change cannot be written; the old state is intact.
    fn stage_step(&mut self, step: &Step<'_>) -> Result<(), StateError>;

    /// Commits the staged change.
    ///
    /// # Errors
    /// The change is not committed.
    fn commit_step(&mut self) -> Result<Durable, StateError>;

    /// Discards the staged change.
    fn discard_step(&mut self);

    /// Returns work for a background thread, if there are many small changes. Called between a commit and the next
    /// stage.
    fn tidy(&mut self) -> Option<Tidying> {
        None
    }
}

/// Keeps the state in a file.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    staged: PathBuf,
    /// Paths of a journal, and of the journal that continues it.
    journal_paths: [PathBuf; 2],
    journal: Option<Journal>,
    /// The preceding journal.
    long: Option<Long>,
    /// A journal longer than this, and longer than the state, is long.
    journal_bytes_max: u64,
    /// Length of the journal at which [`Store::tidy`] returns work again.
    due_at: u64,
    /// Identifier and length of the state that was committed last, and of the staged state.
    base: (u64, u64),
    staged_base: (u64, u64),
}

/// A long journal, which another journal continues.
#[derive(Debug)]
struct Long {
    path: PathBuf,
    /// Progress of merging the journal into the state; `None` if no merge is in progress.
    progress: Option<Progress>,
}

impl FileStore {
    /// Creates a store for the file `path`, whose directory exists.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let beside = |ending: &str| {
            let mut name = path.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        FileStore {
            staged: beside(".new"),
            journal_paths: [beside(".journal"), beside(".journal.next")],
            journal: None,
            long: None,
            journal_bytes_max: JOURNAL_BYTES_MAX,
            due_at: JOURNAL_BYTES_MAX,
            base: (0, 0),
            staged_base: (0, 0),
            path,
        }
    }

    /// Returns the same store with another limit for a long journal.
    #[must_use]
    pub fn with_journal_max(mut self, bytes: u64) -> Self {
        self.journal_bytes_max = bytes;
        self.due_at = bytes;
        self
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_to(path: &Path, text: &[u8]) -> io::Result<()> {
        let mut file = private_file(path)?;
        file.write_all(text)?;
        file.sync_all()
    }

    fn sync_directory_of(path: &Path) -> io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)?.sync_all()
    }

    fn read(path: &Path) -> io::Result<Option<String>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Updates the store after the merge of a long journal has made progress.
    fn note_merge(&mut self) {
        let Some(progress) = self.long.as_ref().and_then(|long| long.progress.clone()) else {
            return;
        };
        // A request with a change does not wait for the disk.
        let Some(stage) = progress.try_lock() else {
            return;
        };
        match *stage {
            Stage::Done(base) => {
                self.base = base;
                self.long = None;
                self.journal.iter_mut().for_each(Journal::forget_former);
            }
            Stage::Doubtful(base) => self.base = base,
            Stage::Failed => self.long.iter_mut().for_each(|long| long.progress = None),
            Stage::Working | Stage::Obsolete => {}
        }
    }

    /// Applies the journals of `state` to it. Further changes go to the last of these journals.
    fn replay(&mut self, state: &mut Option<Deployment>) -> Result<(), StateError> {
        let name = self.base.0;
        let mut found = Vec::new();
        for path in &self.journal_paths {
            let contents = Journal::read(path).map_err(io_error("read", path))?;
            found.extend(contents.map(|contents| (path.clone(), contents)));
        }
        // One journal can be both: if the changes before it have not altered the state.
        let last = found.iter().position(|(_, it)| it.head.is_after(name));
        let last = last.map(|at| found.remove(at));
        let first = found.into_iter().find(|(_, it)| it.head.is_of(name));
        let last = last.filter(|(_, it)| first.is_some() || it.head.is_of(name));
        for (path, contents) in first.iter().chain(&last) {
            replay(state.get_or_insert_default(), &contents.lines).map_err(|reason| {
                StateError::Damaged {
                    path: path.clone(),
                    reason,
                }
            })?;
        }
        let (before, current) = match last {
            Some(last) => (first, Some(last)),
            None => (None, first),
        };
        self.long = before.map(|(path, _)| Long {
            path,
            progress: None,
        });
        if let Some((path, contents)) = current {
            let journal = Journal::resume(&path, &contents);
            self.journal = Some(journal.map_err(io_error("open", &path))?);
        }
        Ok(())
    }
}

/// Creates an empty file that other users cannot read: a deployment contains passwords.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let file = options.mode(OWNER_ONLY).open(path)?;
    make_private(&file)?;
    Ok(file)
}

/// Sets the mode of a file: an existing file keeps its mode when it is opened.
fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))
}

/// Adds the action and the file to an I/O error.
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
        let text = Self::read(&self.path).map_err(io_error("read", &self.path))?;
        let state = text.as_deref().map(deserialize).transpose();
        let mut state = state.map_err(|reason| StateError::Damaged {
            path: self.path.clone(),
            reason,
        })?;
        self.base = base_of(text.as_deref().map(str::as_bytes));
        self.replay(&mut state)?;
        Ok(state)
    }

    fn stage(&mut self, deployment: &Deployment) -> Result<(), StateError> {
        let text = serde_json::to_vec(deployment)?;
        self.staged_base = base_of(Some(&text));
        Self::write_to(&self.staged, &text).map_err(|cause| {
            // An incomplete file is useless, and its size may be the reason for the full disk.
            self.discard();
            io_error("write", &self.staged)(cause)
        })
    }

    fn commit(&mut self) -> Result<(), StateError> {
        let progress = self.long.as_ref().and_then(|long| long.progress.as_ref());
        if let Some(progress) = progress {
            let mut stage = progress.lock();
            if *stage == Stage::Working {
                *stage = Stage::Obsolete;
            }
        }
        fs::rename(&self.staged, &self.path).map_err(io_error("replace", &self.path))?;
        self.base = self.staged_base;
        let synced = Self::sync_directory_of(&self.path)
            .map_err(io_error("sync the directory of", &self.path));
        // Removed only now: until the rename is on the disk, a power failure can bring back the old state, whose
        // changes are in the journals.
        if synced.is_ok() {
            if let Some(long) = self.long.take() {
                // A file that remains refers to a state that no longer exists.
                let _ = fs::remove_file(&long.path);
            }
            if let Some(journal) = self.journal.take() {
                journal.remove();
            }
            self.due_at = self.journal_bytes_max;
        }
        synced
    }

    fn discard(&mut self) {
        // The next stage overwrites a file that remains; no reader uses it.
        let _ = fs::remove_file(&self.staged);
    }

    fn stage_step(&mut self, step: &Step<'_>) -> Result<(), StateError> {
        let line = serde_json::to_vec(step)?;
        let first = &self.journal_paths[0];
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => {
                let made = Journal::create(first, Head::Base(self.base.0));
                self.journal.insert(made.map_err(io_error("write", first))?)
            }
        };
        let staged = journal.stage(&line);
        staged.map_err(io_error("write", journal.path()))
    }

    fn commit_step(&mut self) -> Result<Durable, StateError> {
        match &mut self.journal {
            Some(journal) => {
                let durable = journal.commit();
                durable.map_err(io_error("write", journal.path()))
            }
            None => Ok(Durable::default()),
        }
    }

    fn discard_step(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.discard();
        }
    }

    fn tidy(&mut self) -> Option<Tidying> {
        self.note_merge();
        let bytes = self.journal.as_ref()?.bytes();
        if bytes <= self.due_at.max(self.base.1) {
            return None;
        }
        self.due_at = bytes + self.journal_bytes_max;
        if self.long.is_none() {
            let journal = self.journal.as_mut()?;
            let [first, second] = &self.journal_paths;
            let other = if journal.path() == first {
                second
            } else {
                first
            };
            // If the disk has no room for another journal, changes continue in this one.
            let next = journal.followed(other, self.base.0).ok()?;
            let path = std::mem::replace(journal, next).path().to_owned();
            self.due_at = self.journal_bytes_max;
            self.long = Some(Long {
                path,
                progress: None,
            });
        }
        let long = self.long.as_mut().filter(|long| long.progress.is_none())?;
        let work = Tidying::new(&self.path, &long.path, self.base.0, self.journal.as_ref()?);
        long.progress = Some(work.progress());
        Some(work)
    }
}

/// Returns the identifier and the length of a state.
fn base_of(text: Option<&[u8]>) -> (u64, u64) {
    (name_of(text), text.map_or(0, <[u8]>::len) as u64)
}

/// Parses a saved state.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_cannot_read_the_saved_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.json");
        // A file that an earlier version has left.
        let others = Permissions::from_mode(0o644);
        for name in ["state.json", "state.json.new", "journal"] {
            let file = File::create(folder.path().join(name)).expect("room");
            file.set_permissions(others.clone()).expect("it is ours");
        }
        let mut store = FileStore::new(path);
        store.stage(&Deployment::default()).expect("room");
        store.commit().expect("room");
        let journal = folder.path().join("journal");
        Journal::create(&journal, Head::Base(1)).expect("room");
        for entry in fs::read_dir(folder.path()).expect("a folder").flatten() {
            let mode = entry.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, OWNER_ONLY, "{}", entry.path().display());
        }
        File::open(&journal)
            .and_then(|file| file.set_permissions(others))
            .expect("it is ours");
        let contents = Journal::read(&journal)
            .expect("it is there")
            .expect("whole");
        Journal::resume(&journal, &contents).expect("it goes on");
        let mode = fs::metadata(&journal).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, OWNER_ONLY);
    }
}
