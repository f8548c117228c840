//! A processing element: runs one unit at a time, to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::clock::Clock;
use super::job::Job;
use crate::message::{GraphSlot, Message};
use crate::queue::{Consumer, Producer};

/// Graphs under way, by slot. The core manager writes a slot before it tells PEs of the graph.
pub type Table = Box<[Mutex<Option<Arc<Job>>>]>;

pub fn job(table: &Table, slot: GraphSlot) -> Option<Arc<Job>> {
    let job = table.get(usize::from(slot))?;
    job.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What a PE's thread has.
pub struct Pe {
    pub index: usize,
    pub core: Option<usize>,
    pub clock: Clock,
    pub table: Arc<Table>,
    pub commands: Consumer,
    pub reports: Producer,
    /// The core manager wants the PE awake, with or without a command.
    pub is_awake: Arc<AtomicBool>,
}

impl Pe {
    /// Runs units until the core manager says stop.
    pub fn run(mut self) {
        pin(self.core);
        let mut jobs: Vec<Option<Arc<Job>>> = Vec::new();
        let mut idle = Idle::default();
        loop {
            let Some(word) = self.commands.pop() else {
                if self.is_awake.load(Ordering::Acquire) {
                    idle.turn();
                } else {
                    // The core manager tells a sleeper of each graph anew.
                    jobs.clear();
                    // The core manager unparks a sleeper after it has sent a command: none waits for a sleeper.
                    thread::park();
                }
                continue;
            };
            idle = Idle::default();
            match Message::decode(word) {
                Some(Message::Run(slot, unit)) => {
                    let job = jobs.get(usize::from(slot)).and_then(Option::as_ref);
                    let start = self.clock.now();
                    let is_done =
                        job.is_some_and(|job| job.run(unit, self.index, start, &self.clock).0);
                    let report = if is_done {
                        Message::Done(slot, unit)
                    } else {
                        Message::Failed(slot, unit)
                    };
                    // The queue has room for all that a PE can have at once.
                    while !self.reports.push(report.encode()) {
                        std::hint::spin_loop();
                    }
                }
                Some(Message::Graph(slot)) => {
                    let slot = usize::from(slot);
                    if jobs.len() <= slot {
                        jobs.resize(slot + 1, None);
                    }
                    jobs[slot] = job(&self.table, slot as GraphSlot);
                }
                Some(Message::Stop) => return,
                Some(Message::Done(..) | Message::Failed(..)) | None => {}
            }
        }
    }
}

/// Turns of a thread that waits, awake: some 100 us, after which others may have the core, where threads have to share.
const SPINS: u32 = 4096;

/// A thread that has nothing to do for the moment.
#[derive(Default)]
pub struct Idle(u32);

impl Idle {
    /// Waits for a moment.
    pub fn turn(&mut self) {
        if self.0 < SPINS {
            self.0 += 1;
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// Binds this thread to a core. A core that the process may not use leaves the thread unbound.
pub fn pin(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut cores = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        cores.set(core);
        let _or_unbound = rustix::thread::sched_setaffinity(None, &cores);
    }
}
