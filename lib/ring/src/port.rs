//! A port: receive in place, send, forward without a copy.
//!
//! In the inline model transmission is synchronous: [`Port::flush`] makes the hyperio call, in which
//! the switch copies every queued frame to its receiver. When it returns, the queued slots may be
//! used again.
//!
//! In the other I/O models an I/O thread makes the call for the port (`docs/adr/0008-io-models.md`): flushing hands
//! the queued frames over, wakes the thread if the thread sleeps, and goes on. The slots may be used again when
//! [`Port::collect`] says so. The platform chooses the thread that makes the call, and may change its choice at any
//! time: a word in the ring names the choice.

mod calls;
mod sending;
mod sleep;

pub use sending::PortsOutbox;
use sending::is_before;

use crate::batch::{Frame, Outbox};
use crate::layout::{
    CALL_DOORBELL, CALL_NOP, CALL_TX, CALL_TX_KEEP, DESC_OFFLOAD, FRAME_MAX, FRAME_MIN, LONG_MAX,
    LONG_SLOTS, Released, Ring, SERVED_BY_ITSELF, SERVED_FROM_OWN_CORE, SOL_NFLUID, frame_slots,
    rx_desc, rx_desc_slot, tx_desc_long, tx_desc_offload, tx_desc_slot,
};
use crate::lending::Lending;
use crate::long::{Arrived, LongArea, LongSends};
use crate::memory::{Pool, RingMemory};
use crate::offload::Offload;
use crate::table::PortEntry;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The treatment of a flush's frames by a full link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Frames are dropped, and counted on the receiver's port.
    Drop,
    /// Frames stay queued; the caller decides when to flush again. Links only: a switch drops.
    Keep,
}

/// Counters of the library; the platform's own counters are the switch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames handed to the switch.
    pub tx_frames: u64,
    /// hyperio calls.
    pub calls: u64,
    /// Wake-ups given to a link's peer.
    pub rings: u64,
    /// Frames that found no free TX slot.
    pub tx_no_slot: u64,
    /// Calls that failed; their frames were discarded.
    pub tx_errors: u64,
}

/// File descriptors of one port, from which a [`Port`] is made.
#[derive(Debug)]
pub struct PortFds {
    /// The capability.
    pub socket: OwnedFd,
    /// The rings.
    pub ring: OwnedFd,
    /// Write end of the link peer's doorbell.
    pub peer_doorbell: Option<OwnedFd>,
    /// Wakes the instance's I/O thread.
    pub io_doorbell: Option<Arc<OwnedFd>>,
}

/// A port of this instance. Only a single thread uses a port at a time; queues of a port are ports of their own.
#[derive(Debug)]
pub struct Port {
    entry: PortEntry,
    socket: OwnedFd,
    peer_doorbell: Option<OwnedFd>,
    /// Wakes the I/O thread; shared by the ports of the instance.
    io_doorbell: Option<Arc<OwnedFd>>,
    ring: RingMemory,
    pool: Arc<Pool>,
    mask: u32,
    /// Position of the next frame to receive.
    rx_next: u32,
    /// Slots for long frames that are received.
    rx_long: LongArea,
    /// Position of that area behind the last long frame taken.
    rx_long_next: u32,
    /// What has been released. The word in the ring says so to the switch; this copy cannot be written by mistake.
    released: Released,
    /// Position of the next frame to queue.
    tx_next: u32,
    /// Position up to which the switch has consumed.
    tx_done: u32,
    /// Next TX slot, counted from `tx_base`.
    tx_slot: u32,
    /// Long frames that the owner makes.
    long_sends: LongSends,
    /// Since the ring was empty last, a frame was queued in a TX slot.
    sends_own: bool,
    /// Slots for the next frames of this port, if the pool is shared.
    spare: Vec<u32>,
    /// Sleep epoch of the peer as the last call found it, if it has not been rung for since.
    peer_asleep: u32,
    /// Sleep epoch for which the peer has been woken.
    rung: u32,
    /// Sleep epoch of the I/O thread as it was found last, if it has not been rung for since.
    io_asleep: u32,
    /// Sleep epoch for which the I/O thread has been woken.
    io_rung: u32,
    /// An I/O thread has made calls for this port: it may be in one.
    was_served: bool,
    stats: PortStats,
}

/// A frame in the pool: where it is and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) slot: u32,
    pub(crate) len: u16,
    /// Slots that are the frame's.
    pub(crate) slots: u8,
    /// Metadata lies in the last of them.
    pub(crate) has_offload: bool,
}

impl Received {
    /// A frame in one slot, as it is on a wire.
    pub(crate) fn plain(slot: u32, len: u16) -> Self {
        Received {
            slot,
            len,
            slots: 1,
            has_offload: false,
        }
    }

