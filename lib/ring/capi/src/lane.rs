//! The part of a port that the other ports of the instance need to know: where the frames lie that the port has
//! received, and which ports have some of them queued.

use nfluid_ring::layout::SLOT_SIZE;
use nfluid_ring::offload::OFFLOAD_BYTES;
use nfluid_ring::port::Port;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bits of a note: the number of the frame's slots.
const SLOTS: u8 = 0x3f;
/// Bit of a note: metadata lies behind the frame.
const OFFLOAD: u8 = 0x80;

/// Where a received frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first slot.
    pub(crate) slot: u32,
    /// Slots that follow each other; at least 1.
    pub(crate) slots: u8,
    /// Metadata lies in the last bytes of the last slot.
    pub(crate) has_offload: bool,
}

impl Place {
    /// Bytes that the frame can have.
    #[inline]
    pub(crate) fn room(self) -> usize {
        usize::from(self.slots) * SLOT_SIZE - OFFLOAD_BYTES
    }
}

/// The properties of a port that other ports need.
#[derive(Debug)]
pub(crate) struct Lane {
    rx_base: u32,
    rx_slots: u32,
    long_base: u32,
    long_slots: u32,
    /// Frames may lie in any slot, and are in a single one.
    is_shared: bool,
    /// Bit per port that has frames of this one queued.
    borrowers: AtomicU64,
    /// The library's knowledge of the frame that begins in a slot: per slot of the ring, then per slot for long frames. 0:
    /// none has begun there. What a program says of its frames is compared with this.
    notes: Box<[AtomicU8]>,
}

impl Lane {
    pub(crate) fn of(port: &Port) -> Self {
        let entry = port.entry();
        let is_shared = port.pool().is_shared();
        let slots = if is_shared {
            0
        } else {
            entry.ring_slots + entry.rx_long_slots
        };
        Lane {
            rx_base: entry.rx_base,
            rx_slots: entry.ring_slots,
            long_base: entry.rx_long_base,
            long_slots: entry.rx_long_slots,
            is_shared,
            borrowers: AtomicU64::new(0),
            notes: (0..slots).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    #[inline]
    fn note_of(&self, slot: u32) -> Option<&AtomicU8> {
        let short = slot.wrapping_sub(self.rx_base);
        let long = slot.wrapping_sub(self.long_base);
        let at = if short < self.rx_slots {
            short
        } else if long < self.long_slots {
            self.rx_slots + long
        } else {
            return None;
        };
        self.notes.get(at as usize)
    }

    /// Notes where a frame lies. A frame of a shared pool needs no note.
    #[inline]
    pub(crate) fn note(&self, place: Place) {
        if let Some(note) = self.note_of(place.slot) {
            let offload = if place.has_offload { OFFLOAD } else { 0 };
            note.store(place.slots | offload, Ordering::Relaxed);
        }
    }

    /// The place of the frame that begins in this slot; `None`: the port has received none there.
    #[inline]
    pub(crate) fn place(&self, slot: u32) -> Option<Place> {
        let note = if self.is_shared {
            1
        } else {
            self.note_of(slot)?.load(Ordering::Relaxed)
        };
        let slots = note & SLOTS;
        (slots > 0).then_some(Place {
            slot,
            slots,
            has_offload: note & OFFLOAD != 0,
        })
    }

    /// Notes that the port with this number has frames of this one queued.
    #[inline]
    pub(crate) fn lend_to(&self, borrower: usize) {
        self.borrowers.fetch_or(1 << borrower, Ordering::Relaxed);
    }

    /// Notes that the port with this number has no frame of this one queued.
    #[inline]
    pub(crate) fn take_back_from(&self, borrower: usize) {
        self.borrowers
            .fetch_and(!(1 << borrower), Ordering::Relaxed);
    }

    /// Returns true if frames of this port are queued on some port.
    #[inline]
    pub(crate) fn has_lent(&self) -> bool {
        self.borrowers.load(Ordering::Relaxed) != 0
    }
}
