//! Slices on PEs: each a thread, or a process per slice. The core manager is a thread of its own, or on a PE's.
//!
//! The caller's threads are the slice processors: a graph is composed while PEs still work on the one before. Between
//! intervals all threads sleep; a graph that comes wakes them, or [`Engine::wake`] a little before. Within an interval no
//! thread sleeps.

mod arena;
mod array;
mod clock;
mod conductor;
mod job;
mod pe;
mod process;
mod remote;
pub mod trace;
mod work;
mod workers;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use arena::{ARENA_BYTES_MAX, Arena, Inputs, Layout, OutOfOrder, TooLarge};
pub use clock::Clock;
pub use job::{Job, Shape, UnitRun};
#[cfg(test)]
pub use process::everything;
pub use process::{Confine, REGION_BYTES};
pub use work::{Application, Call, Failure};

use crate::costs::CostBook;
use crate::graph::TaskId;
use crate::manager::{
    self, Partition, PartitionError, Policy, Refusal, SLICES_MAX, SliceId, SliceRank, Verdict,
};
use conductor::Conductor;
use job::Place;
use process::Tenant;

/// Every so many intervals of a slice, each task is timed by itself.
const MEASURE_EVERY: u64 = 16;

/// Where the core manager runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagerPlace {
    /// On the thread of PE 0, between its units: no core of its own, no message to PE 0.
    #[default]
    OnPe,
    /// On a thread of its own, bound to this core, if any.
    Own(Option<usize>),
}

/// PEs as threads or as processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackEnd {
    /// A thread. Kernels of all slices run in one process.
    #[default]
    Threads,
    /// A process per slice, which shares memory with the core manager and with the slice's other PEs alone. The core manager is
    /// then on a thread of its own, where no kernel runs.
    Processes,
}

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of PEs, at least one.
    pub pes: usize,
    /// Core of each PE; PEs without one are not bound.
    pub cores: Vec<usize>,
    /// PEs are threads or processes.
    pub back_end: BackEnd,
    /// Each PE's process calls this before its first task, to take away from itself what kernels do not need.
    pub confine: Option<Confine>,
    /// Where the core manager runs.
    pub manager: ManagerPlace,
    /// Which PE a ready unit goes to.
    pub policy: Policy,
    /// Units that a PE has at once, at least one: the one that runs, and those behind it.
    pub ahead: usize,
    /// A unit that runs this long has hung: its PE is given up and replaced.
    pub hang: Duration,
}

impl Settings {
    /// Settings for so many PEs, not bound to cores.
    pub fn new(pes: usize) -> Self {
        Self {
            pes: pes.clamp(1, PES_MAX),
            cores: Vec::new(),
            back_end: BackEnd::default(),
            confine: None,
            manager: ManagerPlace::default(),
            policy: Policy::default(),
            ahead: 4,
            hang: Duration::from_secs(1),
        }
    }

    fn manager(&self) -> manager::Settings {
        manager::Settings {
            pes: self.pes,
            policy: self.policy,
            ahead: self.ahead,
            hang: nanoseconds(self.hang),
        }
    }

    fn shares_pe(&self) -> bool {
        self.manager == ManagerPlace::OnPe && self.back_end == BackEnd::Threads
    }

    fn manager_core(&self) -> Option<usize> {
        match self.manager {
            ManagerPlace::OnPe if self.shares_pe() => self.cores.first().copied(),
            ManagerPlace::OnPe => None,
            ManagerPlace::Own(core) => core,
        }
    }
}

/// Most PEs of an engine.
pub const PES_MAX: usize = 1024;

