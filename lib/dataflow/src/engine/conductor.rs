//! The thread of the core manager: gives it the time and what PEs report, and sends what it decides.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::job::Job;
use super::pe::{Idle, Pe, Table, pin};
use super::{Command, Finished, Settings, Shared};
use crate::manager::{Dispatch, GRAPHS_MAX, Manager, Outcome, Verdict};
use crate::message::{GraphSlot, Message};
use crate::queue::{Consumer, Producer, Word, queue};

/// Turns of the loop after which deadlines and PEs are looked at.
const LOOK_EVERY: u32 = 64;
/// How often the end of PEs is looked for.
const END_POLL: Duration = Duration::from_micros(100);
/// Most threads that have not come back: while there are so many, a lost PE is not replaced.
const STRAYS_MAX: usize = 16;

/// A PE as the conductor sees it.
enum Worker {
    /// A thread of its own.
    Thread(Remote),
    /// The conductor's own thread.
    Here(VecDeque<(GraphSlot, u32)>),
    /// A PE that did not come back, and has not been replaced.
    Gone,
}

struct Remote {
    commands: Producer,
    reports: Consumer,
    handle: JoinHandle<()>,
    /// False lets the PE sleep.
    is_awake: Arc<AtomicBool>,
    /// The job that the PE knows in each slot, by its ticket.
    known: Vec<u64>,
}

pub struct Conductor {
    settings: Settings,
    clock: Clock,
    manager: Manager,
    workers: Vec<Worker>,
    table: Arc<Table>,
    jobs: Vec<Option<Arc<Job>>>,
    shared: Arc<Shared>,
    /// Threads of PEs that were given up.
    strays: Vec<JoinHandle<()>>,
    /// The time, as the conductor has read it last.
    now: u64,
    /// The conductor stays awake until this time, though there is no graph.
    awake_until: u64,
}

impl Conductor {
    /// Starts the threads of all PEs. To be called by the conductor's own thread's maker.
    pub fn new(settings: Settings, clock: Clock, shared: Arc<Shared>) -> std::io::Result<Self> {
        let places = (0..GRAPHS_MAX).map(|_| std::sync::Mutex::new(None));
        let mut conductor = Self {
            manager: Manager::new(settings.manager()),
            workers: Vec::new(),
            table: Arc::new(places.collect()),
            jobs: Vec::new(),
            strays: Vec::new(),
            now: 0,
            awake_until: 0,
            settings,
            clock,
            shared,
        };
        for index in 0..conductor.settings.pes {
            let worker = if index == 0 && conductor.settings.shares_pe() {
                Worker::Here(VecDeque::new())
            } else {
                Worker::Thread(conductor.spawn(index)?)
            };
            conductor.workers.push(worker);
        }
        Ok(conductor)
    }

    fn spawn(&self, index: usize) -> std::io::Result<Remote> {
        // Graph and Run for each unit, and Stop.
        let (commands, from_conductor) = queue(2 * self.settings.ahead + 1);
        let is_awake = Arc::new(AtomicBool::new(false));
        let (to_conductor, reports) = queue(self.settings.ahead + 1);
        let pe = Pe {
            index,
            core: self.settings.cores.get(index).copied(),
            clock: self.clock,
            table: self.table.clone(),
            commands: from_conductor,
            reports: to_conductor,
            is_awake: is_awake.clone(),
        };
        let name = format!("pe-{index}");
        let handle = thread::Builder::new().name(name).spawn(move || pe.run())?;
        Ok(Remote {
            commands,
            reports,
            handle,
            is_awake,
            known: Vec::new(),
        })
    }

    /// Conducts until the engine says stop.
    pub fn run(mut self) {
        pin(self.settings.manager_core());
        let mut turns = 0_u32;
        // The end of a unit that this thread has run is the time.
        let mut has_run = false;
        let mut idle = Idle::default();
        loop {
            let is_commanded = self.shared.commands_waiting.load(Ordering::Acquire);
            if is_commanded && !self.take_commands() {
                self.stop();
                return;
            }
            let mut is_busy = self.reports();
            if !is_busy && !has_run {
                self.now = self.clock.now();
            }
            while let Some(dispatch) = self.manager.next(self.now) {
                is_busy = true;
                self.send(dispatch);
            }
            has_run = self.run_here();
            is_busy |= has_run;
            while let Some(outcome) = self.manager.outcome() {
                self.finish(outcome);
            }
            turns = turns.wrapping_add(1);
            if !is_busy || turns.is_multiple_of(LOOK_EVERY) {
                self.look();
            }
            if is_busy {
                idle = Idle::default();
            } else {
                idle.turn();
            }
            if self.manager.is_idle() && !self.shared.commands_waiting.load(Ordering::Acquire) {
                self.rest();
            }
        }
    }

