//! The fast paths, shared by threads.
//!
//! The daemon's threads and the threads of this crate share one [`FastPaths`] behind one lock.
//!
//! # Order of locks
//! The daemon takes this lock while it holds the lock of its own state, never the other way round. So code that holds
//! this lock must not call the daemon, except [`Processes`](crate::processes::Processes) and
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

    /// Locks the fast paths. A thread that panicked while it held the lock has left consistent tables: they change in
    /// single steps.
    pub fn lock(&self) -> MutexGuard<'_, FastPaths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with the locked fast paths.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut FastPaths) -> T) -> T {
        act(&mut self.lock())
    }
}
