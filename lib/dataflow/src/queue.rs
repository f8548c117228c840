//! A bounded queue of one producer and one consumer: 64-bit messages that are never zero.
//!
//! A slot is one word: zero is free, anything else is a message. Message and flag are one, so that a message in flight moves
//! one cache line, and no index is shared: each side keeps its own, and a peer that writes nonsense into shared memory can
//! only send wrong messages (FastForward: Giacomoni, Moseley and Vachharajani, PPoPP 2008). Both ends may be in one process,
//! or in two that share memory. What was compared: `docs/adr/0050-dataflow.md`.
//!
//! A queue of many producers is a queue per producer, which the consumer reads in turn.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::NonZeroU64;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// A message; [`crate::message`] gives it a meaning.
pub type Word = NonZeroU64;

/// Slots that the consumer frees at a time: a cache line. While both are in a line, the producer alone writes to it, so that
/// its look at the next slot finds it in its own cache.
#[cfg(not(loom))]
const WORDS_PER_LINE: usize = 8;
/// A model of a smaller line has fewer orders of steps.
#[cfg(loom)]
const WORDS_PER_LINE: usize = 2;

/// A cache line of slots.
#[derive(Default)]
#[repr(align(64))]
pub struct Line([AtomicU64; WORDS_PER_LINE]);

/// Memory that both ends of a queue share.
pub trait Lines {
    /// The slots: at least one line, zero at first. Of a number that is no power of two, the rest is not used.
    fn lines(&self) -> &[Line];
}

impl Lines for Box<[Line]> {
    fn lines(&self) -> &[Line] {
        self
    }
}

impl<M: Lines> Lines for Arc<M> {
    fn lines(&self) -> &[Line] {
        (**self).lines()
    }
}

/// The place of an end in the memory.
struct Place<M> {
    memory: M,
    /// Lines, minus one.
    mask: usize,
    next: usize,
}

impl<M: Lines> Place<M> {
    fn new(memory: M) -> Self {
        let mask = match memory.lines().len().checked_ilog2() {
            Some(bits) => (1 << bits) - 1,
            None => 0,
        };
        Self {
            memory,
            mask,
            next: 0,
        }
    }

    fn line(&self) -> &Line {
        &self.memory.lines()[(self.next / WORDS_PER_LINE) & self.mask]
    }

    fn slot(&self) -> &AtomicU64 {
        &self.line().0[self.next % WORDS_PER_LINE]
    }

    fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
    }
}

/// The end that sends.
pub struct Producer<M = Arc<Box<[Line]>>>(Place<M>);

/// The end that receives.
pub struct Consumer<M = Arc<Box<[Line]>>>(Place<M>);

/// Number of lines of a queue with room for at least `messages` messages.
pub fn lines_for(messages: usize) -> usize {
    // The consumer has one line that it has not freed yet.
    (messages.div_ceil(WORDS_PER_LINE) + 1).next_power_of_two()
}

/// Makes a queue with room for at least `messages` messages.
pub fn queue(messages: usize) -> (Producer, Consumer) {
    let lines = (0..lines_for(messages)).map(|_| Line::default());
    let memory: Arc<Box<[Line]>> = Arc::new(lines.collect());
    (Producer::over(memory.clone()), Consumer::over(memory))
}

impl<M: Lines> Producer<M> {
    /// The sending end of a queue in this memory. It has one such end.
    pub fn over(memory: M) -> Self {
        Self(Place::new(memory))
    }

    /// Sends a message. Returns false if the queue is full.
    #[inline]
    pub fn push(&mut self, message: Word) -> bool {
        let slot = self.0.slot();
        // The consumer has read what this slot had: its read is before its zero, and its zero before this store.
        if slot.load(Ordering::Acquire) != 0 {
            return false;
        }
        slot.store(message.get(), Ordering::Release);
        self.0.advance();
        true
    }

    /// Sends messages, as many as there is room for. Returns how many.
    #[inline]
    pub fn push_all(&mut self, messages: &[Word]) -> usize {
        let sent = messages.iter().take_while(|&&message| self.push(message));
        sent.count()
    }
}

impl<M: Lines> Consumer<M> {
    /// The receiving end of a queue in this memory. It has one such end.
    pub fn over(memory: M) -> Self {
        Self(Place::new(memory))
    }

    /// Returns the next message, or `None` if none is there yet.
    #[inline]
    pub fn pop(&mut self) -> Option<Word> {
        let message = Word::new(self.0.slot().load(Ordering::Acquire))?;
        if self.0.next % WORDS_PER_LINE == WORDS_PER_LINE - 1 {
            for slot in &self.0.line().0 {
                slot.store(0, Ordering::Release);
            }
        }
        self.0.advance();
        Some(message)
    }

    /// Receives messages into `messages`, as many as are there and find room. Returns how many.
    #[inline]
    pub fn pop_all(&mut self, messages: &mut [Word]) -> usize {
        let mut count = 0;
        for place in messages {
            let Some(message) = self.pop() else { break };
            *place = message;
            count += 1;
        }
        count
    }
}