    fn last_slot(self) -> u32 {
        self.slot + u32::from(self.slots) - 1
    }
}

/// A frame that was taken out of the order of [`Port::receive`]: see [`Port::take_slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSlot {
    /// Position in the ring; wraps.
    pub position: u32,
    /// Slot in the pool; of a long frame, the first one.
    pub slot: u32,
    /// Length in bytes.
    pub len: u16,
    /// The number of the frame's slots.
    pub slots: u8,
    has_offload: bool,
}

impl Port {
    pub(crate) fn new(entry: PortEntry, fds: PortFds, ring: RingMemory, pool: Arc<Pool>) -> Self {
        // A former owner may have left positions behind: an NF that is restarted goes on there.
        let words = ring.ring();
        let released = Released::of(words.receiver.rx_released.load(Ordering::Acquire));
        let tx_done = words.switch.tx_tail.load(Ordering::Acquire);
        words.sender.tx_head.store(tx_done, Ordering::Release);
        words.sender.tx_sleep.store(0, Ordering::Release);
        words.receiver.rx_sleep.store(0, Ordering::Release);
        let mask = entry.ring_slots - 1;
        if let Some(lending) = pool.lending() {
            // The daemon that dealt the slots out has put their numbers there.
            let slots = (0..entry.tx_slots.min(entry.ring_slots)).map(|i| {
                let index = tx_done.wrapping_add(i) & mask;
                tx_desc_slot(words.tx[index as usize].load(Ordering::Acquire))
            });
            lending.put_back(slots);
        }
        Port {
            mask,
            rx_long: entry.rx_long(),
            long_sends: LongSends::new(entry.tx_long()),
            entry,
            socket: fds.socket,
            peer_doorbell: fds.peer_doorbell,
            io_doorbell: fds.io_doorbell,
            ring,
            pool,
            rx_next: released.head,
            rx_long_next: released.long,
            released,
            tx_next: tx_done,
            tx_done,
            tx_slot: 0,
            sends_own: false,
            spare: Vec::new(),
            peer_asleep: 0,
            rung: 0,
            io_asleep: 0,
            io_rung: 0,
            was_served: false,
            stats: PortStats::default(),
        }
    }

    /// Returns the platform's entry of the port.
    pub fn entry(&self) -> &PortEntry {
        &self.entry
    }

    /// Returns the counters of the library.
    pub fn stats(&self) -> PortStats {
        self.stats
    }

    /// The instance's slots.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    #[inline]
    pub(crate) fn words(&self) -> &Ring {
        self.ring.ring()
    }

    /// Is a frame waiting?
    #[inline]
    pub fn is_ready(&self) -> bool {
        let desc = self.words().rx[(self.rx_next & self.mask) as usize].load(Ordering::Acquire);
        rx_desc(desc).1 == self.rx_next.wrapping_add(1)
    }

