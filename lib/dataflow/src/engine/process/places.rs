//! The parts of an interval's block: the same for the core manager and for PEs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::region::Block;
use crate::engine::arena::Layout;
use crate::engine::array::{ALIGNMENT, Part, Shareable};
use crate::engine::work::Record;
use crate::plan::Gathered;

/// Words of a block's head, which the manager writes for PEs.
pub const HEAD: usize = 5;

/// The head of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// First line of the graph's form, its words, and the number of its shape.
    pub form: u32,
    pub form_words: usize,
    pub shape: u64,
    /// Bytes of the interval's input.
    pub input_bytes: usize,
    /// Each task is timed.
    pub measures: bool,
}

impl Head {
    pub fn words(&self) -> [u64; HEAD] {
        [
            self.form.into(),
            self.form_words as u64,
            self.shape,
            self.input_bytes as u64,
            self.measures.into(),
        ]
    }

    pub fn of(words: [u64; HEAD]) -> Option<Self> {
        let [form, form_words, shape, input_bytes, measures] = words;
        Some(Self {
            form: form.try_into().ok()?,
            form_words: form_words.try_into().ok()?,
            shape,
            input_bytes: input_bytes.try_into().ok()?,
            measures: measures == 1,
        })
    }
}

/// First lines of the parts.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    input: usize,
    outputs: usize,
    states: usize,
    records: usize,
    times: usize,
    /// Lines of the whole block.
    pub lines: usize,
}

impl Places {
    /// The places for a graph and an input of so many bytes; `None` if they are more than memory can be.
    pub fn of(gathered: &Gathered, layout: &Layout, input_bytes: usize) -> Option<Self> {
        let tasks = gathered.tasks().len();
        let parts = [
            HEAD * size_of::<u64>(),
            input_bytes,
            layout.total() * ALIGNMENT,
            tasks,
            gathered.units() * size_of::<Record>(),
            tasks * size_of::<u32>(),
        ];
        let mut starts = [0; 7];
        for (at, bytes) in parts.into_iter().enumerate() {
            starts[at + 1] = bytes.div_ceil(ALIGNMENT).checked_add(starts[at])?;
        }
        let [_, input, outputs, states, records, times, lines] = starts;
        Some(Self {
            input,
            outputs,
            states,
            records,
            times,
            lines,
        })
    }
}

/// The parts. Input and outputs are bytes to PEs, and words to the core manager.
pub struct Parts<T: Shareable> {
    pub head: Part<AtomicU64>,
    pub input: Part<T>,
    pub outputs: Part<T>,
    pub states: Part<AtomicU8>,
    pub records: Part<Record>,
    /// Nanoseconds of each task, if they are measured.
    pub times: Part<AtomicU32>,
}

impl<T: Shareable> Parts<T> {
    /// The parts of a block; `None` if the block ends before.
    pub fn of(block: &Arc<Block>, places: &Places, gathered: &Gathered) -> Option<Self> {
        let lines = |from: usize, to: usize| {
            Part::of(block, from, (to - from) * ALIGNMENT / size_of::<T>())
        };
        let tasks = gathered.tasks().len();
        Some(Self {
            head: Part::of(block, 0, HEAD)?,
            input: lines(places.input, places.outputs)?,
            outputs: lines(places.outputs, places.states)?,
            states: Part::of(block, places.states, tasks)?,
            records: Part::of(block, places.records, gathered.units())?,
            times: Part::of(block, places.times, tasks)?,
        })
    }
}
