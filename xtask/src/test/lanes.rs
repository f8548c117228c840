//! Runs jobs in parallel, at most one per lane, the longest first.
//!
//! Platform tests mostly wait for a daemon, a timer, or the end of a process. Two cores can run more than two of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};

use super::evidence;
use super::history::History;
use super::job::{Ended, Job, Surroundings};
use super::progress::Progress;
use crate::session::Session;

/// A finished job, by its name and step.
pub struct Done {
    pub name: String,
    pub step: &'static str,
    pub ended: Ended,
}

/// Sorts jobs into their starting order: the longest of the last run first.
pub fn sort(jobs: &mut [Job], history: &History) {
    let seconds = |job: &Job| history.of(&job.name).unwrap_or(job.seconds);
    jobs.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
}

/// Runs all jobs in this order, `lanes` at a time.
///
/// # Errors
/// An interrupt.
pub fn run(
    session: &Session,
    jobs: Vec<Job>,
    lanes: usize,
    surroundings: &Surroundings,
    progress: &Progress,
) -> Result<Vec<Done>> {
    let waiting = Mutex::new(jobs.into_iter());
    let done = Mutex::new(Vec::new());
    let lane = || {
        loop {
            let Some(job) = lock(&waiting).next() else {
                return Ok(());
            };
            let (name, step) = (job.name.clone(), job.step);
            let began = evidence::KernelClock::now();
            progress.begins(&name);
            // An interrupt ends every lane: no other job starts.
            let ended = job.run(session, surroundings, progress)?;
            if ended.tally.has_failures() {
                evidence::keep(&surroundings.evidence, &name, &ended.transcript, began);
            }
            progress.ended(&name, &ended);
            lock(&done).push(Done { name, step, ended });
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let join = |lane: thread::ScopedJoinHandle<'_, Result<()>>| {
            lane.join()
                .unwrap_or_else(|_| Err(anyhow!("xtask itself failed")))
        };
        running.into_iter().try_for_each(join)
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
