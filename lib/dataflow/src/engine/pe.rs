//! A processing element: runs one unit at a time, to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::clock::Clock;
use super::work::Work;
use crate::message::{GraphSlot, Message};
use crate::queue::{Consumer, Lines, Producer};

/// Where a PE finds what it is told of, and how it sleeps.
pub trait Surroundings {
    /// The PE is wanted awake, with or without a command.
    fn is_awake(&self) -> bool;
    /// Sleeps until the PE is wanted awake, or for no reason.
    fn sleep(&self);
    /// The graph in a slot, which begins at `line`.
    fn work(&mut self, slot: GraphSlot, line: u32) -> Option<Arc<Work>>;
    /// A task of this graph has failed.
    fn failed(&self, work: &Work);
}

/// A PE.
pub struct Pe<M, S> {
    pub index: usize,
    pub clock: Clock,
    pub commands: Consumer<M>,
    pub reports: Producer<M>,
    pub surroundings: S,
}

impl<M: Lines, S: Surroundings> Pe<M, S> {
    /// Runs units until the core manager says stop.
    pub fn run(mut self) {
        let mut graphs: Vec<Option<Arc<Work>>> = Vec::new();
        let mut idle = Idle::default();
        loop {
            let Some(word) = self.commands.pop() else {
                if self.surroundings.is_awake() {
                    idle.turn();
                } else {
                    // The core manager tells a sleeper of each graph anew.
                    graphs.clear();
                    // The core manager wakes a sleeper after it has sent a command: none waits for a sleeper.
                    self.surroundings.sleep();
                }
                continue;
            };
            idle = Idle::default();
            match Message::decode(word) {
                Some(Message::Run(slot, unit)) => {
                    let work = graphs.get(usize::from(slot)).and_then(Option::as_deref);
                    let is_done = work.is_some_and(|work| self.work(work, unit));
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
                Some(Message::Graph(slot, line)) => {
                    let at = usize::from(slot);
                    if graphs.len() <= at {
                        graphs.resize(at + 1, None);
                    }
                    graphs[at] = self.surroundings.work(slot, line);
                }
                Some(Message::Stop) => return,
                Some(Message::Done(..) | Message::Failed(..)) | None => {}
            }
        }
    }

    fn work(&self, work: &Work, unit: u32) -> bool {
        let (is_done, _) = work.run(unit, self.index, self.clock.now(), &self.clock);
        if !is_done {
            self.surroundings.failed(work);
        }
        is_done
    }
}

/// Graphs under way, by slot. The core manager writes a slot before it tells PEs of the graph.
pub type Table = Box<[Mutex<Option<Arc<Work>>>]>;

/// The surroundings of a PE on a thread.
pub struct OnThread {
    pub table: Arc<Table>,
    pub is_awake: Arc<AtomicBool>,
}

impl Surroundings for OnThread {
    fn is_awake(&self) -> bool {
        self.is_awake.load(Ordering::Acquire)
    }

    fn sleep(&self) {
        thread::park();
    }

    fn work(&mut self, slot: GraphSlot, _line: u32) -> Option<Arc<Work>> {
        let work = self.table.get(usize::from(slot))?;
        work.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whoever has the graph asks it.
    fn failed(&self, _work: &Work) {}
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
