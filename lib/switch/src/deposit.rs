//! Frames that the daemon itself puts into a port's ring: those of a saved instance, of one that has moved, or of a client that
//! has just got one.
//!
//! A sender of the switch cannot die between reserving a slot and publishing it: the kernel brings its call to an
//! end. A daemon can be killed there. The killed daemon leaves a gap, which the next daemon finds and makes holes of:
//! see [`crate::gaps`].

use crate::handover::Maps;
use crate::instance::{Bases, InstanceMemory};
use crate::ports::used;
use crate::program::Switch;
use crate::{DropReason, SwitchError};
use nfluid_ring::Offload;
use nfluid_ring::layout::{
    FRAME_MAX, FRAME_MIN, LONG_MAX, OFFLOAD_AT, Released, SLOT_SIZE, long_start, room_slots,
    rx_desc_of, rx_desc_with_slot,
};
use nfluid_ring::memory::{Pool, RingMemory};
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A port's ring and its slots, mapped for a caller that deposits frames again and again. An inlet is valid as long
/// as the port belongs to that instance.
#[derive(Debug)]
pub struct Inlet {
    port: u32,
    bases: Bases,
    slots: u32,
    /// Slots for long frames.
    long_slots: u32,
    pool: Pool,
    ring: RingMemory,
}

impl Inlet {
    /// Maps the ring of an instance's port, counted from 0. Returns `None` for a member of a trust group: its slots
    /// belong to other members as well.
    ///
    /// # Errors
    /// The port does not exist, or its memory cannot be mapped.
    pub fn of(
        (memory, maps): (&InstanceMemory, &Maps),
        port: usize,
    ) -> Result<Option<Self>, SwitchError> {
        let found = memory.ports.get(port).zip(maps.rings.get(port));
        let (part, ring) =
            found.ok_or_else(|| SwitchError::Limit(format!("there is no port {port}")))?;
        if memory.group.is_some() {
            return Ok(None);
        }
        let unmapped = |error| SwitchError::Limit(format!("mapping port {port}: {error}"));
        Ok(Some(Inlet {
            port: part.spec.id,
            bases: part.bases,
            slots: part.spec.ring_slots,
            long_slots: part.spec.long.rx,
            pool: Pool::map(maps.pool.as_fd(), memory.pool_slots).map_err(unmapped)?,
            ring: RingMemory::map(ring.as_fd()).map_err(unmapped)?,
        }))
    }

    /// Platform-wide number of the port.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.slots
    }
}

impl Switch {
    /// Puts frames into the ring of an instance's port, counted from 0: see [`Switch::deposit_at`]. A member of a trust group
    /// is given none.
    ///
    /// # Errors
    /// As [`Inlet::of`].
    pub fn deposit(
        &self,
        instance: (&InstanceMemory, &Maps),
        port: usize,
        frames: &[&[u8]],
    ) -> Result<usize, SwitchError> {
        let inlet = Inlet::of(instance, port)?;
        Ok(inlet.map_or(0, |inlet| self.deposit_at(&inlet, frames, 0)))
    }

    /// Puts frames into a ring as a sender of the switch would. The receiver finds them like any others, but no
    /// doorbell is rung. Returns how many frames there was room for, with so many positions spared for other senders; 0
    /// if one of `frames` has no valid length. A frame that is longer than a slot, for a port without slots for long
    /// frames, is counted there as `too_long`.
    pub fn deposit_at(&self, inlet: &Inlet, frames: &[&[u8]], spared: u32) -> usize {
        if !frames.iter().all(|frame| is_frame(frame)) {
            return 0;
        }
        let under_way = self.depositing.read();
        let _published_in_the_end = under_way.unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        for alike in frames.chunk_by(|one, next| is_short(one) && is_short(next)) {
            let put = match alike {
                [long] if !is_short(long) => usize::from(self.deposit_long(inlet, long, spared)),
                short => {
                    let room = self.reserve(inlet, short.len(), spared);
                    self.publish(inlet, room, short);
                    room.1 as usize
                }
            };
            done += put;
            if put < alike.len() {
                break;
            }
        }
        done
    }

    /// Reserves positions, at most so many. Returns the first one, and how many there are. Only this process can publish
    /// the reserved positions: the receiver stops at them until then.
    pub fn reserve(&self, inlet: &Inlet, most: usize, spared: u32) -> (u32, u32) {
        let reserved = self.reserve_if(inlet, spared, |reserved, room| {
            let head = reserved.head.wrapping_add((room as usize).min(most) as u32);
            Some(Released { head, ..reserved })
        });
        let room = |(before, after): (Released, Released)| {
            (before.head, after.head.wrapping_sub(before.head))
        };
        reserved.map_or((0, 0), room)
    }

