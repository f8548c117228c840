//! An interval in memory that PEs' processes share, as the core manager sees it.
//!
//! A process in which a kernel has got loose may write anything at any time. The manager makes no reference to bytes there: it
//! reads atomics, each once, and copies an output before anybody looks at it. What it reads may be nonsense, of this slice only.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::form;
use super::places::{HEAD, Head, Places};
use super::region::{Block, Region};
use crate::engine::arena::{Layout, UNTOUCHED, WRITTEN};
use crate::engine::array::{ALIGNMENT, Part};
use crate::engine::job::Shape;
use crate::engine::work::Record;
use crate::graph::TaskId;

const WORDS_PER_LINE: usize = ALIGNMENT / size_of::<u64>();

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
        for (place, word) in Part::<AtomicU64>::of(&block, 0, words.len())?
            .iter()
            .zip(&words)
        {
            place.store(*word, Ordering::Relaxed);
        }
        Some(Self {
            shape: shape.number,
            block,
            words: words.len(),
        })
    }
}

/// An interval.
pub struct Apart {
    pub records: Part<Record>,
    pub task_times: Option<Part<AtomicU32>>,
    layout: Arc<Layout>,
    states: Part<AtomicU8>,
    outputs: Part<AtomicU64>,
    copies: Box<[OnceLock<Box<[u64]>>]>,
    failure: Mutex<Option<String>>,
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
        let tasks = gathered.tasks().len();
        let places = Places::of(gathered, &shape.layout, input.len())?;
        let block = region.take(places.lines)?;
        let head = Head {
            form: form.block.first(),
            form_words: form.words,
            shape: shape.number,
            input_bytes: input.len(),
            measures,
        };
        for (place, word) in Part::<AtomicU64>::of(&block, 0, HEAD)?
            .iter()
            .zip(head.words())
        {
            place.store(word, Ordering::Relaxed);
        }
        write(
            &Part::of(&block, places.input, input.len().div_ceil(8))?,
            input,
        );
        let states: Part<AtomicU8> = Part::of(&block, places.states, tasks)?;
        for state in states.iter() {
            state.store(UNTOUCHED, Ordering::Relaxed);
        }
        let records: Part<Record> = Part::of(&block, places.records, gathered.units())?;
        for record in records.iter() {
            record.took.store(0, Ordering::Relaxed);
        }
        let task_times = measures.then(|| Part::<AtomicU32>::of(&block, places.times, tasks));
        let task_times = match task_times {
            Some(times) => Some(times?),
            None => None,
        };
        for time in task_times.iter().flat_map(|times| times.iter()) {
            time.store(0, Ordering::Relaxed);
        }
        Some(Self {
            outputs: Part::of(
                &block,
                places.outputs,
                shape.layout.total() * WORDS_PER_LINE,
            )?,
            copies: (0..tasks).map(|_| OnceLock::new()).collect(),
            layout: Arc::clone(&shape.layout),
            failure: Mutex::new(None),
            _form: form.clone(),
            states,
            records,
            task_times,
            block,
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
        let copy = self.copies.get(task as usize)?.get_or_init(|| {
            let words = words.iter().map(|word| word.load(Ordering::Relaxed));
            words.collect()
        });
        bytemuck::cast_slice(copy).get(..bytes)
    }

    /// Keeps why the graph failed, for the first time.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        let failure = self.failure.lock();
        failure
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(why);
    }

    /// Why the graph failed.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn write(places: &Part<AtomicU64>, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain((!rest.is_empty()).then_some(&last));
    for (place, word) in places.iter().zip(words) {
        place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
}
