//! Making a long journal a part of the saved state, beside the requests that go on.
//!
//! Requests go on into a journal that follows the long one. Then, in this order: the state with the long journal's changes is
//! written beside the old one; its name is written into the head of the journal that follows; it is renamed into the old
//! one's place; the long journal is removed. Whenever the power fails, the state that is there has the changes that are not
//! in it in journals that name it.

use super::journal::{Journal, Naming};
use super::{FileStore, StateError, base_of, deserialize, io_error};
use crate::single::step::replay;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not done.
    Working,
    /// Another state has been committed meanwhile, of which both journals are a part.
    Obsolete,
    /// This is name and length of the state now; the long journal has gone.
    Done((u64, u64)),
    /// The same, but whether that would survive a power cut is not known: the long journal has to stay.
    Doubtful((u64, u64)),
    /// All is as before.
    Failed,
}

/// Where the store sees how far it is. While it is locked, nobody replaces the state.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Mutex<Stage>>);

impl Progress {
    /// Locks it.
    pub fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, unless it is locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Stage>> {
        match self.0.try_lock() {
            Ok(stage) => Some(stage),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The work, for a thread that has time. Dropped, it is not done, and due again.
#[derive(Debug)]
#[must_use]
pub struct Tidying {
    state: PathBuf,
    fresh: PathBuf,
    journal: PathBuf,
    /// Name of the state as it is.
    base: u64,
    naming: Naming,
    progress: Progress,
}

impl Tidying {
    /// To make the journal at `journal` a part of the state at `state`, whose name is `base`; `next` follows it.
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

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Does it.
    ///
    /// # Errors
    /// Says what failed; all is as before, or the state is the new one and its journals are longer than they need be.
    pub fn run(self) -> Result<(), StateError> {
        let written = self.write();
        let mut stage = self.progress.lock();
        if *stage != Stage::Working {
            // What it was to be made of may have gone.
            return Ok(());
        }
        let base = written?;
        fs::rename(&self.fresh, &self.state).map_err(io_error("replace", &self.state))?;
        *stage = Stage::Doubtful(base);
        FileStore::sync_directory_of(&self.state)
            .map_err(io_error("sync the directory of", &self.state))?;
        // Only now: until then a power cut may bring back the old state, whose changes it has.
        fs::remove_file(&self.journal).map_err(io_error("remove", &self.journal))?;
        *stage = Stage::Done(base);
        Ok(())
    }

    /// Writes the new state beside the old one; its name and length.
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
        // What was not renamed is of no use.
        let _ = fs::remove_file(&self.fresh);
    }
}
