//! The thread of the core manager: gives it the time and what PEs report, and sends what it decides.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::job::Job;
use super::pe::{Idle, Table, pin};
use super::process::{Maker, PeSettings, Seats, Tenant};
use super::workers::{OtherThread, Worker, commands_for};
use super::{BackEnd, Command, Finished, Settings, Shared};
use crate::manager::{
    Dispatch, GRAPHS_MAX, Manager, Outcome, Partition, SLICES_MAX, SliceId, Verdict,
};
use crate::message::Message;
use crate::queue::Word;

/// Turns of the loop after which deadlines and PEs are looked at.
const LOOK_EVERY: u32 = 64;
/// How often the end of PEs is looked for.
const END_POLL: Duration = Duration::from_micros(100);
/// Most threads that have not come back: while there are so many, a lost PE is not replaced.
const STRAYS_MAX: usize = 16;

pub struct Conductor {
    settings: Settings,
    clock: Clock,
    manager: Manager,
    workers: Vec<Worker>,
    table: Arc<Table>,
    jobs: Vec<Option<Arc<Job>>>,
    /// Slices whose kernels run in processes.
    tenants: Vec<Option<Arc<Tenant>>>,
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
            tenants: vec![None; SLICES_MAX],
            strays: Vec::new(),
            now: 0,
            awake_until: 0,
            settings,
            clock,
            shared,
        };
        let maker = match conductor.settings.back_end {
            BackEnd::Threads => None,
            BackEnd::Processes => Some(Arc::new(Maker::start()?)),
        };
        for index in 0..conductor.settings.pes {
            let worker = match &maker {
                Some(maker) => Worker::Processes(conductor.seats(index, maker)),
                None if index == 0 && conductor.settings.shares_pe() => {
                    Worker::Here(VecDeque::new())
                }
                None => Worker::Thread(conductor.spawn(index)?),
            };
            conductor.workers.push(worker);
        }
        Ok(conductor)
    }

    fn spawn(&self, index: usize) -> std::io::Result<OtherThread> {
        let core = self.settings.cores.get(index).copied();
        let (ahead, table) = (self.settings.ahead, self.table.clone());
        OtherThread::start(index, core, self.clock, ahead, table)
    }

    fn seats(&self, index: usize, maker: &Arc<Maker>) -> Seats {
        let pe = PeSettings {
            index,
            core: self.settings.cores.get(index).copied(),
            clock: self.clock,
            confine: self.settings.confine,
        };
        Seats::new(Arc::clone(maker), pe, commands_for(self.settings.ahead))
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
            while let Some(word) = self.workers[pe].report() {
                is_busy = true;
                self.report(pe, word);
            }
        }
        is_busy
    }

    fn report(&mut self, pe: usize, word: Word) {
        self.now = self.clock.now();
        let now = self.now;
        let taken = match Message::decode(word) {
            Some(Message::Done(slot, unit)) => self.manager.done(pe, slot, unit, now),
            Some(Message::Failed(slot, unit)) => {
                let taken = self.manager.failed(pe, slot, unit, now);
                if taken.is_ok() {
                    self.keep_failure(pe, slot.into());
                }
                taken
            }
            _ => Err(crate::manager::Nonsense { pe }),
        };
        if taken.is_ok() {
            return self.workers[pe].ended();
        }
        self.shared.nonsense.fetch_add(1, Ordering::Relaxed);
        match &mut self.workers[pe] {
            Worker::Processes(seats) => {
                if let Some(slice) = seats.running_slice() {
                    self.lose_process(pe, slice, "its process sends nonsense");
                }
            }
            _ => self.lose(pe),
        }
    }

    /// Keeps why a task failed in a process, which says so beside its report.
    fn keep_failure(&mut self, pe: usize, slot: usize) {
        if let Worker::Processes(seats) = &mut self.workers[pe]
            && let Some(job) = &self.jobs[slot]
        {
            job.fail(match seats.told() {
                told if told.is_empty() => {
                    format!("PE {pe}: a task failed; its process does not say why")
                }
                told => told,
            });
        }
    }

    fn send(&mut self, dispatch: Dispatch) {
        let Some(job) = &self.jobs[usize::from(dispatch.slot)] else {
            return;
        };
        let tenant = self.tenants[usize::from(job.slice)].as_ref();
        if !self.workers[dispatch.pe].give(dispatch, job, tenant) {
            let slice = job.slice;
            self.lose_process(dispatch.pe, slice, "there is no process for it");
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
        let (is_done, now) = match job.and_then(|job| job.work()) {
            Some(work) => work.run(unit, 0, self.now, &self.clock),
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
            pes: self.settings.pes,
            job: Some(job),
        });
    }

    /// Looks at deadlines and at PEs that do not come back.
    fn look(&mut self) {
        let now = self.clock.now();
        self.manager.expire(now);
        if let Some(hung) = self.manager.hung(now) {
            self.lose_hung(hung);
        }
        for pe in 0..self.workers.len() {
            if let Worker::Processes(seats) = &mut self.workers[pe]
                && let Some((slice, why)) = seats.look(now)
            {
                self.lose_process(pe, slice, &why);
            }
        }
        if !self.strays.is_empty() {
            self.replace_lost();
        }
    }

    fn lose_hung(&mut self, hung: Dispatch) {
        match self.workers[hung.pe] {
            Worker::Thread(_) => {
                self.shared.hung.fetch_add(1, Ordering::Relaxed);
                self.lose(hung.pe);
            }
            Worker::Processes(_) => {
                let job = self.jobs[usize::from(hung.slot)].as_ref();
                if let Some(slice) = job.map(|job| job.slice) {
                    self.lose_process(hung.pe, slice, "its process did not come back");
                }
            }
            Worker::Here(_) | Worker::Gone => {}
        }
    }

    /// Gives a PE up, and starts another in its place. A thread cannot be ended from outside.
    fn lose(&mut self, pe: usize) {
        self.manager.lose(pe, self.clock.now());
        if let Worker::Thread(other) = std::mem::replace(&mut self.workers[pe], Worker::Gone) {
            self.strays.push(other.let_go());
        }
        self.replace_lost();
    }

    /// Gives a slice's process on a PE up, and has another made in its place.
    fn lose_process(&mut self, pe: usize, slice: SliceId, why: &str) {
        let Worker::Processes(seats) = &mut self.workers[pe] else {
            return;
        };
        self.shared.hung.fetch_add(1, Ordering::Relaxed);
        seats.lose(slice);
        if let Some(tenant) = &self.tenants[usize::from(slice)] {
            seats.prepare(tenant);
        }
        for slot in self.manager.lose_slice(pe, slice, self.clock.now()) {
            // Their ends are told after this.
            if let Some(job) = &self.jobs[usize::from(slot)] {
                job.fail(format!("PE {pe}: {why}"));
            }
        }
    }

    /// Starts PEs in the place of those that are gone. If none is left, no graph can wait for one.
    fn replace_lost(&mut self) {
        self.strays.retain(|stray| !stray.is_finished());
        for pe in 0..self.workers.len() {
            let is_gone = matches!(self.workers[pe], Worker::Gone);
            if !is_gone || self.strays.len() >= STRAYS_MAX {
                continue;
            }
            if let Ok(other) = self.spawn(pe) {
                self.workers[pe] = Worker::Thread(other);
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
                Command::Wake { slice, until } => self.wake(slice, until),
                Command::Tenant(tenant) => {
                    let at = usize::from(tenant.slice);
                    self.tenants[at] = Some(tenant);
                }
                Command::Partition(partition) => {
                    self.prepare(&partition);
                    // The engine has checked it.
                    let _always_ok = self.manager.set_partition(partition);
                }
                Command::Interval => self.manager.begin_interval(now),
                Command::Flush(slice) => self.flush(slice),
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
                    .unwrap_or_else(PoisonError::into_inner) = job.work().cloned();
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
                pes: self.settings.pes,
                job: None,
            }),
        }
    }

    /// Has a process for each slice on the PEs that it will own.
    fn prepare(&mut self, partition: &Partition) {
        for tenant in self.tenants.iter().flatten() {
            for (pe, worker) in self.workers.iter_mut().enumerate() {
                let owns = partition
                    .windows()
                    .iter()
                    .any(|window| window.owners[pe].contains(tenant.slice));
                if let (true, Worker::Processes(seats)) = (owns, worker) {
                    // Without room, the first unit is refused.
                    let _is_there = seats.prepare(tenant);
                }
            }
        }
    }

    /// Drops everything of a slice.
    fn flush(&mut self, slice: SliceId) {
        self.manager.flush(slice, self.now);
        self.tenants[usize::from(slice)] = None;
        for (pe, worker) in self.workers.iter_mut().enumerate() {
            if let Worker::Processes(seats) = worker
                && seats.lose(slice)
            {
                let _flushed_before = self.manager.lose_slice(pe, slice, self.now);
            }
        }
    }

    /// Wakes all PEs before a graph comes: a sleeping core takes tens of microseconds.
    fn wake(&mut self, slice: SliceId, until: u64) {
        self.awake_until = until;
        for worker in &mut self.workers {
            worker.wake(slice);
        }
    }

    /// Without a graph: waits for the next, awake or asleep.
    fn rest(&mut self) {
        if self.clock.now() < self.awake_until {
            std::hint::spin_loop();
            return;
        }
        self.workers.iter_mut().for_each(Worker::let_sleep);
        // Whoever adds a command unparks this thread afterwards.
        thread::park();
        for worker in &mut self.workers {
            if let Worker::Processes(seats) = worker {
                let ended = seats.renew() as u64;
                self.shared.hung.fetch_add(ended, Ordering::Relaxed);
            }
        }
    }

    fn stop(mut self) {
        // A thread that was given up is not waited for, nor one whose kernel hangs now.
        self.workers.iter_mut().for_each(Worker::stop);
        let until = Instant::now() + self.settings.hang;
        while !self.workers.iter().all(Worker::has_ended) && Instant::now() < until {
            thread::sleep(END_POLL);
        }
    }
}