    /// Takes what PEs report. Returns true if one has reported something.
    fn reports(&mut self) -> bool {
        let mut is_busy = false;
        for pe in 0..self.workers.len() {
            while let Some(word) = self.next_report(pe) {
                is_busy = true;
                self.report(pe, word);
            }
        }
        is_busy
    }

    fn next_report(&mut self, pe: usize) -> Option<Word> {
        match &mut self.workers[pe] {
            Worker::Thread(remote) => remote.reports.pop(),
            Worker::Here(_) | Worker::Gone => None,
        }
    }

    fn report(&mut self, pe: usize, word: Word) {
        self.now = self.clock.now();
        let now = self.now;
        let taken = match Message::decode(word) {
            Some(Message::Done(slot, unit)) => self.manager.done(pe, slot, unit, now),
            Some(Message::Failed(slot, unit)) => self.manager.failed(pe, slot, unit, now),
            _ => Err(crate::manager::Nonsense { pe }),
        };
        if taken.is_err() {
            self.shared.nonsense.fetch_add(1, Ordering::Relaxed);
            self.lose(pe);
        }
    }

    fn send(&mut self, dispatch: Dispatch) {
        let Dispatch { pe, slot, unit } = dispatch;
        match &mut self.workers[pe] {
            Worker::Here(given) => given.push_back((slot, unit)),
            Worker::Thread(remote) => {
                let ticket = self.jobs[usize::from(slot)]
                    .as_ref()
                    .map_or(0, |job| job.ticket);
                remote.run(slot, unit, ticket);
            }
            Worker::Gone => {}
        }
    }

    /// Runs one unit on the conductor's own PE. Returns false if it has none.
    fn run_here(&mut self) -> bool {
        let Some(Worker::Here(given)) = self.workers.first_mut() else {
            return false;
        };
        let Some((slot, unit)) = given.pop_front() else {
            return false;
        };
        let job = self.jobs[usize::from(slot)].as_ref();
        let (is_done, now) = match job {
            Some(job) => job.run(unit, 0, self.now, &self.clock),
            None => (false, self.now),
        };
        self.now = now;
        // The manager has just given this unit to this PE.
        let _always_ok = if is_done {
            self.manager.done(0, slot, unit, now)
        } else {
            self.manager.failed(0, slot, unit, now)
        };
        true
    }

    fn finish(&mut self, outcome: Outcome) {
        let slot = usize::from(outcome.slot);
        let Some(job) = self.jobs[slot].take() else {
            return;
        };
        *self.table[slot]
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
        if outcome.verdict != Verdict::Done {
            job.drop_outputs();
        }
        self.shared.finished(Finished {
            slice: job.slice,
            ticket: job.ticket,
            result: Ok(outcome.verdict),
            makespan: outcome.makespan,
            ended: self.now,
            job: Some(job),
        });
    }

    /// Looks at deadlines and at PEs that do not come back.
    fn look(&mut self) {
        let now = self.clock.now();
        self.manager.expire(now);
        if let Some(hung) = self.manager.hung(now)
            && matches!(self.workers[hung.pe], Worker::Thread(_))
        {
            self.shared.hung.fetch_add(1, Ordering::Relaxed);
            self.lose(hung.pe);
        }
        if !self.strays.is_empty() {
            self.replace_lost();
        }
    }

    /// Gives a PE up, and starts another in its place. A thread cannot be ended from outside: it keeps its stack, and what
    /// it holds of its job, until its kernel returns.
    fn lose(&mut self, pe: usize) {
        self.manager.lose(pe, self.clock.now());
        if let Worker::Thread(mut remote) = std::mem::replace(&mut self.workers[pe], Worker::Gone) {
            remote.tell(Message::Stop);
            self.strays.push(remote.handle);
        }
        self.replace_lost();
    }

    /// Starts PEs in the place of those that are gone. If none is left, no graph can wait for one.
    fn replace_lost(&mut self) {
        self.strays.retain(|stray| !stray.is_finished());
        for pe in 0..self.workers.len() {
            let is_gone = matches!(self.workers[pe], Worker::Gone);
            if !is_gone || self.strays.len() >= STRAYS_MAX {
                continue;
            }
            if let Ok(remote) = self.spawn(pe) {
                self.workers[pe] = Worker::Thread(remote);
                self.manager.replaced(pe, self.clock.now());
            }
        }
        if self
            .workers
            .iter()
            .all(|worker| matches!(worker, Worker::Gone))
        {
            self.manager.lose_all(self.clock.now());
        }
    }

