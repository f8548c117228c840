//! The slots of a port for long frames: frames that lie in several slots which follow each other.
//!
//! A position of the ring has a slot of its own, and a long frame has several slots of the port's area for long frames
//! instead. The switch takes them in turn, in the order of the ring, and the receiver gives them back in that order. No
//! frame crosses a block of the pool ([`long_start`]), so that the switch copies each in one piece: up to half of the area
//! is skipped for that.

use crate::layout::{
    DESC_OFFLOAD, FRAME_MAX, FRAME_MIN, LONG_HOLE, LONG_MAX, LONG_SLOTS, Released, Ring,
    frame_slots, long_start, room_slots, rx_desc, rx_desc_slot,
};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Slots of a pool for long frames, of one direction of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LongArea {
    /// The first slot, a multiple of [`crate::layout::BLOCK_SLOTS`].
    pub(crate) base: u32,
    /// The number of slots: see [`crate::layout::is_long_area`].
    pub(crate) slots: u32,
}

/// The content of an RX descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A frame in the position's own slot.
    Short { len: u16, has_offload: bool },
    /// A long frame, in `slots` slots from this slot of the pool on. `end` is the position of the area behind them.
    Long {
        len: u16,
        slot: u32,
        slots: u8,
        end: u32,
    },
    /// No frame.
    Hole { end: u32 },
}

impl LongArea {
    /// Reads an RX descriptor, where `at` is the position of the area behind the frames before. A word that the switch
    /// cannot have written is taken for a hole.
    #[inline]
    pub(crate) fn read(self, desc: u64, at: u32) -> Arrived {
        let (len, _) = rx_desc(desc);
        match usize::from(len) {
            FRAME_MIN..=FRAME_MAX => Arrived::Short {
                len,
                has_offload: desc & DESC_OFFLOAD != 0,
            },
            _ => self.read_long(desc, at),
        }
    }

    #[cold]
    fn read_long(self, desc: u64, at: u32) -> Arrived {
        let (len, _) = rx_desc(desc);
        let nothing = Arrived::Hole { end: at };
        if self.slots == 0 {
            return nothing;
        }
        // The position is at most an area ahead: its lower half is enough.
        let ahead = (rx_desc_slot(desc) as u16).wrapping_sub(at as u16);
        let start = at.wrapping_add(u32::from(ahead));
        if len == LONG_HOLE {
            return Arrived::Hole { end: start };
        }
        let slots = room_slots(usize::from(len)) as u8;
        if !(FRAME_MAX + 1..=LONG_MAX).contains(&usize::from(len)) || long_start(start) != start {
            return nothing;
        }
        Arrived::Long {
            len,
            slot: self.base + (start & (self.slots - 1)),
            slots,
            end: start.wrapping_add(u32::from(slots)),
        }
    }

    /// Where the receiver is when it has released up to position `head` what was released up to `from` before.
    pub(crate) fn released_at(self, ring: &Ring, mask: u32, from: Released, head: u32) -> Released {
        let mut long = from.long;
        if self.slots > 0 {
            let count = head.wrapping_sub(from.head).min(mask + 1);
            for back in 0..count {
                let index = from.head.wrapping_add(back) & mask;
                let desc = ring.rx[index as usize].load(Ordering::Relaxed);
                long = self.read(desc, long).end(long);
            }
        }
        Released { head, long }
    }
}

impl Arrived {
    /// The position of the area behind this frame.
    #[inline]
    pub(crate) fn end(self, at: u32) -> u32 {
        match self {
            Arrived::Short { .. } => at,
            Arrived::Long { end, .. } | Arrived::Hole { end } => end,
        }
    }
}

/// The long frames that a port's owner makes itself.
#[derive(Debug, Default)]
pub(crate) struct LongSends {
    area: LongArea,
    /// Position of the area for the next frame.
    next: u32,
    /// Position up to which the switch has taken frames.
    done: u32,
    /// Frames on their way: the position in the TX ring behind each, and the position of the area behind it.
    queued: VecDeque<(u32, u32)>,
}

impl LongSends {
    pub(crate) fn new(area: LongArea) -> Self {
        LongSends {
            area,
            ..LongSends::default()
        }
    }

