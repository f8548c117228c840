//! Frames that the daemon itself puts into a port's ring: those of a saved instance, of one that has moved, or of a client that
//! has just got one.
//!
//! A sender of the switch cannot die between reserving a slot and publishing it: the kernel brings its call to an
//! end. A daemon can be killed there. The killed daemon leaves a gap, which the next daemon finds and makes holes of:
//! see [`crate::gaps`].

use crate::SwitchError;
use crate::handover::Maps;
use crate::instance::InstanceMemory;
use crate::ports::used;
use crate::program::Switch;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, SLOT_SIZE, rx_desc_of};
use nfluid_ring::memory::{Pool, RingMemory};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A port's ring and its slots, mapped for a caller that deposits frames again and again. An inlet is valid as long
/// as the port belongs to that instance.
#[derive(Debug)]
pub struct Inlet {
    port: u32,
    rx_base: u32,
    slots: u32,
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
            rx_base: part.rx_base,
            slots: part.spec.ring_slots,
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
    /// doorbell is rung. Returns how many frames there was room for, with so many slots spared for other senders; 0
    /// if one of `frames` has no valid length.
    pub fn deposit_at(&self, inlet: &Inlet, frames: &[&[u8]], spared: u32) -> usize {
        if !frames.iter().all(|frame| is_frame(frame)) {
            return 0;
        }
        let under_way = self.depositing.read();
        let _published_in_the_end = under_way.unwrap_or_else(PoisonError::into_inner);
        let room = self.reserve(inlet, frames.len(), spared);
        self.publish(inlet, &room, frames);
        (room.end - room.start) as usize
    }

    /// Reserves slots, at most so many. Only this process can publish the reserved slots: the receiver stops at them
    /// until then.
    pub fn reserve(&self, inlet: &Inlet, most: usize, spared: u32) -> Range<u64> {
        let state = self.state(inlet.port);
        loop {
            let reserved = state.rx_reserved.load(Acquire);
            // The owner's word: believed only as far as its ring goes.
            let head = inlet.ring.ring().receiver.rx_head.load(Acquire);
            let taken = used(reserved as u32, head, inlet.slots).saturating_add(spared);
            let count = (inlet.slots.saturating_sub(taken) as usize).min(most);
            let next = reserved + count as u64;
            let reserve = state
                .rx_reserved
                .compare_exchange(reserved, next, AcqRel, Acquire);
            if reserve.is_ok() {
                return reserved..next;
            }
        }
    }

    /// Publishes frames in the slots that were reserved for them.
    fn publish(&self, inlet: &Inlet, room: &Range<u64>, frames: &[&[u8]]) {
        let state = self.state(inlet.port);
        let (start, _) = inlet.pool.as_raw_parts();
        for (position, frame) in room.clone().zip(frames) {
            let position = position as u32;
            let index = position & (inlet.slots - 1);
            let slot = inlet.rx_base + index;
            // SAFETY: the slot lies in the pool, since the pool's size is the sum of its ports' slots; the slot is
            // reserved and not published, so that no other code uses it; a frame is not longer than a slot.
            unsafe {
                let to = start.add(slot as usize * SLOT_SIZE);
                std::ptr::copy_nonoverlapping(frame.as_ptr(), to, frame.len());
            }
            let desc = rx_desc_of(frame.len() as u16, position.wrapping_add(1));
            inlet.ring.ring().rx[index as usize].store(desc, Release);
            state.rx_frames.fetch_add(1, Relaxed);
            state.rx_bytes.fetch_add(frame.len() as u64, Relaxed);
        }
    }
}

fn is_frame(frame: &[u8]) -> bool {
    (FRAME_MIN..=FRAME_MAX).contains(&frame.len())
}