/// Why an engine does not start, or a slice is not added.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel gives no thread.
    #[error("starting a thread of the engine: {0}")]
    Thread(#[from] std::io::Error),
    /// An engine has at most 64 slices.
    #[error("the engine has {SLICES_MAX} slices, which is the most; remove one first")]
    TooManySlices,
    /// There is no such slice.
    #[error("the engine has no slice {0}")]
    NoSlice(SliceId),
    /// The kernel gives no memory for a slice whose PEs are processes.
    #[error("mapping shared memory for a slice, of which it uses what its graphs need: {0}")]
    Memory(std::io::Error),
    /// The graphs under way of a slice whose PEs are processes do not fit into its memory.
    #[error("the slice's graphs under way take more than {} MiB", REGION_BYTES >> 20)]
    NoRoom,
}

enum Command {
    Stop,
    Wake {
        slice: SliceId,
        until: u64,
    },
    Tenant(Arc<Tenant>),
    Partition(Partition),
    Interval,
    Flush(SliceId),
    Graph {
        job: Arc<Job>,
        rank: SliceRank,
        deadline: u64,
    },
}

/// What callers and conductor share.
struct Shared {
    commands: Mutex<Vec<Command>>,
    commands_waiting: AtomicBool,
    finished: Mutex<VecDeque<Finished>>,
    came: Condvar,
    /// Called when a graph has ended.
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    nonsense: AtomicU64,
    hung: AtomicU64,
}

impl Shared {
    fn lock_commands(&self) -> MutexGuard<'_, Vec<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_finished(&self) -> MutexGuard<'_, VecDeque<Finished>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finished(&self, finished: Finished) {
        self.lock_finished().push_back(finished);
        self.came.notify_one();
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }
}

/// A graph that has ended.
pub struct Finished {
    /// The graph's slice.
    pub slice: SliceId,
    /// What [`Engine::submit`] returned.
    pub ticket: u64,
    /// How the graph ended, or why it was refused.
    pub result: Result<Verdict, Refusal>,
    /// Nanoseconds from the graph's admission to its end.
    pub makespan: u64,
    /// The end on the engine's clock, in nanoseconds.
    pub ended: u64,
    /// Number of PEs.
    pes: usize,
    job: Option<Arc<Job>>,
}

impl Finished {
    /// The output of a task; `None` unless the graph is done.
    pub fn output(&self, task: TaskId) -> Option<&[u8]> {
        self.job.as_ref()?.output(task)
    }

    /// Why a task failed, with its name; why a process was given up.
    pub fn failure(&self) -> Option<String> {
        self.job.as_ref()?.failure()
    }

    /// The runs of all units that have run, as their PEs say: on PEs that exist, and within the graph's time.
    pub fn runs(&self) -> impl Iterator<Item = UnitRun> {
        let begun = self.ended.saturating_sub(self.makespan);
        let runs = self.job.iter().flat_map(|job| job.runs());
        runs.map(move |run| {
            let start = run.start.clamp(begun, self.ended);
            UnitRun {
                pe: run.pe.min(self.pes.saturating_sub(1)),
                start,
                took: run.took.min(self.ended - start),
                ..run
            }
        })
    }

    /// The plan of the graph.
    pub fn plan(&self) -> Option<&crate::plan::Plan> {
        Some(self.job.as_ref()?.shape.plan())
    }
}

/// What became of a slice's graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Graphs that ended in time.
    pub done: u64,
    /// Graphs that were dropped because their deadline passed.
    pub late: u64,
    /// Graphs that were dropped because a task failed.
    pub failed: u64,
    /// Graphs that were dropped because a PE did not come back.
    pub hung: u64,
    /// Graphs that were refused: they could not end in time.
    pub refused: u64,
}

struct Slice {
    name: String,
    rank: SliceRank,
    application: Arc<dyn Application>,
    /// The memory that its processes share, if PEs are processes.
    tenant: Option<Arc<Tenant>>,
    costs: CostBook,
    counts: Counts,
    submitted: u64,
}

/// Slices, their PEs and the core manager.
pub struct Engine {
    settings: Settings,
    clock: Clock,
    shared: Arc<Shared>,
    conductor: Option<JoinHandle<()>>,
    slices: Vec<Option<Slice>>,
    tickets: u64,
}

