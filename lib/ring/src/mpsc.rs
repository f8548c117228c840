//! Ring from very many producers to one consumer, for parties that trust each other.
//!
//! The ring in front of an I/O thread says which ports have frames, so that no thread looks at thousands of rings.
//! Any number of producers may share a core and be preempted, or killed, at any instruction:
//!
//! - A slot is claimed and published by one compare-and-swap, of its sequence number and its value
//!   together. There is no state in between that others would have to wait for.
//! - The tail only says where to try. A producer that finds the tail behind moves the tail on, whichever producer
//!   published there.
//!
//! So a producer that never runs again leaves at most a tail behind that the next one corrects. Rings
//! with a reservation before the publication (DPDK's, LMAX's) wait for it for ever.
//!
//! A sequence number has 32 bits: for a wrong value a producer would have to be held between its load and its
//! exchange while exactly 2^32 values pass. This ring is not for parties that do not trust each other: a party that
//! can write the ring can make up values.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A word on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
struct Word(AtomicU32);

/// The ring: `SLOTS` values, a power of two and at least 2. Plain memory that processes may share.
#[repr(C)]
#[derive(Debug)]
pub struct Mpsc<const SLOTS: usize> {
    /// Position of the next value to be published, or an earlier one.
    tail: Word,
    /// Position of the next value to be taken.
    head: Word,
    /// Not 0: values were refused since the consumer last asked.
    overflow: Word,
    /// Value in bits 0..31; sequence in bits 32..63: the slot's position while it is free, one more
    /// when the value of that position is in it.
    slots: [AtomicU64; SLOTS],
}

/// The ring was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

const fn word(sequence: u32, value: u32) -> u64 {
    (sequence as u64) << 32 | value as u64
}

