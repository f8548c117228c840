//! The buffers of all rings: the slots of the instance's pool.
//!
//! A receive ring of the switch has a slot of its own at each position, and frames arrive there. netmap's programs swap
//! buffers between rings, and keep what they have swapped. So there are two kinds: **places**, the slots of receive rings,
//! and **loose** buffers, all others. A program that forwards a frame puts a place into a transmit ring, and a loose buffer
//! into the receive ring. Once the frame is sent, the transmit ring gets another loose buffer, and the place is at home
//! again: only then its position is given back to the switch. What a receive ring releases is put with the spare buffers.
//! netmap's pipes change buffers in the same way, and say so by `NS_BUF_CHANGED`, as this library does.

use crate::abi::RESERVED_BUFFERS;
use nfluid_ring::layout::{FRAME_MAX, SLOT_SIZE};
use nfluid_ring::memory::Pool;
use nfluid_ring::table::PortEntry;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kinds of a pool's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No buffer: for long frames.
    None,
    /// A buffer that any ring may have.
    Loose,
    /// The slot of a position of a receive ring.
    Place,
}

/// All buffers.
#[derive(Debug)]
pub struct Buffers {
    pool: Arc<Pool>,
    kinds: Box<[Kind]>,
    /// Of places: the program has it.
    away: Box<[AtomicBool]>,
    spare: Mutex<Vec<u32>>,
    /// The program keeps buffers for as long as it likes: it gets no places.
    keeps: AtomicBool,
}

impl Buffers {
    /// The buffers of these ports. [`Buffers::reset`] makes them spare ones.
    pub fn new(pool: &Arc<Pool>, entries: &[PortEntry]) -> Self {
        let mut kinds = vec![Kind::None; pool.slots() as usize];
        for entry in entries {
            kinds[range(entry.rx_base, entry.ring_slots)].fill(Kind::Place);
            kinds[range(entry.tx_base, entry.tx_slots)].fill(Kind::Loose);
        }
        Buffers {
            pool: Arc::clone(pool),
            away: kinds.iter().map(|_| AtomicBool::new(false)).collect(),
            kinds: kinds.into(),
            spare: Mutex::default(),
            keeps: AtomicBool::new(false),
        }
    }

    /// All places are at home, and all loose buffers spare ones: no ring has any.
    pub fn reset(&self) {
        for away in &self.away {
            away.store(false, Ordering::Release);
        }
        self.keeps.store(false, Ordering::Relaxed);
        let loose = (0..)
            .zip(&self.kinds)
            .filter(|(_, kind)| **kind == Kind::Loose);
        let mut spare = self.spare();
        spare.clear();
        spare.extend(loose.map(|(slot, _)| slot));
    }

    /// The index of a slot, as programs see it.
    #[inline]
    pub fn index(slot: u32) -> u32 {
        slot + RESERVED_BUFFERS
    }

    fn kind(&self, slot: u32) -> Kind {
        self.kinds.get(slot as usize).copied().unwrap_or(Kind::None)
    }

    /// The slot of an index that a program has written; `None`: of no buffer.
    #[inline]
    pub fn slot(&self, index: u32) -> Option<u32> {
        let slot = index.checked_sub(RESERVED_BUFFERS)?;
        (self.kind(slot) != Kind::None).then_some(slot)
    }

    /// Is the buffer a place?
    #[inline]
    pub fn is_place(&self, slot: u32) -> bool {
        self.kind(slot) == Kind::Place
    }

    /// Notes that the program has the place.
    #[inline]
    pub fn lend(&self, place: u32) {
        self.away[place as usize].store(true, Ordering::Relaxed);
    }

    /// Is the place at home?
    #[inline]
    pub fn is_home(&self, place: u32) -> bool {
        // Whatever the program has read of the frame, or the switch, comes before the position is given back.
        !self.away[place as usize].load(Ordering::Acquire)
    }

    /// The program has given up a buffer: a place is at home, another one is put into `spare`.
    #[inline]
    pub fn give_up(&self, slot: u32, spare: &mut Vec<u32>) {
        if self.is_place(slot) {
            self.away[slot as usize].store(false, Ordering::Release);
        } else {
            spare.push(slot);
        }
    }

    /// The spare buffers.
    pub fn spare(&self) -> MutexGuard<'_, Vec<u32>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the program gets copies of frames.
    pub fn keep(&self) {
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// Does the program get copies of frames?
    #[inline]
    pub fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Start of a buffer.
    #[inline]
    pub fn start(&self, slot: u32) -> NonNull<u8> {
        let (start, bytes) = self.pool.as_raw_parts();
        let at = (slot as usize * SLOT_SIZE).min(bytes - SLOT_SIZE);
        // SAFETY: within the mapping, which begins at no null pointer.
        unsafe { NonNull::new_unchecked(start.add(at)) }
    }

    /// Copies the beginning of `from` into a buffer; returns the length.
    pub fn fill(&self, slot: u32, from: &[u8]) -> u16 {
        let len = from.len().min(FRAME_MAX);
        // SAFETY: the buffer has that many bytes, and is no part of `from`: that frame lies in a place, or in slots for long
        // frames, and this is a loose buffer.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start(slot).as_ptr(), len) };
        len as u16
    }

    /// Makes a list of up to `wanted` buffers, of which each begins with the index of the next. Returns the first index and
    /// the number; leaves at least `reserve` buffers.
    pub fn chain(&self, wanted: u32, reserve: usize) -> (u32, u32) {
        let mut spare = self.spare();
        let (mut first, mut count) = (0, 0);
        while count < wanted && spare.len() > reserve {
            let Some(slot) = spare.pop() else { break };
            self.next_in_chain(slot).store(first, Ordering::Relaxed);
            (first, count) = (Self::index(slot), count + 1);
        }
        (first, count)
    }

    /// Takes a list of up to `most` buffers back.
    pub fn unchain(&self, mut first: u32, most: u32) {
        let mut spare = Vec::new();
        for _ in 0..most {
            let Some(slot) = self.slot(first) else { break };
            first = self.next_in_chain(slot).load(Ordering::Relaxed);
            self.give_up(slot, &mut spare);
        }
        self.spare().append(&mut spare);
    }

    fn next_in_chain(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: the first bytes of a slot of the pool, aligned; the program owns the buffer and is in this library.
        unsafe { AtomicU32::from_ptr(self.start(slot).as_ptr().cast()) }
    }
}

fn range(base: u32, count: u32) -> std::ops::Range<usize> {
    base as usize..base as usize + count as usize
}
