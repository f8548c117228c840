//! The memory that the core manager shares with one PE's process beside intervals: two queues, a word to sleep on, and why a
//! task failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use rustix::thread::futex;

use super::region::{Block, Region};
use crate::engine::array::{ALIGNMENT, Part};
use crate::engine::remote::Sleeper;
use crate::queue::{Consumer, Line, Producer, lines_for};

/// Longest text of a failure in bytes.
const TEXT_MAX: usize = 256;

type Sending = Producer<Part<Line>>;
type Receiving = Consumer<Part<Line>>;

/// The parts of the block.
#[derive(Clone)]
pub struct Seat {
    block: Arc<Block>,
    /// Lines of each queue.
    lines: usize,
}

impl Seat {
    /// Takes a block for queues of so many messages; `None` if there is no room.
    pub fn take(region: &Arc<Region>, messages: usize) -> Option<Self> {
        let lines = lines_for(messages);
        let all = 1 + 2 * lines + (1 + TEXT_MAX.div_ceil(ALIGNMENT));
        let block = region.take(all)?;
        let seat = Self { block, lines };
        // The memory may have been another's.
        for byte in Part::<AtomicU8>::of(&seat.block, 0, seat.block.bytes())?.iter() {
            byte.store(0, Ordering::Relaxed);
        }
        Some(seat)
    }

    fn queue(&self, number: usize) -> Option<Part<Line>> {
        Part::of(&self.block, 1 + number * self.lines, self.lines)
    }

    /// The manager's ends.
    pub fn manager(&self) -> Option<(Sending, Receiving)> {
        Some((
            Producer::over(self.queue(0)?),
            Consumer::over(self.queue(1)?),
        ))
    }

    /// The PE's ends.
    pub fn pe(&self) -> Option<(Receiving, Sending)> {
        Some((
            Consumer::over(self.queue(0)?),
            Producer::over(self.queue(1)?),
        ))
    }

    /// The word that says whether the PE is wanted awake.
    pub fn word(&self) -> Option<Word> {
        Part::of(&self.block, 0, 1).map(Word)
    }

    fn text(&self) -> Option<(Part<AtomicU32>, Part<AtomicU8>)> {
        let line = 1 + 2 * self.lines;
        Some((
            Part::of(&self.block, line, 1)?,
            Part::of(&self.block, line + 1, TEXT_MAX)?,
        ))
    }

    /// Leaves why a task failed.
    pub fn tell(&self, text: &str) {
        let Some((length, places)) = self.text() else {
            return;
        };
        let told = text.bytes().zip(places.iter());
        let told = told.map(|(byte, place)| place.store(byte, Ordering::Relaxed));
        length[0].store(told.count() as u32, Ordering::Relaxed);
    }

    /// Why a task failed, as the PE's process says: printable text.
    pub fn told(&self) -> String {
        let Some((length, places)) = self.text() else {
            return String::new();
        };
        let length = length[0].load(Ordering::Relaxed) as usize;
        let bytes = places.iter().take(length);
        let bytes: Vec<u8> = bytes.map(|place| place.load(Ordering::Relaxed)).collect();
        let text = String::from_utf8_lossy(&bytes);
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        text.chars().map(shown).collect()
    }
}

/// Asleep, or wanted awake.
const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;

/// The word that a PE's process sleeps on.
pub struct Word(Part<AtomicU32>);

impl Word {
    /// Returns true if the PE is wanted awake.
    pub fn is_awake(&self) -> bool {
        self.0[0].load(Ordering::Acquire) != ASLEEP
    }

    /// Sleeps until the PE is wanted awake, or for no reason.
    pub fn sleep(&self) {
        let _woken = futex::wait(&self.0[0], futex::Flags::empty(), ASLEEP, None);
    }
}

impl Sleeper for Word {
    fn rouse(&self) -> bool {
        self.0[0].swap(AWAKE, Ordering::AcqRel) == ASLEEP
    }

    fn wake(&self) {
        let _woken = futex::wake(&self.0[0], futex::Flags::empty(), 1);
    }

    fn let_sleep(&self) {
        self.0[0].store(ASLEEP, Ordering::Release);
    }
}
