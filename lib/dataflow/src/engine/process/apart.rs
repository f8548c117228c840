//! An interval in memory that PEs' processes share, as the core manager sees it.
//!
//! A process in which a kernel has got loose may write anything at any time. The manager makes no reference to bytes there: it
//! reads atomics, each once, and copies an output before anybody looks at it. What it reads may be nonsense, of this slice only.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::form;
use super::places::{Head, Parts, Places};
use super::region::{Block, Region};
use crate::engine::arena::{Layout, UNTOUCHED, WRITTEN};
use crate::engine::array::{Part, WORDS_PER_LINE, load, store};
use crate::engine::job::Shape;
use crate::engine::work::Record;
use crate::graph::TaskId;

/// A graph in a region, for all intervals with its shape.
#[derive(Clone)]
pub struct Form {
    pub shape: u64,
    block: Arc<Block>,
    words: usize,
}

impl Form {
    /// Writes the graph of a shape into a region; `None` if there is no room.
    pub fn write(region: &Arc<Region>, shape: &Shape) -> Option<Self> {
        let words = form::write(shape.plan.gathered());
        let block = region.take(words.len().div_ceil(WORDS_PER_LINE))?;
        let length = words.len();
        store(&Part::<AtomicU64>::of(&block, 0, length)?, words);
        Some(Self {
            shape: shape.number,
            block,
            words: length,
        })
    }
}

/// An interval.
pub struct Apart {
    pub records: Part<Record>,
    pub task_times: Option<Part<AtomicU32>>,
    /// Why the graph failed; the first reason stays.
    pub failure: OnceLock<String>,
    layout: Arc<Layout>,
    states: Part<AtomicU8>,
    outputs: Part<AtomicU64>,
    copies: Box<[OnceLock<Box<[u64]>>]>,
    pub block: Arc<Block>,
    _form: Form,
}

impl Apart {
    /// Lays an interval out; `None` if there is no room.
    pub fn new(
        region: &Arc<Region>,
        form: &Form,
        shape: &Shape,
        input: &[u8],
        measures: bool,
    ) -> Option<Self> {
        let gathered = shape.plan.gathered();
        let places = Places::of(gathered, &shape.layout, input.len())?;
        let block = region.take(places.lines)?;
        let parts = Parts::<AtomicU64>::of(&block, &places, gathered)?;
        let head = Head {
            form: form.block.first(),
            form_words: form.words,
            shape: shape.number,
            input_bytes: input.len(),
            measures,
        };
        store(&parts.head, head.words());
        store(&parts.input, words(input));
        for state in parts.states.iter() {
            state.store(UNTOUCHED, Ordering::Relaxed);
        }
        for record in parts.records.iter() {
            record.took.store(0, Ordering::Relaxed);
        }
        let task_times = measures.then_some(parts.times);
        for time in task_times.iter().flat_map(|times| times.iter()) {
            time.store(0, Ordering::Relaxed);
        }
        Some(Self {
            records: parts.records,
            task_times,
            failure: OnceLock::new(),
            layout: Arc::clone(&shape.layout),
            states: parts.states,
            outputs: parts.outputs,
            copies: gathered
                .tasks()
                .tasks()
                .iter()
                .map(|_| OnceLock::new())
                .collect(),
            block,
            _form: form.clone(),
        })
    }

    /// A copy of the output of a task that has run, the same at each call.
    pub fn output(&self, task: TaskId) -> Option<&[u8]> {
        let (line, bytes) = self.layout.region(task)?;
        let state = self.states.get(task as usize)?;
        if state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        let first = line * WORDS_PER_LINE;
        let words = self
            .outputs
            .get(first..first + bytes.div_ceil(size_of::<u64>()))?;
        let copy = self
            .copies
            .get(task as usize)?
            .get_or_init(|| load(words).collect());
        bytemuck::cast_slice(copy).get(..bytes)
    }
}

/// The bytes as words, the last one filled up with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().copied().chain([last]).map(u64::from_ne_bytes)
}
