//! Runs jobs beside each other in lanes: as many at once as there are lanes for, those that take longest first.
//!
//! Tests of the platform mostly wait: for a daemon, a timer, a process that ends. Two cores carry more of them than two.
//! What must not be disturbed takes all lanes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

use super::evidence;
use super::history::History;
use super::job::{Ended, Job, Surroundings};
use super::progress::Progress;
use crate::session::Session;

/// A job that ran, by its name and step.
pub struct Done {
    pub name: String,
    pub step: &'static str,
    pub ended: Ended,
}

/// Jobs that wait for free lanes.
struct Queue {
    waiting: Vec<Job>,
    free: usize,
    /// An interrupt: nothing is started any more.
    over: bool,
}

/// Sorts jobs into the order in which they start: what takes all lanes, then those that occupy several, then those that
/// took longest in the last run.
pub fn sort(jobs: &mut [Job], history: &History) {
    jobs.sort_by(|a, b| {
        let key = |job: &Job| (job.lanes, history.of(&job.name).unwrap_or(job.seconds));
        let ((a_lanes, a_seconds), (b_lanes, b_seconds)) = (key(a), key(b));
        b_lanes.cmp(&a_lanes).then(b_seconds.total_cmp(&a_seconds))
    });
}

/// Runs all jobs, in this order, in so many lanes. A job that wants more lanes than there are gets all.
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
    let queue = Mutex::new(Queue {
        waiting: jobs,
        free: lanes,
        over: false,
    });
    let changed = Condvar::new();
    let done = Mutex::new(Vec::new());
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let lane = || {
            scope.spawn(|| {
                while let Some((job, taken)) = next(&queue, &changed, lanes) {
                    let (name, step) = (job.name.clone(), job.step);
                    let began = evidence::KernelClock::now();
                    progress.begins(&name);
                    let ended = job.run(session, surroundings, progress);
                    let mut queue = lock(&queue);
                    queue.free += taken;
                    queue.over |= ended.is_err();
                    changed.notify_all();
                    drop(queue);
                    let ended = ended?;
                    if ended.tally.has_failures() {
                        evidence::keep(&surroundings.evidence, &name, &ended.transcript, began);
                    }
                    progress.ended(&name, &ended);
                    lock(&done).push(Done { name, step, ended });
                }
                Ok(())
            })
        };
        let lanes: Vec<_> = (0..lanes).map(|_| lane()).collect();
        let join = |lane: thread::ScopedJoinHandle<'_, Result<()>>| {
            lane.join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("xtask itself failed")))
        };
        lanes.into_iter().map(join).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The first job that there are free lanes for, and how many it takes. Waits while others hold them; nothing when no job
/// is left.
fn next(queue: &Mutex<Queue>, changed: &Condvar, lanes: usize) -> Option<(Job, usize)> {
    let mut queue = lock(queue);
    loop {
        if queue.over || queue.waiting.is_empty() {
            return None;
        }
        let needs = |job: &Job| job.lanes.min(lanes);
        let free = queue.free;
        if let Some(at) = queue.waiting.iter().position(|job| needs(job) <= free) {
            let job = queue.waiting.remove(at);
            let taken = needs(&job);
            queue.free -= taken;
            return Some((job, taken));
        }
        queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
