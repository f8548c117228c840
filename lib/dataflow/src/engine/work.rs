//! The work of one interval, as PEs do it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::arena::{Arena, Inputs};
use super::array::{ALIGNMENT, Array, Bytes, Part, Shareable};
use super::clock::Clock;
use crate::graph::{Graph, TaskId};
use crate::plan::Gathered;

/// The kernels of a slice. A kernel reads nothing but its call: results are the same wherever and whenever it runs.
///
/// Where PEs are processes, a kernel runs in a copy of the process that has added the slice: what it changes beside its output
/// stays there. It starts no thread, and waits for none.
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

impl<'a> Call<'a> {
    /// The call of a task of `graph`.
    pub fn of(
        graph: &Graph,
        task: TaskId,
        external: &'a [u8],
        inputs: Inputs<'a>,
        output: &'a mut [u8],
    ) -> Self {
        let node = graph.task(task);
        Self {
            task,
            kind: node.kind,
            argument: node.argument,
            external,
            inputs,
            output,
        }
    }
}

/// Why a task failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// The run of a unit, by who ran it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    pub start: AtomicU64,
    /// Nanoseconds; zero if the unit has not run.
    pub took: AtomicU32,
    pub pe: AtomicU32,
}

// SAFETY: atomics without padding between them.
unsafe impl Shareable for Record {}

/// The input of an interval.
pub enum External {
    /// The caller's bytes.
    Own(Arc<[u8]>),
    /// Bytes in shared memory, of which the first so many count.
    Shared(Part<Bytes>, usize),
}

impl External {
    fn bytes(&self) -> &[u8] {
        match self {
            External::Own(bytes) => bytes,
            External::Shared(lines, len) => {
                let len = (*len).min(lines.len() * ALIGNMENT);
                // SAFETY: the lines lie side by side. The core manager has written them before it told of the graph, and nobody
                // writes to them as long as a PE has it: not the manager, and no kernel, which is safe code and has no reference
                // to them but this one. A process in which other code has got loose is given up by the manager, and shares this
                // memory with processes of its own slice only.
                unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), len) }
            }
        }
    }
}

/// Arenas that no interval uses.
pub type Spare = Arc<Mutex<Vec<Arena>>>;

/// Spare arenas of a shape: one under way, one that is composed, one that is read.
const SPARE_MAX: usize = 4;

/// An interval, as PEs read and write it.
pub struct Work {
    pub gathered: Arc<Gathered>,
    pub application: Arc<dyn Application>,
    pub external: External,
    /// Always there until the work is dropped.
    pub arena: Option<Arena>,
    /// Where the arena goes then.
    pub spare: Option<Spare>,
    pub records: Array<Record>,
    /// Duration of each task in nanoseconds, if they are measured.
    pub task_times: Option<Array<AtomicU32>>,
    /// Why a task failed; the first reason stays.
    pub failure: OnceLock<String>,
}

impl Work {
    /// Runs a unit on a PE, which begins now, at `start`. Returns false if a task failed, and the time.
    pub fn run(&self, unit: u32, pe: usize, start: u64, clock: &Clock) -> (bool, u64) {
        let Some(record) = self.records.get(unit as usize) else {
            return (false, start);
        };
        let mut before = start;
        let mut is_done = true;
        for &task in self.gathered.members(unit) {
            is_done = is_done && self.run_task(task);
            if let Some(times) = &self.task_times {
                let now = clock.now();
                times[task as usize].store(saturate(now.saturating_sub(before)), Ordering::Relaxed);
                before = now;
            }
        }
        let end = clock.now();
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
        let graph = self.gathered.tasks();
        let ran = arena.run(graph, task, |inputs, output| {
            let call = Call::of(graph, task, self.external.bytes(), inputs, output);
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
        let kind = self.gathered.tasks().task(task).kind;
        let _first_stays = self
            .failure
            .set(format!("task {task} (kind {kind}): {why}"));
        false
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let (Some(arena), Some(spare)) = (self.arena.take(), &self.spare) else {
            return;
        };
        let mut spare = spare.lock().unwrap_or_else(PoisonError::into_inner);
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