impl Engine {
    /// Starts the threads. They sleep until a graph comes.
    ///
    /// # Errors
    /// [`EngineError::Thread`].
    pub fn start(settings: Settings) -> Result<Self, EngineError> {
        let settings = Settings {
            pes: settings.pes.clamp(1, PES_MAX),
            ahead: settings.ahead.clamp(1, 64),
            ..settings
        };
        let clock = Clock::start();
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            commands_waiting: AtomicBool::new(false),
            finished: Mutex::default(),
            came: Condvar::new(),
            bell: OnceLock::new(),
            nonsense: AtomicU64::new(0),
            hung: AtomicU64::new(0),
        });
        let conductor = Conductor::new(settings.clone(), clock, shared.clone())?;
        let thread = std::thread::Builder::new().name("core-manager".to_owned());
        Ok(Self {
            conductor: Some(thread.spawn(move || conductor.run())?),
            settings,
            clock,
            shared,
            slices: Vec::new(),
            tickets: 0,
        })
    }

    /// The engine's clock, on which all its times are.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Has `bell` called each time a graph has ended, by a thread of the engine: it wakes whoever waits for something else than
    /// [`Self::wait`] as well. The first bell stays.
    pub fn on_finished(&self, bell: impl Fn() + Send + Sync + 'static) {
        let _first_stays = self.shared.bell.set(Box::new(bell));
    }

    /// Number of PEs.
    pub fn pes(&self) -> usize {
        self.settings.pes
    }

    /// Adds a slice.
    ///
    /// # Errors
    /// [`EngineError::TooManySlices`]; [`EngineError::Memory`] if PEs are processes.
    pub fn add_slice(
        &mut self,
        name: &str,
        rank: SliceRank,
        application: Arc<dyn Application>,
    ) -> Result<SliceId, EngineError> {
        let free = self.slices.iter().position(Option::is_none);
        let at = free.unwrap_or(self.slices.len());
        if at >= SLICES_MAX {
            return Err(EngineError::TooManySlices);
        }
        let id = at as SliceId;
        let tenant = match self.settings.back_end {
            BackEnd::Threads => None,
            BackEnd::Processes => {
                let tenant = Tenant::new(id, name, application.clone());
                Some(tenant.map_err(EngineError::Memory)?)
            }
        };
        if free.is_none() {
            self.slices.push(None);
        }
        if let Some(tenant) = tenant.clone() {
            self.command(Command::Tenant(tenant));
        }
        self.slices[at] = Some(Slice {
            name: name.to_owned(),
            rank,
            application,
            tenant,
            costs: CostBook::new(self.settings.pes),
            counts: Counts::default(),
            submitted: 0,
        });
        Ok(id)
    }

    /// Removes a slice. Its graphs under way are dropped, and end as late.
    ///
    /// # Errors
    /// [`EngineError::NoSlice`].
    pub fn remove_slice(&mut self, slice: SliceId) -> Result<(), EngineError> {
        self.slice(slice)?;
        self.slices[usize::from(slice)] = None;
        self.command(Command::Flush(slice));
        Ok(())
    }

    /// Changes the owners of PEs, from the next interval on.
    ///
    /// # Errors
    /// [`PartitionError::Pes`].
    pub fn set_partition(&mut self, partition: Partition) -> Result<(), PartitionError> {
        // A manager without graphs checks it.
        manager::Manager::new(self.settings.manager()).set_partition(partition.clone())?;
        self.command(Command::Partition(partition));
        Ok(())
    }

    /// Begins an interval: windows count from here.
    pub fn begin_interval(&mut self) {
        self.command(Command::Interval);
    }

    /// Wakes the PEs of a slice, and keeps them awake for so long although no graph is there: to be called some 70 us before a
    /// graph comes.
    pub fn wake(&mut self, slice: SliceId, awake: Duration) {
        let until = self.clock.now().saturating_add(nanoseconds(awake));
        self.command(Command::Wake { slice, until });
    }

    /// Sends a graph of a slice to the core manager. Its end comes from [`Self::wait`].
    ///
    /// # Errors
    /// [`EngineError::NoSlice`]; [`EngineError::NoRoom`] if PEs are processes.
    pub fn submit(
        &mut self,
        slice: SliceId,
        shape: &Shape,
        external: Arc<[u8]>,
        deadline: Duration,
    ) -> Result<u64, EngineError> {
        let entry = self.slice(slice)?;
        let measures = entry.submitted % MEASURE_EVERY == 0;
        let place = match &entry.tenant {
            None => {
                let work = shape.work(entry.application.clone(), external, measures);
                Place::Here(Arc::new(work))
            }
            Some(tenant) => {
                let apart = tenant.lay_out(shape, &external, measures);
                Place::Apart(apart.ok_or(EngineError::NoRoom)?)
            }
        };
        entry.submitted += 1;
        let rank = entry.rank;
        self.tickets += 1;
        let ticket = self.tickets;
        let job = Job::new(slice, ticket, shape.clone(), place);
        let deadline = self.clock.now().saturating_add(nanoseconds(deadline));
        self.command(Command::Graph {
            job: Arc::new(job),
            rank,
            deadline,
        });
        Ok(ticket)
    }

    /// Waits for the end of a graph, at most so long. Counts it, and learns what its tasks cost.
    pub fn wait(&mut self, at_most: Duration) -> Option<Finished> {
        let finished = self.wait_uncounted(at_most)?;
        if let Some(Some(slice)) = self.slices.get_mut(usize::from(finished.slice)) {
            slice.count(&finished);
        }
        Some(finished)
    }

    fn wait_uncounted(&self, at_most: Duration) -> Option<Finished> {
        let until = Instant::now() + at_most;
        let mut finished = self.shared.lock_finished();
        loop {
            if let Some(finished) = finished.pop_front() {
                return Some(finished);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.shared.came.wait_timeout(finished, left);
            finished = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What became of a slice's graphs.
    pub fn counts(&self, slice: SliceId) -> Option<Counts> {
        Some(self.slices.get(usize::from(slice))?.as_ref()?.counts)
    }

    /// Name of a slice.
    pub fn name(&self, slice: SliceId) -> Option<&str> {
        Some(&self.slices.get(usize::from(slice))?.as_ref()?.name)
    }

    /// What a slice's tasks have cost.
    pub fn costs(&self, slice: SliceId) -> Option<&CostBook> {
        Some(&self.slices.get(usize::from(slice))?.as_ref()?.costs)
    }

    /// PEs that did not come back from a unit, and were given up.
    pub fn hung(&self) -> u64 {
        self.shared.hung.load(Ordering::Relaxed)
    }

    fn slice(&mut self, slice: SliceId) -> Result<&mut Slice, EngineError> {
        let entry = self.slices.get_mut(usize::from(slice));
        let entry = entry.and_then(Option::as_mut);
        entry.ok_or(EngineError::NoSlice(slice))
    }

    fn command(&self, command: Command) {
        {
            let mut commands = self.shared.lock_commands();
            commands.push(command);
            self.shared.commands_waiting.store(true, Ordering::Release);
        }
        if let Some(conductor) = &self.conductor {
            conductor.thread().unpark();
        }
    }
}

impl Slice {
    fn count(&mut self, finished: &Finished) {
        let count = match finished.result {
            Ok(Verdict::Done) => &mut self.counts.done,
            Ok(Verdict::Late) => &mut self.counts.late,
            Ok(Verdict::Failed { .. }) => &mut self.counts.failed,
            Ok(Verdict::Hung { .. }) => &mut self.counts.hung,
            Err(_) => &mut self.counts.refused,
        };
        *count += 1;
        for (kind, pe, nanoseconds) in finished.job.iter().flat_map(|job| job.task_times()) {
            self.costs.add(kind, pe, nanoseconds);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.command(Command::Stop);
        if let Some(conductor) = self.conductor.take() {
            let _panicked = conductor.join();
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
