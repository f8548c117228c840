//! PEs as the core manager's thread sees them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};

use super::clock::Clock;
use super::job::{Job, Place};
use super::pe::{OnThread, Pe, Table, pin};
use super::process::{Seats, Tenant};
use super::remote::{Remote, Sleeper};
use crate::manager::{Dispatch, SliceId};
use crate::message::{GraphSlot, Message};
use crate::queue::{Line, Word, queue};

/// A PE.
pub enum Worker {
    /// A thread of its own.
    Thread(OtherThread),
    /// A process per slice.
    Processes(Seats),
    /// The core manager's own thread.
    Here(VecDeque<(GraphSlot, u32)>),
    /// A PE that did not come back, and has not been replaced.
    Gone,
}

/// A PE on another thread.
pub struct OtherThread {
    remote: Remote<Arc<Box<[Line]>>, Parking>,
    handle: JoinHandle<()>,
}

/// A thread that sleeps by parking.
struct Parking {
    /// False lets the PE sleep.
    is_awake: Arc<AtomicBool>,
    thread: Thread,
}

impl Sleeper for Parking {
    fn rouse(&self) -> bool {
        !self.is_awake.swap(true, Ordering::AcqRel)
    }

    fn wake(&self) {
        self.thread.unpark();
    }

    fn let_sleep(&self) {
        self.is_awake.store(false, Ordering::Release);
    }
}

impl OtherThread {
    /// Starts the thread of a PE that has so many units at once.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(
        index: usize,
        core: Option<usize>,
        clock: Clock,
        ahead: usize,
        table: Arc<Table>,
    ) -> std::io::Result<Self> {
        let (commands, from_manager) = queue(commands_for(ahead));
        let (to_manager, reports) = queue(ahead + 1);
        let is_awake = Arc::new(AtomicBool::new(false));
        let pe = Pe {
            index,
            clock,
            commands: from_manager,
            reports: to_manager,
            surroundings: OnThread {
                table,
                is_awake: is_awake.clone(),
            },
        };
        let thread = thread::Builder::new().name(format!("pe-{index}"));
        let handle = thread.spawn(move || {
            pin(core);
            pe.run();
        })?;
        let thread = handle.thread().clone();
        Ok(Self {
            remote: Remote::new(commands, reports, Parking { is_awake, thread }),
            handle,
        })
    }

    /// Tells the thread to end. The thread keeps its stack, and what it holds of its graph, until its kernel returns.
    pub fn let_go(mut self) -> JoinHandle<()> {
        self.remote.tell(Message::Stop);
        self.handle
    }
}

/// Messages to a PE that has so many units at once: a graph and a run for each, and the last.
pub fn commands_for(ahead: usize) -> usize {
    2 * ahead + 1
}

impl Worker {
    /// The next word that the PE has sent.
    pub fn report(&mut self) -> Option<Word> {
        match self {
            Worker::Thread(other) => other.remote.report(),
            Worker::Processes(seats) => seats.report(),
            Worker::Here(_) | Worker::Gone => None,
        }
    }

    /// Gives a unit of a graph to the PE. Returns false if the PE cannot run it.
    pub fn give(&mut self, dispatch: Dispatch, job: &Job, tenant: Option<&Arc<Tenant>>) -> bool {
        let Dispatch { slot, unit, .. } = dispatch;
        match (self, &job.place) {
            (Worker::Here(given), _) => given.push_back((slot, unit)),
            (Worker::Thread(other), _) => other.remote.run(slot, unit, job.ticket, 0),
            (Worker::Processes(seats), Place::Apart(apart)) => {
                return tenant
                    .is_some_and(|tenant| seats.give(tenant, dispatch, job.ticket, apart));
            }
            (Worker::Processes(_), Place::Here(_)) => return false,
            // The manager gives nothing to a PE that is lost.
            (Worker::Gone, _) => {}
        }
        true
    }

    /// A unit that the PE was given has ended.
    pub fn ended(&mut self) {
        if let Worker::Processes(seats) = self {
            seats.ended();
        }
    }

    /// Wakes the PE, for a graph of this slice.
    pub fn wake(&mut self, slice: SliceId) {
        match self {
            Worker::Thread(other) => other.remote.wake(),
            Worker::Processes(seats) => seats.wake(slice),
            Worker::Here(_) | Worker::Gone => {}
        }
    }

    /// Lets the PE sleep.
    pub fn let_sleep(&mut self) {
        match self {
            Worker::Thread(other) => other.remote.let_sleep(),
            Worker::Processes(seats) => seats.let_sleep(),
            Worker::Here(_) | Worker::Gone => {}
        }
    }

    /// Has the PE end. Processes have ended then.
    pub fn stop(&mut self) {
        match self {
            Worker::Thread(other) => other.remote.tell(Message::Stop),
            Worker::Processes(seats) => seats.end(),
            Worker::Here(_) | Worker::Gone => {}
        }
    }

    /// Returns true if the PE's thread has ended.
    pub fn has_ended(&self) -> bool {
        match self {
            Worker::Thread(other) => other.handle.is_finished(),
            Worker::Processes(_) | Worker::Here(_) | Worker::Gone => true,
        }
    }
}