    /// Takes what the engine's users want. Returns false if that is the end.
    fn take_commands(&mut self) -> bool {
        let commands = {
            let mut commands = self.shared.lock_commands();
            self.shared.commands_waiting.store(false, Ordering::Release);
            std::mem::take(&mut *commands)
        };
        // The last time that was read may be from before a long sleep.
        self.now = self.clock.now();
        let now = self.now;
        for command in commands {
            match command {
                Command::Stop => return false,
                Command::Wake { until } => self.wake(until),
                Command::Partition(partition) => {
                    // The engine has checked it.
                    let _always_ok = self.manager.set_partition(partition);
                }
                Command::Interval => self.manager.begin_interval(now),
                Command::Flush(slice) => self.manager.flush(slice, now),
                Command::Graph {
                    job,
                    rank,
                    deadline,
                } => self.admit(job, rank, deadline),
            }
        }
        true
    }

    fn admit(&mut self, job: Arc<Job>, rank: crate::manager::SliceRank, deadline: u64) {
        let plan = job.shape.plan.clone();
        let admitted = self
            .manager
            .admit(job.slice, rank, plan, deadline, self.now);
        match admitted {
            Ok(slot) => {
                let at = usize::from(slot);
                *self.table[at]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(job.clone());
                if self.jobs.len() <= at {
                    self.jobs.resize(at + 1, None);
                }
                self.jobs[at] = Some(job);
            }
            Err(refusal) => self.shared.finished(Finished {
                slice: job.slice,
                ticket: job.ticket,
                result: Err(refusal),
                makespan: 0,
                ended: self.now,
                job: None,
            }),
        }
    }

    /// Wakes all PEs before a graph comes: a sleeping core takes tens of microseconds.
    fn wake(&mut self, until: u64) {
        self.awake_until = until;
        for worker in &mut self.workers {
            if let Worker::Thread(remote) = worker {
                remote.wake();
            }
        }
    }

    /// Without a graph: waits for the next, awake or asleep.
    fn rest(&mut self) {
        if self.clock.now() < self.awake_until {
            std::hint::spin_loop();
            return;
        }
        for worker in &mut self.workers {
            if let Worker::Thread(remote) = worker {
                remote.let_sleep();
            }
        }
        // Whoever adds a command unparks this thread afterwards.
        thread::park();
    }

    fn stop(mut self) {
        // A thread that was given up is not waited for, nor one whose kernel hangs now.
        for worker in &mut self.workers {
            if let Worker::Thread(remote) = worker {
                remote.tell(Message::Stop);
            }
        }
        let until = Instant::now() + self.settings.hang;
        let ends = |worker: &Worker| match worker {
            Worker::Thread(remote) => remote.handle.is_finished(),
            Worker::Here(_) | Worker::Gone => true,
        };
        while !self.workers.iter().all(ends) && Instant::now() < until {
            thread::sleep(END_POLL);
        }
    }
}

impl Remote {
    fn run(&mut self, slot: GraphSlot, unit: u32, ticket: u64) {
        let at = usize::from(slot);
        if self.known.len() <= at {
            self.known.resize(at + 1, 0);
        }
        if self.known[at] != ticket {
            self.known[at] = ticket;
            self.tell(Message::Graph(slot));
        }
        self.tell(Message::Run(slot, unit));
    }

    /// Sends a message. The queue has room for all that a PE can have at once; a PE that was given up may not read.
    fn tell(&mut self, message: Message) {
        // Before the message: a PE that has read it does not sleep, and forget its graph, until it has read the next.
        let slept = !self.is_awake.swap(true, Ordering::AcqRel);
        let _is_sent = self.commands.push(message.encode());
        if slept {
            self.handle.thread().unpark();
        }
    }

    /// Wakes the PE, which stays awake until [`Self::let_sleep`].
    fn wake(&mut self) {
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            self.handle.thread().unpark();
        }
    }

    /// Lets the PE sleep as soon as it has no command left. A sleeper forgets its graphs.
    fn let_sleep(&mut self) {
        self.is_awake.store(false, Ordering::Release);
        self.known.clear();
    }
}
