//! The outputs of one interval's tasks, in one piece of memory.
//!
//! Each task has a region that it alone writes, once, and that its successors read after it. The arena itself sees to that,
//! whatever the core manager does: a state per task says whether its region is untouched, being written, or written for good.
//! Processes that share an arena all run this code; a process that does not is none that looks into the arena (`process`).

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

use super::array::{ALIGNMENT, Array, Bytes};
use crate::graph::{Graph, TaskId};

pub const UNTOUCHED: u8 = 0;
const WRITING: u8 = 1;
pub const WRITTEN: u8 = 2;

/// Where each task's region lies.
#[derive(Debug, Clone)]
pub struct Layout {
    /// First line of each task's region, and the number of all lines.
    lines: Box<[u32]>,
    /// Bytes of each task's output.
    bytes: Box<[u32]>,
}

/// The outputs of all tasks do not fit into an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the outputs of the graph's tasks take {bytes} bytes; an interval's outputs are at most {ARENA_BYTES_MAX}"
)]
pub struct TooLarge {
    bytes: u64,
}

/// Most bytes of an arena.
pub const ARENA_BYTES_MAX: u64 = 1 << 30;

impl Layout {
    /// Lays the regions of a graph's tasks side by side.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn of(graph: &Graph) -> Result<Self, TooLarge> {
        let mut lines = Vec::with_capacity(graph.len() + 1);
        let mut end = 0_u64;
        for task in graph.tasks() {
            lines.push(end as u32);
            end += u64::from(task.output_bytes).div_ceil(ALIGNMENT as u64);
            // Bounds `end` before it could exceed 32 bits.
            if end * ALIGNMENT as u64 > ARENA_BYTES_MAX {
                let bytes = graph
                    .tasks()
                    .iter()
                    .map(|task| u64::from(task.output_bytes));
                return Err(TooLarge { bytes: bytes.sum() });
            }
        }
        lines.push(end as u32);
        Ok(Self {
            lines: lines.into(),
            bytes: graph.tasks().iter().map(|task| task.output_bytes).collect(),
        })
    }

    /// The first line of a task's region, and the bytes of its output; `None` if there is no such task.
    pub fn region(&self, task: TaskId) -> Option<(usize, usize)> {
        let task = task as usize;
        Some((
            *self.lines.get(task)? as usize,
            *self.bytes.get(task)? as usize,
        ))
    }

    /// Number of all lines.
    pub fn total(&self) -> usize {
        self.lines.last().copied().unwrap_or(0) as usize
    }
}

/// The memory of one interval.
///
/// The bytes of a region are written only by the thread that has moved the region's state from UNTOUCHED to WRITING, which one
/// thread can do, and read only after its state is WRITTEN, by an acquiring load that follows the writer's releasing store.
pub struct Arena {
    layout: std::sync::Arc<Layout>,
    lines: Array<Bytes>,
    states: Array<AtomicU8>,
}

/// A task that may not run: it has run, or an input is missing. The core manager never asks for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("task {0} has run already, or an input is missing")]
pub struct OutOfOrder(pub TaskId);

impl Arena {
    /// Returns an arena of zeros.
    pub fn new(layout: std::sync::Arc<Layout>) -> Self {
        Self {
            lines: Array::own(layout.total()),
            states: Array::own(layout.bytes.len()),
            layout,
        }
    }

    /// The arena in these arrays, which are as long as the layout says.
    pub fn shared(
        layout: std::sync::Arc<Layout>,
        lines: Array<Bytes>,
        states: Array<AtomicU8>,
    ) -> Self {
        Self {
            layout,
            lines,
            states,
        }
    }

    /// Forgets all outputs, for the next interval. Regions keep their bytes: a kernel writes all of its output.
    pub fn reset(&mut self) {
        for state in &*self.states {
            state.store(UNTOUCHED, Ordering::Relaxed);
        }
    }

    /// Runs `kernel` with the inputs and the output of `task`. Its output counts as written if `kernel` returns true.
    ///
    /// # Errors
    /// [`OutOfOrder`].
    pub fn run<'a>(
        &'a self,
        graph: &'a Graph,
        task: TaskId,
        kernel: impl FnOnce(Inputs<'a>, &mut [u8]) -> bool,
    ) -> Result<bool, OutOfOrder> {
        let written = |link: &crate::graph::Link| {
            let state = self.states.get(link.task as usize);
            state.is_some_and(|state| state.load(Ordering::Acquire) == WRITTEN)
        };
        let inputs = graph.predecessors(task);
        let state = self.states.get(task as usize).ok_or(OutOfOrder(task))?;
        if !inputs.iter().all(written) {
            return Err(OutOfOrder(task));
        }
        state
            .compare_exchange(UNTOUCHED, WRITING, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| OutOfOrder(task))?;
        // SAFETY: this thread has moved the state to WRITING, so that it alone has the region until the state is WRITTEN;
        // nobody reads a region before.
        let output = unsafe {
            std::slice::from_raw_parts_mut(
                self.start(task),
                self.layout.bytes[task as usize] as usize,
            )
        };
        let inputs = Inputs {
            arena: self,
            inputs,
        };
        let is_written = kernel(inputs, output);
        if is_written {
            state.store(WRITTEN, Ordering::Release);
        }
        Ok(is_written)
    }

    /// The output of a task that has run.
    pub fn output(&self, task: TaskId) -> Option<&[u8]> {
        let state = self.states.get(task as usize)?;
        if state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        let bytes = self.layout.bytes[task as usize] as usize;
        // SAFETY: the region is WRITTEN for good: nobody writes to it while this borrow of the arena lasts, because
        // `reset` borrows the arena mutably.
        Some(unsafe { std::slice::from_raw_parts(self.start(task), bytes) })
    }

    fn start(&self, task: TaskId) -> *mut u8 {
        let first = self.layout.lines[task as usize] as usize;
        // The pointer may be used for the whole region, hence from the slice and not from one line. A task without output
        // can lie behind the last line.
        let lines = &self.lines[first..];
        UnsafeCell::raw_get(lines.as_ptr().cast::<UnsafeCell<u8>>())
    }
}

/// The inputs of a task: the outputs of its predecessors, in the order of its edges.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    arena: &'a Arena,
    inputs: &'a [crate::graph::Link],
}

impl<'a> Inputs<'a> {
    /// Number of inputs.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Returns true if the task is an entry.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// An input; empty if there is none of this index.
    pub fn get(&self, index: usize) -> &'a [u8] {
        let link = self.inputs.get(index);
        link.and_then(|link| self.arena.output(link.task))
            .unwrap_or(&[])
    }

    /// All inputs.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let inputs = *self;
        (0..inputs.len()).map(move |index| inputs.get(index))
    }
}