const fn sequence_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl<const SLOTS: usize> Mpsc<SLOTS> {
    const MASK: u32 = {
        assert!(SLOTS.is_power_of_two() && SLOTS >= 2 && SLOTS <= 1 << 31);
        SLOTS as u32 - 1
    };

    /// An empty ring whose first position is `start`.
    pub fn starting_at(start: u32) -> Self {
        let slot = |index: usize| {
            // The first position from `start` on that lies in this slot.
            let ahead = (index as u32).wrapping_sub(start) & Self::MASK;
            AtomicU64::new(word(start.wrapping_add(ahead), 0))
        };
        Mpsc {
            tail: Word(AtomicU32::new(start)),
            head: Word(AtomicU32::new(start)),
            overflow: Word(AtomicU32::new(0)),
            slots: core::array::from_fn(slot),
        }
    }

    /// Makes an empty ring of memory that holds anything. The call comes before any other use of the memory.
    pub fn clear(&self) {
        for (index, slot) in self.slots.iter().enumerate() {
            slot.store(word(index as u32, 0), Ordering::Relaxed);
        }
        for line in [&self.tail, &self.head, &self.overflow] {
            line.0.store(0, Ordering::Release);
        }
    }

    fn slot(&self, position: u32) -> &AtomicU64 {
        &self.slots[(position & Self::MASK) as usize]
    }

    /// Looks at the tail before a push gives up: the others would have to fill the ring four times
    /// within it, or to have damaged it.
    const TRIES: usize = 4 * SLOTS;

    /// Publishes a value. Lock-free: it tries again only when another producer has succeeded.
    ///
    /// # Errors
    /// [`Full`]; [`Mpsc::overflowed`] reports the overflow to the consumer.
    pub fn push(&self, value: u32) -> Result<(), Full> {
        for _ in 0..Self::TRIES {
            let tail = self.tail.0.load(Ordering::Acquire);
            let found = self.slot(tail).load(Ordering::Acquire);
            let ahead = sequence_of(found).wrapping_sub(tail).cast_signed();
            if ahead == 0 {
                let published = word(tail.wrapping_add(1), value);
                let slot = self.slot(tail);
                let swapped =
                    slot.compare_exchange(found, published, Ordering::AcqRel, Ordering::Relaxed);
                if swapped.is_ok() {
                    self.help(tail);
                    return Ok(());
                }
            } else if ahead > 0 {
                // Published, perhaps even taken, and the tail was left behind.
                self.help(tail);
            } else if self.tail.0.load(Ordering::Acquire) == tail {
                // The value of a whole ring ago is still there.
                break;
            }
        }
        self.overflow.0.store(1, Ordering::Release);
        Err(Full)
    }

    /// Moves the tail on from a position at which a value was published.
    fn help(&self, tail: u32) {
        // A faster producer has done the same.
        let _ = self.tail.0.compare_exchange(
            tail,
            tail.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Takes the next value. For the one consumer only.
    pub fn pop(&self) -> Option<u32> {
        let head = self.head.0.load(Ordering::Relaxed);
        let slot = self.slot(head);
        let found = slot.load(Ordering::Acquire);
        if sequence_of(found) != head.wrapping_add(1) {
            return None;
        }
        self.head.0.store(head.wrapping_add(1), Ordering::Relaxed);
        slot.store(word(head.wrapping_add(SLOTS as u32), 0), Ordering::Release);
        Some(found as u32)
    }

    /// Returns true if a value waits. The consumer calls this function before it sleeps.
    pub fn is_ready(&self) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        sequence_of(self.slot(head).load(Ordering::Acquire)) == head.wrapping_add(1)
    }

    /// Returns true if values were refused since the last call. The consumer then looks at everything that those
    /// values could have named.
    pub fn overflowed(&self) -> bool {
        self.overflow.0.load(Ordering::Relaxed) != 0
            && self.overflow.0.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Full, Mpsc};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_full_ring_refuses_and_says_so_once() {
        let ring = Mpsc::<4>::starting_at(0);
        for value in 0..4 {
            assert_eq!(ring.push(value), Ok(()));
        }
        assert!(!ring.overflowed());
        assert_eq!(ring.push(4), Err(Full));
        assert!(ring.overflowed() && !ring.overflowed());
        assert_eq!(ring.pop(), Some(0));
        assert_eq!(ring.push(5), Ok(()));
        let rest: Vec<u32> = std::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(rest, [1, 2, 3, 5]);
    }

    #[test]
    fn a_tail_that_was_left_behind_is_corrected() {
        let ring = Mpsc::<2>::starting_at(0);
        // A producer was killed after it had published, before it moved the tail.
        ring.push(1).unwrap();
        ring.tail.0.store(0, super::Ordering::Relaxed);
        assert_eq!(ring.push(2), Ok(()));
        assert_eq!((ring.pop(), ring.pop()), (Some(1), Some(2)));
        // The value is pushed again, and its predecessor has been taken.
        ring.push(3).unwrap();
        ring.tail.0.store(2, super::Ordering::Relaxed);
        assert_eq!(ring.pop(), Some(3));
        assert_eq!(ring.push(4), Ok(()));
        assert_eq!((ring.pop(), ring.pop()), (Some(4), None));
    }

    proptest! {
        #[test]
        fn the_queue_has_its_size(start: u32, steps in prop::collection::vec(any::<Option<u32>>(), 0..200)) {
            let ring = Mpsc::<8>::starting_at(start);
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Some(value) if model.len() == 8 => prop_assert_eq!(ring.push(value), Err(Full)),
                    Some(value) => {
                        prop_assert_eq!(ring.push(value), Ok(()));
                        model.push_back(value);
                    }
                    None => prop_assert_eq!(ring.pop(), model.pop_front()),
                }
                prop_assert_eq!(ring.is_ready(), !model.is_empty());
            }
        }

        #[test]
        fn whatever_is_in_its_memory_it_neither_panics_nor_hangs(
            words in prop::collection::vec(any::<u64>(), 8),
            tail: u32,
            head: u32,
        ) {
            let ring = Mpsc::<8>::starting_at(0);
            for (slot, word) in ring.slots.iter().zip(words) {
                slot.store(word, super::Ordering::Relaxed);
            }
            ring.tail.0.store(tail, super::Ordering::Relaxed);
            ring.head.0.store(head, super::Ordering::Relaxed);
            for value in 0..20 {
                ring.pop();
                let _ = ring.push(value);
            }
            ring.clear();
            prop_assert_eq!(ring.pop(), None);
        }
    }
}
