//! A bounded queue of one producer and one consumer: 64-bit messages that are never zero.
//!
//! A slot is one word: zero is free, anything else is a message. Message and flag are one, so that a message in flight moves
//! one cache line, and no index is shared: each side keeps its own, and a peer that writes nonsense into shared memory can
//! only send wrong messages (FastForward: Giacomoni, Moseley and Vachharajani, PPoPP 2008). What was compared:
//! `docs/adr/0050-dataflow.md`.
//!
//! A queue of many producers is a queue per producer, which the consumer reads in turn.

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
struct Line([AtomicU64; WORDS_PER_LINE]);

/// The memory that both ends share.
struct Slots(alloc::boxed::Box<[Line]>);

impl Slots {
    fn at(&self, index: usize) -> &AtomicU64 {
        &self.line(index).0[index % WORDS_PER_LINE]
    }

    fn line(&self, index: usize) -> &Line {
        &self.0[(index / WORDS_PER_LINE) & (self.0.len() - 1)]
    }
}

/// The end that sends.
pub struct Producer {
    slots: Arc<Slots>,
    next: usize,
}

/// The end that receives.
pub struct Consumer {
    slots: Arc<Slots>,
    next: usize,
}

/// Makes a queue with room for at least `messages` messages.
pub fn queue(messages: usize) -> (Producer, Consumer) {
    // The consumer has one line that it has not freed yet.
    let lines = (messages.div_ceil(WORDS_PER_LINE) + 1).next_power_of_two();
    let lines = (0..lines).map(|_| Line::default());
    let slots = Arc::new(Slots(lines.collect()));
    let consumer = Consumer {
        slots: slots.clone(),
        next: 0,
    };
    (Producer { slots, next: 0 }, consumer)
}

impl Producer {
    /// Sends a message. Returns false if the queue is full.
    #[inline]
    pub fn push(&mut self, message: Word) -> bool {
        let slot = self.slots.at(self.next);
        // The consumer has read what this slot had: its read is before its zero, and its zero before this store.
        if slot.load(Ordering::Acquire) != 0 {
            return false;
        }
        slot.store(message.get(), Ordering::Release);
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Sends messages, as many as there is room for. Returns how many.
    #[inline]
    pub fn push_all(&mut self, messages: &[Word]) -> usize {
        let sent = messages.iter().take_while(|&&message| self.push(message));
        sent.count()
    }
}

impl Consumer {
    /// Returns the next message, or `None` if none is there yet.
    #[inline]
    pub fn pop(&mut self) -> Option<Word> {
        let slot = self.slots.at(self.next);
        let message = Word::new(slot.load(Ordering::Acquire))?;
        if self.next % WORDS_PER_LINE == WORDS_PER_LINE - 1 {
            for slot in &self.slots.line(self.next).0 {
                slot.store(0, Ordering::Release);
            }
        }
        self.next = self.next.wrapping_add(1);
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
