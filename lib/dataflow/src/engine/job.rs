//! A graph of one interval, as PEs run it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::{Arena, Inputs, Layout, TooLarge};
use super::clock::Clock;
use crate::graph::TaskId;
use crate::manager::SliceId;
use crate::plan::Plan;

/// The kernels of a slice. A kernel reads nothing but its call: results are the same wherever and whenever it runs.
pub trait Application: Send + Sync {
    /// Runs one task, and writes all of its output.
    ///
    /// # Errors
    /// [`Failure`]: the graph is dropped, and counted as failed. A panic is a failure, too.
    fn run(&self, call: Call<'_>) -> Result<(), Failure>;
}

/// A task's call.
pub struct Call<'a> {
    /// The task.
    pub task: TaskId,
    /// The task's kind.
    pub kind: u16,
    /// The task's argument.
    pub argument: u64,
    /// The interval's input from outside the graph: samples, a frame.
    pub external: &'a [u8],
    /// The outputs of the task's predecessors.
    pub inputs: Inputs<'a>,
    /// The task's output, aligned to 64 bytes.
    pub output: &'a mut [u8],
}

/// Why a task failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A graph with the layout of its outputs: made once per configuration of a slice, used in each interval.
#[derive(Clone)]
pub struct Shape {
    pub(super) plan: Arc<Plan>,
    pub(super) layout: Arc<Layout>,
    /// Arenas that no interval uses.
    pub(super) spare: Arc<Mutex<Vec<Arena>>>,
}

/// Spare arenas of a shape: one under way, one that is composed, one that is read.
const SPARE_MAX: usize = 4;

impl Shape {
    /// Prepares a plan.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn new(plan: Plan) -> Result<Self, TooLarge> {
        Ok(Self {
            layout: Arc::new(Layout::of(plan.tasks())?),
            plan: Arc::new(plan),
            spare: Arc::default(),
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn arena(&self) -> Arena {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match spare {
            Some(mut arena) => {
                arena.reset();
                arena
            }
            None => Arena::new(self.layout.clone()),
        }
    }
}

/// The run of a unit.
#[derive(Debug, Default)]
struct Record {
    start: AtomicU64,
    took: AtomicU32,
    pe: AtomicU32,
}

/// The run of a unit, as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitRun {
    /// The unit.
    pub unit: u32,
    /// The PE that ran it.
    pub pe: usize,
    /// Begin on the engine's clock, in nanoseconds.
    pub start: u64,
    /// Nanoseconds that it took.
    pub took: u64,
}

/// A graph of one interval.
pub struct Job {
    pub(super) slice: SliceId,
    pub(super) ticket: u64,
    pub(super) shape: Shape,
    pub(super) application: Arc<dyn Application>,
    external: Arc<[u8]>,
    /// Always there until the job is dropped.
    arena: Option<Arena>,
    records: Box<[Record]>,
    /// Duration of each task in nanoseconds, if the job measures them.
    task_times: Option<Box<[AtomicU32]>>,
    is_dropped: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Job {
    pub(super) fn new(
        slice: SliceId,
        ticket: u64,
        shape: Shape,
        application: Arc<dyn Application>,
        external: Arc<[u8]>,
        measures: bool,
    ) -> Self {
        let units = shape.plan.units().len();
        let tasks = shape.plan.tasks().len();
        Self {
            slice,
            ticket,
            arena: Some(shape.arena()),
            records: (0..units).map(|_| Record::default()).collect(),
            task_times: measures.then(|| (0..tasks).map(|_| AtomicU32::default()).collect()),
            is_dropped: AtomicBool::new(false),
            failure: Mutex::new(None),
            shape,
            application,
            external,
        }
    }

    /// Runs a unit on a PE, which begins now, at `start`. Returns false if a task failed, and the time.
    pub(super) fn run(&self, unit: u32, pe: usize, start: u64, clock: &Clock) -> (bool, u64) {
        let plan = &*self.shape.plan;
        if unit as usize >= plan.units().len() {
            return (false, start);
        }
        let mut before = start;
        let mut is_done = true;
        for &task in plan.members(unit) {
            is_done = is_done && self.run_task(task);
            if let Some(times) = &self.task_times {
                let now = clock.now();
                times[task as usize].store(saturate(now.saturating_sub(before)), Ordering::Relaxed);
                before = now;
            }
        }
        let end = clock.now();
        let record = &self.records[unit as usize];
        record.start.store(start, Ordering::Relaxed);
        record.took.store(
            saturate(end.saturating_sub(start)).max(1),
            Ordering::Relaxed,
        );
        record.pe.store(pe as u32, Ordering::Relaxed);
        (is_done, end)
    }

    fn run_task(&self, task: TaskId) -> bool {
        let Some(arena) = &self.arena else {
            return false;
        };
        let graph = self.shape.plan.tasks();
        let node = graph.task(task);
        let ran = arena.run(graph, task, |inputs, output| {
            let call = Call {
                task,
                kind: node.kind,
                argument: node.argument,
                external: &self.external,
                inputs,
                output,
            };
            // A kernel that panics leaves its output unwritten, and nobody reads it.
            let ran = catch_unwind(AssertUnwindSafe(|| self.application.run(call)));
            match ran {
                Ok(Ok(())) => true,
                Ok(Err(Failure(why))) => self.fail(task, &why),
                Err(panic) => self.fail(task, &describe(&*panic)),
            }
        });
        ran.unwrap_or_else(|out_of_order| self.fail(task, &out_of_order.to_string()))
    }

    fn fail(&self, task: TaskId, why: &str) -> bool {
        let kind = self.shape.plan.tasks().task(task).kind;
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| format!("task {task} (kind {kind}): {why}"));
        false
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn drop_outputs(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// The output of a task, or `None` if the graph was dropped: a late graph is never half delivered.
    pub(super) fn output(&self, task: TaskId) -> Option<&[u8]> {
        if self.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        self.arena.as_ref()?.output(task)
    }

    /// All units that have run, by unit.
    pub(super) fn runs(&self) -> impl Iterator<Item = UnitRun> {
        let records = self.records.iter().enumerate();
        records.filter_map(|(unit, record)| {
            let took = record.took.load(Ordering::Relaxed);
            (took > 0).then(|| UnitRun {
                unit: unit as u32,
                pe: record.pe.load(Ordering::Relaxed) as usize,
                start: record.start.load(Ordering::Relaxed),
                took: u64::from(took),
            })
        })
    }

    /// Kind, PE and nanoseconds of each task, if the job has measured them.
    pub(super) fn task_times(&self) -> impl Iterator<Item = (u16, usize, u64)> {
        let plan = &*self.shape.plan;
        let times = self.task_times.iter();
        times.flat_map(move |times| {
            self.runs().flat_map(move |run| {
                plan.members(run.unit).iter().map(move |&task| {
                    let took = times[task as usize].load(Ordering::Relaxed);
                    (plan.tasks().task(task).kind, run.pe, u64::from(took))
                })
            })
        })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Some(arena) = self.arena.take() else {
            return;
        };
        let mut spare = self
            .shape
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(arena);
        }
    }
}

fn saturate(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds).unwrap_or(u32::MAX)
}

fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the kernel panicked: {}", text.unwrap_or_default())
}