    /// Reserves what `choose` makes of the positions that are reserved and of the number that are free, with so many
    /// spared. Returns the positions before and after.
    fn reserve_if(
        &self,
        inlet: &Inlet,
        spared: u32,
        choose: impl Fn(Released, u32) -> Option<Released>,
    ) -> Option<(Released, Released)> {
        let state = self.state(inlet.port);
        loop {
            let before = state.rx_reserved.load(Acquire);
            let reserved = Released::of(before);
            // The owner's word: believed only as far as its ring goes.
            let released = inlet.ring.ring().receiver.rx_released.load(Acquire);
            let taken = used(reserved.head, Released::of(released).head, inlet.slots);
            let room = inlet.slots.saturating_sub(taken.saturating_add(spared));
            let after = choose(reserved, room)?;
            let reserve = state
                .rx_reserved
                .compare_exchange(before, after.word(), AcqRel, Acquire);
            if reserve.is_ok() {
                return Some((reserved, after));
            }
        }
    }

    /// Publishes frames in the slots that were reserved for them.
    fn publish(&self, inlet: &Inlet, (first, count): (u32, u32), frames: &[&[u8]]) {
        for (step, frame) in (0..count).zip(frames) {
            let position = first.wrapping_add(step);
            inlet.write(inlet.bases.rx + (position & (inlet.slots - 1)), frame);
            let desc = rx_desc_of(frame.len() as u16, position.wrapping_add(1));
            self.publish_one(inlet, position, desc, frame.len());
        }
    }

    /// As [`Switch::deposit_at`], of a single long frame.
    fn deposit_long(&self, inlet: &Inlet, frame: &[u8], spared: u32) -> bool {
        if inlet.long_slots == 0 {
            self.count_drop(inlet.port, DropReason::TooLong, 1);
            return true;
        }
        let Some(at) = self.reserve_long(inlet, frame.len(), spared) else {
            return false;
        };
        let first = inlet.bases.rx_long + (at.long & (inlet.long_slots - 1));
        inlet.write(first, frame);
        let words = Offload::NONE.words(frame.len());
        let last = first + room_slots(frame.len()) as u32 - 1;
        inlet.write_at(last, OFFLOAD_AT, &words);
        let sequence = at.head.wrapping_add(1);
        let desc = rx_desc_with_slot(rx_desc_of(frame.len() as u16, sequence), at.long);
        self.publish_one(inlet, at.head, desc, frame.len());
        true
    }

    /// As [`Switch::reserve`], for a long frame of `len` bytes. Returns its position, and that of its first slot.
    pub fn reserve_long(&self, inlet: &Inlet, len: usize, spared: u32) -> Option<Released> {
        let slots = room_slots(len) as u32;
        let released = &inlet.ring.ring().receiver.rx_released;
        let reserved = self.reserve_if(inlet, spared, |reserved, room| {
            let after = Released {
                head: reserved.head.wrapping_add(1),
                long: long_start(reserved.long).wrapping_add(slots),
            };
            // As in `reserve_if`.
            let used = after
                .long
                .wrapping_sub(Released::of(released.load(Acquire)).long);
            (room > 0 && used <= inlet.long_slots).then_some(after)
        });
        reserved.map(|(before, _)| Released {
            long: long_start(before.long),
            ..before
        })
    }

    fn publish_one(&self, inlet: &Inlet, position: u32, desc: u64, len: usize) {
        let state = self.state(inlet.port);
        let index = position & (inlet.slots - 1);
        inlet.ring.ring().rx[index as usize].store(desc, Release);
        state.rx_frames.fetch_add(1, Relaxed);
        state.rx_bytes.fetch_add(len as u64, Relaxed);
    }
}

impl Inlet {
    /// Writes a frame into slots that were reserved for it, from `slot` on.
    fn write(&self, slot: u32, frame: &[u8]) {
        self.write_at(slot, 0, frame);
    }

    fn write_at(&self, slot: u32, offset: usize, bytes: &[u8]) {
        let (start, len) = self.pool.as_raw_parts();
        let at = slot as usize * SLOT_SIZE + offset;
        assert!(at + bytes.len() <= len, "a port's slots lie in its pool");
        // SAFETY: the bytes lie in the pool; their slots are reserved and not published, so that no other code uses them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), bytes.len()) };
    }
}

fn is_frame(frame: &[u8]) -> bool {
    (FRAME_MIN..=LONG_MAX).contains(&frame.len())
}

fn is_short(frame: &[u8]) -> bool {
    frame.len() <= FRAME_MAX
}
