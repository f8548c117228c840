//! Which slots an instance has, where its pool is its trust group's (`docs/adr/0009-trust-groups.md`).
//!
//! A frame that is sent to another member takes its slot along, and a free one of the receiver's comes
//! back. Slots are worth the same: what comes back goes on a heap, and a ring position whose slot was
//! lent takes one from there when it is released. The instance has as many slots as positions and TX
//! slots at any time, so there is one for each.

use crate::layout::{NO_SLOT, rx_desc_slot, rx_desc_with_slot};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The slots that belong to no ring position and no frame under way, and those that were lent.
#[derive(Debug)]
pub(crate) struct Lending {
    free: Mutex<Vec<u32>>,
    /// Per slot of the pool: a frame that lies in it, at an RX position, was queued.
    lent: Box<[AtomicBool]>,
}

impl Lending {
    pub(crate) fn new(slots: u32) -> Self {
        Lending {
            free: Mutex::default(),
            lent: (0..slots).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn has(&self, slot: u32) -> bool {
        (slot as usize) < self.lent.len()
    }

    fn heap(&self) -> MutexGuard<'_, Vec<u32>> {
        // Numbers stay numbers, also after a panic of another thread.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the frame received in `slot` is queued.
    #[inline]
    pub(crate) fn lend(&self, slot: u32) {
        if let Some(lent) = self.lent.get(slot as usize) {
            lent.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_lent(&self, slot: u32) -> bool {
        let lent = self.lent.get(slot as usize);
        lent.is_some_and(|lent| lent.load(Ordering::Relaxed))
    }

    /// Takes slots back. Numbers of no slot, and more slots than there can be, are left out.
    pub(crate) fn put_back(&self, slots: impl Iterator<Item = u32>) {
        let mut heap = self.heap();
        for slot in slots.filter(|slot| self.has(*slot)) {
            if heap.len() < self.lent.len() {
                heap.push(slot);
            }
        }
    }

    /// Moves at most `most` free slots to `to`.
    pub(crate) fn take(&self, most: u32, to: &mut Vec<u32>) {
        let mut heap = self.heap();
        let left = heap.len().saturating_sub(most as usize);
        to.extend(heap.drain(left..));
    }

    /// Before RX positions are released: where a slot was lent, the descriptor gets another, which takes
    /// the next frame.
    pub(crate) fn settle<'a>(&self, descriptors: impl Iterator<Item = &'a AtomicU64>) {
        let mut heap = None;
        for descriptor in descriptors {
            let word = descriptor.load(Ordering::Relaxed);
            if let Some(lent) = self.lent.get(rx_desc_slot(word) as usize) {
                if !lent.load(Ordering::Relaxed) {
                    continue;
                }
                lent.store(false, Ordering::Relaxed);
            }
            let heap = heap.get_or_insert_with(|| self.heap());
            let slot = heap.pop().unwrap_or(NO_SLOT);
            descriptor.store(rx_desc_with_slot(word, slot), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::rx_desc;

    fn ring(slots: &[u32]) -> Vec<AtomicU64> {
        let descriptor = |slot: &u32| AtomicU64::new(rx_desc_with_slot(7 << 32 | 60, *slot));
        slots.iter().map(descriptor).collect()
    }

    fn slots(ring: &[AtomicU64]) -> Vec<u32> {
        let words = ring.iter().map(|word| word.load(Ordering::Relaxed));
        words
            .map(|word| {
                assert_eq!(rx_desc(word), (60, 7), "the rest stays");
                rx_desc_slot(word)
            })
            .collect()
    }

    // promise: 1.25
    #[test]
    fn a_lent_slot_is_replaced_by_what_came_back() {
        let lending = Lending::new(64);
        let ring = ring(&[3, 4, 5]);
        lending.lend(4);
        lending.put_back([40].into_iter());
        lending.settle(ring.iter());
        assert_eq!(slots(&ring), [3, 40, 5]);
        assert!(!lending.is_lent(4));
    }

    #[test]
    fn a_position_without_a_slot_gets_one_as_soon_as_there_is_one() {
        let lending = Lending::new(64);
        let ring = ring(&[7]);
        lending.lend(7);
        lending.settle(ring.iter());
        assert_eq!(slots(&ring), [NO_SLOT]);
        lending.put_back([9].into_iter());
        lending.settle(ring.iter());
        assert_eq!(slots(&ring), [9]);
    }

    #[test]
    fn numbers_of_no_slot_and_too_many_of_them_are_left_out() {
        let lending = Lending::new(64);
        lending.put_back([64, u32::MAX, NO_SLOT].into_iter());
        lending.put_back((0..1000).map(|i| i % 64));
        let mut slots = Vec::new();
        lending.take(1000, &mut slots);
        assert_eq!(slots.len(), 64);
        assert!(slots.iter().all(|slot| *slot < 64));
    }

    #[test]
    fn as_many_are_taken_as_are_asked_for() {
        let lending = Lending::new(64);
        lending.put_back(0..10);
        let mut slots = Vec::new();
        lending.take(4, &mut slots);
        assert_eq!(slots.len(), 4);
        lending.take(100, &mut slots);
        assert_eq!(slots.len(), 10);
    }
}
