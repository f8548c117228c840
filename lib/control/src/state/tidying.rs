//! Merging a long journal into the saved state, in parallel to requests.
//!
//! Requests continue in a journal that follows the long one. The merge has these steps, in this order: the state with
//! the long journal's changes is written beside the old one; its identifier is written into the head of the following
//! journal; the new state is renamed into the old one's place; the long journal is removed. After a power failure at
//! any time, the changes that the state lacks are in journals that identify it.

use super::journal::{Journal, Naming};
use super::{FileStore, StateError, base_of, deserialize, io_error};
use crate::single::step::replay;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Progress of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The merge is not complete.
    Working,
    /// Another state has been committed meanwhile, which contains both journals.
    Obsolete,
    /// The merge is complete; contains identifier and length of the new state. The long journal is removed.
    Done((u64, u64)),
    /// The new state is in place, but may not survive a power failure: the long journal has to stay. Contains
    /// identifier and length of the state.
    Doubtful((u64, u64)),
    /// The merge failed; nothing has changed.
    Failed,
}

/// Progress of a merge, shared with the store. While it is locked, the state is not replaced.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Mutex<Stage>>);

impl Progress {
    /// Locks the progress.
    pub fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the progress, or returns `None` if it is locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Stage>> {
        match self.0.try_lock() {
            Ok(stage) => Some(stage),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The merge of a long journal, as work for a background thread. If it is dropped, the merge is not done, and is due
/// again.
#[derive(Debug)]
#[must_use]
pub struct Tidying {
    state: PathBuf,
    fresh: PathBuf,
    journal: PathBuf,
    /// Identifier of the present state.
    base: u64,
    naming: Naming,
    progress: Progress,
}

impl Tidying {
    /// Prepares the merge of the journal at `journal` into the state at `state`, whose identifier is `base`; the
    /// journal `next` follows it.
    pub(super) fn new(state: &Path, journal: &Path, base: u64, next: &Journal) -> Self {
        let mut fresh = state.as_os_str().to_owned();
        fresh.push(".tidy");
        Tidying {
            state: state.to_owned(),
            fresh: fresh.into(),
            journal: journal.to_owned(),
            base,
            naming: next.naming(),
            progress: Progress(Arc::new(Mutex::new(Stage::Working))),
        }
    }

    /// Returns the shared progress.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Does the merge.
    ///
    /// # Errors
    /// The step that failed. Either nothing has changed, or the new state is in place and the journals are longer than
    /// necessary.
    pub fn run(self) -> Result<(), StateError> {
        let written = self.write();
        let mut stage = self.progress.lock();
        if *stage != Stage::Working {
            // The files that the merge needs may no longer exist.
            return Ok(());
        }
        let base = written?;
        fs::rename(&self.fresh, &self.state).map_err(io_error("replace", &self.state))?;
        *stage = Stage::Doubtful(base);
        FileStore::sync_directory_of(&self.state)
            .map_err(io_error("sync the directory of", &self.state))?;
        // Removed only now: until the rename is on the disk, a power failure can bring back the old state, whose
        // changes are in the journal.
        fs::remove_file(&self.journal).map_err(io_error("remove", &self.journal))?;
        *stage = Stage::Done(base);
        Ok(())
    }

    /// Writes the new state beside the old one. Returns its identifier and length.
    fn write(&self) -> Result<(u64, u64), StateError> {
        let damaged = |path: &Path| {
            let path = path.to_owned();
            move |reason| StateError::Damaged { path, reason }
        };
        let text = FileStore::read(&self.state).map_err(io_error("read", &self.state))?;
        let contents = Journal::read(&self.journal).map_err(io_error("read", &self.journal))?;
        let contents = contents.filter(|it| it.head.is_of(self.base));
        let contents =
            contents.ok_or_else(|| damaged(&self.journal)("another state's".to_owned()))?;
        let state = text.as_deref().map(deserialize).transpose();
        let mut state = state.map_err(damaged(&self.state))?.unwrap_or_default();
        replay(&mut state, &contents.lines).map_err(damaged(&self.journal))?;
        let text = serde_json::to_vec(&state)?;
        let base = base_of(Some(&text));
        FileStore::write_to(&self.fresh, &text).map_err(io_error("write", &self.fresh))?;
        self.naming
            .name(self.base, base.0)
            .map_err(io_error("write", &self.journal))?;
        Ok(base)
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        let mut stage = self.progress.lock();
        if *stage == Stage::Working {
            *stage = Stage::Failed;
        }
        // A file that was not renamed is useless.
        let _ = fs::remove_file(&self.fresh);
    }
}