    /// The first slot of a place for a frame of any length; `None`: there is none now. `is_consumed` says of a position in
    /// the TX ring whether the switch has taken what is before it.
    pub(crate) fn place(&mut self, is_consumed: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(&(position, end)) = self.queued.front()
            && is_consumed(position)
        {
            self.done = end;
            self.queued.pop_front();
        }
        if self.queued.is_empty() {
            self.done = self.next;
        }
        self.next = long_start(self.next);
        let used = self.next.wrapping_sub(self.done) as usize + LONG_SLOTS;
        let is_free = used <= self.area.slots as usize;
        is_free.then(|| self.area.base + (self.next & (self.area.slots - 1)))
    }

    /// Notes that a frame of `len` bytes at the place given out last was queued before `position`.
    pub(crate) fn queue(&mut self, len: usize, position: u32) {
        self.next = self.next.wrapping_add(frame_slots(len) as u32);
        self.queued.push_back((position, self.next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{rx_desc_of, rx_desc_with_slot};

    const AREA: LongArea = LongArea {
        base: 640,
        slots: 128,
    };

    fn long(len: u16, start: u32) -> u64 {
        rx_desc_with_slot(rx_desc_of(len, 1), start)
    }

    #[test]
    fn a_long_frame_is_where_its_descriptor_says_and_behind_the_one_before() {
        let first = AREA.read(long(9014, 0), 0);
        let slots = room_slots(9014) as u8;
        assert_eq!(
            first,
            Arrived::Long {
                len: 9014,
                slot: 640,
                slots,
                end: 5
            }
        );
        let skipped = AREA.read(long(LONG_MAX as u16, 64), 5);
        assert_eq!(skipped.end(5), 96);
        let wrapped = AREA.read(long(3000, 128), 120);
        assert_eq!(
            wrapped,
            Arrived::Long {
                len: 3000,
                slot: 640,
                slots: 2,
                end: 130
            }
        );
        assert_eq!(
            AREA.read(long(LONG_HOLE, 133), 130),
            Arrived::Hole { end: 133 }
        );
        let far = 0xffff_fff0;
        assert_eq!(AREA.read(long(LONG_HOLE, 3), far).end(far), 3);
        assert_eq!(AREA.read(rx_desc_of(0, 1), 7), Arrived::Hole { end: 7 });
    }

    #[test]
    fn a_hole_can_have_all_slots() {
        let all = AREA.read(long(LONG_HOLE, 128), 0);
        assert_eq!(all, Arrived::Hole { end: 128 });
        assert_eq!(AREA.read(long(LONG_HOLE, 0), 0), Arrived::Hole { end: 0 });
    }

    // promise: 1.10
    #[test]
    fn a_descriptor_that_no_switch_has_written_is_a_hole() {
        let nothing = Arrived::Hole { end: 3 };
        assert_eq!(AREA.read(long(3000, 33), 3), nothing, "crosses a block");
        assert_eq!(AREA.read(long(13, 0), 3), nothing, "shorter than a frame");
        assert_eq!(AREA.read(long(LONG_MAX as u16 + 1, 0), 3), nothing);
        assert_eq!(LongArea::default().read(long(3000, 0), 3), nothing);
    }

    #[test]
    fn places_are_given_out_in_turn_and_when_they_are_free() {
        let mut sends = LongSends::new(AREA);
        let nothing = |_| false;
        assert_eq!(sends.place(nothing), Some(640));
        assert_eq!(sends.place(nothing), Some(640), "not queued");
        sends.queue(9014, 1);
        assert_eq!(sends.place(nothing), Some(645));
        sends.queue(LONG_MAX, 2);
        assert_eq!(sends.place(nothing), Some(704), "none crosses a block");
        sends.queue(LONG_MAX, 3);
        assert_eq!(sends.place(nothing), Some(736));
        sends.queue(60, 4);
        assert_eq!(sends.place(nothing), None);
        assert_eq!(sends.place(|position| position <= 1), None);
        assert_eq!(sends.place(|position| position <= 2), Some(640));
        sends.queue(60, 5);
        assert_eq!(sends.place(|_| true), Some(641));
    }
}