    /// The next frame, if one waits; it stays owned by the caller until [`Port::release`].
    /// Skips holes.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Received> {
        let plain = self.take_plain();
        plain
            .map(|(slot, len)| Received::plain(slot, len))
            .or_else(|| self.take_any())
    }

    /// The slot and the length of the next frame, if it is a plain one in one slot, as most are.
    #[inline(always)]
    fn take_plain(&mut self) -> Option<(u32, u16)> {
        let index = self.rx_next & self.mask;
        let desc = self.words().rx[index as usize].load(Ordering::Acquire);
        let (len, sequence) = rx_desc(desc);
        // In a shared pool the bits above the length are the slot's.
        let is_plain = desc & DESC_OFFLOAD == 0 || self.pool.is_shared();
        let slot = self.rx_slot(index, desc);
        let is_it = sequence == self.rx_next.wrapping_add(1)
            && is_plain
            && (FRAME_MIN..=FRAME_MAX).contains(&usize::from(len))
            && slot < self.pool.slots();
        if !is_it {
            return None;
        }
        self.rx_next = sequence;
        Some((slot, len))
    }

    /// As [`Port::take`], of frames of all kinds.
    #[cold]
    fn take_any(&mut self) -> Option<Received> {
        loop {
            let index = self.rx_next & self.mask;
            let desc = self.words().rx[index as usize].load(Ordering::Acquire);
            let (_, sequence) = rx_desc(desc);
            if sequence != self.rx_next.wrapping_add(1) {
                return None;
            }
            self.rx_next = sequence;
            if let Some(received) = self.take_arrived(index, desc) {
                return Some(received);
            }
            self.release_hole(sequence.wrapping_sub(1));
        }
    }

    /// The frame of a descriptor, and steps over its slots for long frames; `None`: a hole.
    #[inline]
    fn take_arrived(&mut self, index: u32, desc: u64) -> Option<Received> {
        match self.rx_long.read(desc, self.rx_long_next) {
            Arrived::Short { len, has_offload } => self.short(index, desc, len, has_offload),
            Arrived::Long {
                len,
                slot,
                slots,
                end,
            } => {
                // No two frames that are held have a slot in common, whatever the ring says.
                if !self.is_free_until(end) {
                    return None;
                }
                self.rx_long_next = end;
                Some(Received {
                    slot,
                    len,
                    slots,
                    has_offload: true,
                })
            }
            Arrived::Hole { end } => {
                if self.is_free_until(end) {
                    self.rx_long_next = end;
                }
                None
            }
        }
    }

    #[inline]
    fn short(&self, index: u32, desc: u64, len: u16, has_offload: bool) -> Option<Received> {
        let slot = self.rx_slot(index, desc);
        if slot >= self.pool.slots() {
            return None;
        }
        Some(Received {
            // In a shared pool the bits of the descriptor are the slot's.
            has_offload: has_offload && !self.pool.is_shared(),
            ..Received::plain(slot, len)
        })
    }

    /// What is still to be done to a frame. The switch has checked the words, and nobody else writes there.
    #[inline]
    pub(crate) fn offload_of(&self, frame: Received) -> Offload {
        if !frame.has_offload {
            return Offload::NONE;
        }
        let words = self.pool.offload_words(frame.last_slot());
        Offload::check(words, usize::from(frame.len)).unwrap_or_default()
    }

    fn is_free_until(&self, end: u32) -> bool {
        end.wrapping_sub(self.released.long) <= self.rx_long.slots
    }

    /// Releases a hole at once, unless frames before the hole are still held. The NF is handed no holes, so the NF
    /// would not release them, and a ring full of holes would stay full. A hole behind held frames is released with
    /// those frames.
    #[cold]
    fn release_hole(&mut self, position: u32) {
        if self.released.head == position {
            self.give_back(self.rx_next);
        }
    }

    /// The slot of the RX position at `index`, whose descriptor is `desc`.
    #[inline]
    fn rx_slot(&self, index: u32, desc: u64) -> u32 {
        if self.pool.is_shared() {
            rx_desc_slot(desc)
        } else {
            self.entry.rx_base + index
        }
    }

    /// Gives the slots of the positions up to `position` to the switch.
    #[inline]
    fn give_back(&mut self, position: u32) {
        let before = self.released;
        if let Some(lending) = self.pool.lending() {
            self.settle(lending, before.head, position);
        }
        self.released = if position == self.rx_next {
            Released {
                head: position,
                long: self.rx_long_next,
            }
        } else {
            let ring = self.words();
            self.rx_long.released_at(ring, self.mask, before, position)
        };
        self.words()
            .receiver
            .rx_released
            .store(self.released.word(), Ordering::Release);
    }

    /// Keeps lent slots back if the pool is shared: such slots are not there to be given.
    fn settle(&self, lending: &Lending, released: u32, position: u32) {
        let count = position.wrapping_sub(released).min(self.mask + 1);
        let rx = &self.words().rx;
        lending.settle((0..count).map(|i| &rx[(released.wrapping_add(i) & self.mask) as usize]));
    }

    /// Hands a copy of each frame that waits to `see`, with what is still to be done to it; they go on waiting.
    pub fn peek(&self, mut see: impl FnMut(&[u8], Offload)) {
        let mut position = self.rx_next;
        let mut long = self.rx_long_next;
        for _ in 0..=self.mask {
            let index = position & self.mask;
            let desc = self.words().rx[index as usize].load(Ordering::Acquire);
            position = position.wrapping_add(1);
            if rx_desc(desc).1 != position {
                break;
            }
            let arrived = self.rx_long.read(desc, long);
            long = arrived.end(long);
            let received = match arrived {
                Arrived::Short { len, has_offload } => self.short(index, desc, len, has_offload),
                Arrived::Long {
                    len, slot, slots, ..
                } => Some(Received {
                    slot,
                    len,
                    slots,
                    has_offload: true,
                }),
                Arrived::Hole { .. } => None,
            };
            let Some(frame) = received else { continue };
            // SAFETY: the slots were published to us and are not released: releasing takes `&mut self`, and so does whatever
            // else gives out their bytes.
            let buffer = unsafe { self.pool.buffer(frame.slot, usize::from(frame.slots)) };
            if let Some(bytes) = buffer
                .as_deref()
                .and_then(|b| b.get(..usize::from(frame.len)))
            {
                see(bytes, self.offload_of(frame));
            }
        }
    }

    /// Returns the next frame, if one waits, for an owner that does not finish with frames in order or at once, such as
    /// an uplink whose interface reads the slots. Holes are skipped: positions can be missing. The slot belongs to the
    /// caller until [`Port::release_to`] passes its position.
    #[inline]
    pub fn take_slot(&mut self) -> Option<TakenSlot> {
        let received = self.take()?;
        self.count_received(1, u64::from(received.len));
        Some(TakenSlot {
            position: self.rx_next.wrapping_sub(1),
            slot: received.slot,
            len: received.len,
            slots: received.slots,
            has_offload: received.has_offload,
        })
    }

    /// Position after the last frame or hole taken.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.rx_next
    }

    /// The frame in a taken slot; `None` if it has been released.
    #[inline]
    pub fn taken_frame(&self, taken: &TakenSlot) -> Option<&[u8]> {
        let held = self.rx_next.wrapping_sub(self.released.head);
        let is_held =
            held <= self.mask + 1 && taken.position.wrapping_sub(self.released.head) < held;
        if !is_held || !self.is_at(taken) {
            return None;
        }
        // SAFETY: the slots were published to us and are not released: releasing takes `&mut self`,
        // and so does whatever else gives out their bytes.
        let buffer: &[u8] = unsafe { self.pool.buffer(taken.slot, usize::from(taken.slots)) }?;
        buffer.get(..usize::from(taken.len))
    }

    /// What is still to be done to the frame in a taken slot.
    #[inline]
    pub fn taken_offload(&self, taken: &TakenSlot) -> Offload {
        self.offload_of(Received {
            slot: taken.slot,
            len: taken.len,
            slots: taken.slots,
            has_offload: taken.has_offload,
        })
    }

    /// Do these slots belong to the position?
    #[inline]
    fn is_at(&self, taken: &TakenSlot) -> bool {
        let index = taken.position & self.mask;
        let desc = self.words().rx[index as usize].load(Ordering::Relaxed);
        match self.rx_long.read(desc, 0) {
            Arrived::Short { .. } => taken.slots == 1 && taken.slot == self.rx_slot(index, desc),
            Arrived::Long { slot, slots, .. } => (taken.slot, taken.slots) == (slot, slots),
            Arrived::Hole { .. } => false,
        }
    }

    /// Gives the slots of all positions before `position` back to the switch; at most those taken.
    #[inline]
    pub fn release_to(&mut self, position: u32) {
        let released = self.released.head;
        if position.wrapping_sub(released) <= self.rx_next.wrapping_sub(released) {
            self.give_back(position);
        }
    }

    /// Gives the slots of all frames taken so far back to the switch.
    #[inline]
    pub fn release(&mut self) {
        self.give_back(self.rx_next);
    }

    /// Receives up to `max` frames: hands each to `handle`, in place, and releases their slots.
    /// Returns how many there were.
    #[inline]
    pub fn receive(&mut self, max: usize, mut handle: impl FnMut(&mut [u8])) -> usize {
        self.receive_offload(max, |frame, _| handle(frame))
    }

    /// As [`Port::receive`], with what is still to be done to each frame.
    #[inline]
    pub fn receive_offload(
        &mut self,
        max: usize,
        mut handle: impl FnMut(&mut [u8], Offload),
    ) -> usize {
        let mut count = 0;
        let mut bytes = 0;
        if self.queued() > 0 {
            self.collect();
        }
        while count < max {
            // Word by word: packed into a structure, they cost two nanoseconds for each plain frame.
            let (slot, len, slots, offload);
            if let Some(plain) = self.take_plain() {
                (slot, len) = plain;
                (slots, offload) = (1, Offload::NONE);
            } else if let Some(any) = self.take_any() {
                (slot, len, slots) = (any.slot, any.len, usize::from(any.slots));
                offload = self.offload_of(any);
            } else {
                break;
            }
            // SAFETY: the slots were published to us, are not yet released, and this is the only
            // reference to them.
            let Some(buffer) = (unsafe { self.pool.buffer(slot, slots) }) else {
                break;
            };
            handle(&mut buffer[..usize::from(len)], offload);
            bytes += u64::from(len);
            count += 1;
        }
        if count > 0 {
            self.release();
            self.count_received(count as u64, bytes);
        }
        count
    }

    #[inline]
    pub(crate) fn count_received(&mut self, frames: u64, bytes: u64) {
        self.stats.rx_frames += frames;
        self.stats.rx_bytes += bytes;
    }

    /// The raw control words and descriptors, for tests of the switch against hostile NFs.
    pub fn raw_ring(&self) -> &Ring {
        self.words()
    }
}
