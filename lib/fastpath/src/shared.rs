//! The fast paths as several threads have them.
//!
//! The daemon's threads and the threads of this room have one [`FastPaths`] behind one lock.
//!
//! # Order of locks
//! The daemon takes this lock while it holds the lock of its own state, never the other way round. So code that holds this
//! lock must not call the daemon, but for [`Processes`](crate::processes::Processes) and
//! [`Events`](nfluid_control::events::Events), which take no lock of the daemon's state.

use crate::FastPaths;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The fast paths of a platform, shared by threads.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<FastPaths>>);

impl Shared {
    /// Shares fast paths.
    pub fn new(fast_paths: FastPaths) -> Self {
        Shared(Arc::new(Mutex::new(fast_paths)))
    }

    /// Locks the fast paths. A thread that panicked while it held the lock has left tables that are whole: they change in
    /// single steps.
    pub fn lock(&self) -> MutexGuard<'_, FastPaths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the fast paths.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut FastPaths) -> T) -> T {
        act(&mut self.lock())
    }
}
