//! A thread that removes what is left of ended instances after their processes, cgroups and files are gone: maps in
//! the switch, and numbers. The kernel takes some 10 ms to remove maps from a table, and removes many together in the
//! same time. So a change does not wait for the removal.
//!
//! Until the maps are removed, a record under another name tells a later daemon what to remove.

use crate::numbers::{InUse, Numbers};
use anyhow::Context;
use nfluid_switch::{InstanceMemory, Switch};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The leftovers of an instance.
pub struct Leftovers {
    /// The maps.
    pub memory: InstanceMemory,
    /// The numbers, if they may be used again.
    pub numbers: Option<InUse>,
    /// The record by which a later daemon finds them.
    pub record: PathBuf,
}

/// The handle of the thread.
pub struct Cleaner {
    queue: Mutex<Sender<Leftovers>>,
    /// Number of leftovers that are not removed yet.
    pending: Arc<(Mutex<usize>, Condvar)>,
}

impl Cleaner {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(switch: Arc<Switch>, numbers: Numbers) -> anyhow::Result<Self> {
        let (queue, waiting) = channel();
        let pending = Arc::<(Mutex<usize>, Condvar)>::default();
        let counted = Arc::clone(&pending);
        std::thread::Builder::new()
            .name("cleaner".to_owned())
            .spawn(move || clean_all(&switch, &numbers, &waiting, &counted))
            .context("starting the cleaner")?;
        Ok(Cleaner {
            queue: Mutex::new(queue),
            pending,
        })
    }

    /// Queues leftovers for removal.
    pub fn take(&self, leftovers: Leftovers) {
        count(&self.pending, |pending| *pending += 1);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread ends only with the process.
        let _ = queue.send(leftovers);
    }

    /// Waits until all leftovers are removed.
    pub fn finish(&self) {
        let (pending, changed) = &*self.pending;
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        while *pending > 0 {
            pending = changed
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn count(pending: &(Mutex<usize>, Condvar), change: impl FnOnce(&mut usize)) {
    let mut number = pending.0.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut number);
    pending.1.notify_all();
}

fn clean_all(
    switch: &Switch,
    numbers: &Numbers,
    waiting: &Receiver<Leftovers>,
    pending: &(Mutex<usize>, Condvar),
) {
    while let Ok(first) = waiting.recv() {
        let all: Vec<Leftovers> = [first].into_iter().chain(waiting.try_iter()).collect();
        let memories: Vec<&InstanceMemory> = all.iter().map(|one| &one.memory).collect();
        if let Err(error) = switch.remove_all(&memories) {
            tracing::warn!(%error, "maps of removed ports stay until their numbers are used again");
        }
        let cleaned = all.len();
        for one in all {
            // Removed before another instance gets the numbers.
            let _ = std::fs::remove_file(&one.record);
            if let Some(own) = one.numbers {
                numbers.free(&own);
            }
        }
        count(pending, |pending| *pending -= cleaned);
    }
}
