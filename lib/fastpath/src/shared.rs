//! The fast paths as several threads have them.
//!
//! The daemon's threads and the threads of this room have one [`FastPaths`] behind one lock.
//!
//! # Order of locks
//! The daemon takes this lock while it holds the lock of its own state, never the other way round. So code that holds this
//! lock must not call the daemon, but for [`Processes`](crate::processes::Processes), which takes no lock of the daemon's
//! state. An event is therefore kept in [`FastPaths`] while the lock is held. A thread of this room lets go of the lock and
//! then has the daemon fetch the events ([`Watched`]): the daemon takes its own lock first, and this lock behind it.
//! Events stay in their order, because the daemon fetches them and records them under its own lock.

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
}

/// The fast paths as the threads of this room have them.
#[derive(Clone)]
pub struct Watched {
    fast_paths: Shared,
    report: Arc<dyn Fn() + Send + Sync>,
}

impl Watched {
    /// `report` has the daemon fetch events. It is called without the lock.
    pub fn new(fast_paths: Shared, report: impl Fn() + Send + Sync + 'static) -> Self {
        Watched {
            fast_paths,
            report: Arc::new(report),
        }
    }

    /// Does something to the fast paths, and has the daemon fetch the events of that.
    pub fn with<T>(&self, act: impl FnOnce(&mut FastPaths) -> T) -> T {
        let mut fast_paths = self.fast_paths.lock();
        let done = act(&mut fast_paths);
        let has_events = !fast_paths.events.is_empty();
        drop(fast_paths);
        if has_events {
            (self.report)();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::empty;
    use nfluid_api::types::EventKind;
    use std::sync::mpsc::channel;

    #[test]
    fn events_are_fetched_without_the_lock_in_their_order() {
        let folder = tempfile::tempdir().expect("a directory");
        let shared = Shared::new(empty(folder.path()));
        let (sender, fetched) = channel();
        let daemon = shared.clone();
        let watched = Watched::new(shared, move || {
            // A daemon has its own lock here. If this one were held, the test would not end.
            for event in daemon.lock().take_events() {
                sender.send(event.message).expect("the test listens");
            }
        });
        watched.with(|paths| {
            paths.event(EventKind::Healthy, "a", "first");
            paths.event(EventKind::Healthy, "b", "second");
        });
        watched.with(|_| ());
        let fetched: Vec<String> = fetched.try_iter().collect();
        assert_eq!(fetched, ["first", "second"]);
    }
}
