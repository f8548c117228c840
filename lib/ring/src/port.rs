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

use crate::batch::{Frame, Outbox};
use crate::layout::{
    CALL_DOORBELL, CALL_NOP, CALL_TX, CALL_TX_KEEP, FRAME_MAX, FRAME_MIN, Ring, SERVED_BY_ITSELF,
    SERVED_FROM_OWN_CORE, SOL_NFLUID, rx_desc, rx_desc_slot, tx_desc, tx_desc_slot,
};
use crate::lending::Lending;
use crate::memory::{Pool, RingMemory};
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
    /// Position of the next frame to queue.
    tx_next: u32,
    /// Position up to which the switch has consumed.
    tx_done: u32,
    /// Next TX slot, counted from `tx_base`.
    tx_slot: u32,
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

/// A frame in an RX slot: where it is and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) slot: u32,
    pub(crate) len: u16,
}

/// A frame that was taken out of the order of [`Port::receive`]: see [`Port::take_slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSlot {
    /// Position in the ring; wraps.
    pub position: u32,
    /// Slot in the pool.
    pub slot: u32,
    /// Length in bytes.
    pub len: u16,
}

impl Port {
    pub(crate) fn new(entry: PortEntry, fds: PortFds, ring: RingMemory, pool: Arc<Pool>) -> Self {
        // A former owner may have left positions behind: an NF that is restarted goes on there.
        let words = ring.ring();
        let rx_next = words.receiver.rx_head.load(Ordering::Acquire);
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
            entry,
            socket: fds.socket,
            peer_doorbell: fds.peer_doorbell,
            io_doorbell: fds.io_doorbell,
            ring,
            pool,
            rx_next,
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
        loop {
            let index = self.rx_next & self.mask;
            let desc = self.words().rx[index as usize].load(Ordering::Acquire);
            let (len, sequence) = rx_desc(desc);
            if sequence != self.rx_next.wrapping_add(1) {
                return None;
            }
            let position = self.rx_next;
            self.rx_next = sequence;
            if (FRAME_MIN..=FRAME_MAX).contains(&usize::from(len)) {
                let slot = self.rx_slot(index, desc);
                if slot < self.pool.slots() {
                    return Some(Received { slot, len });
                }
            }
            self.release_hole(position);
        }
    }

    /// Releases a hole at once, unless frames before the hole are still held. The NF is handed no holes, so the NF
    /// would not release them, and a ring full of holes would stay full. A hole behind held frames is released with
    /// those frames.
    #[cold]
    fn release_hole(&mut self, position: u32) {
        let line = &self.words().receiver;
        if line.rx_head.load(Ordering::Relaxed) == position {
            self.give_back(position, self.rx_next);
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

    /// Gives the slots of the positions from `released` to `position` to the switch.
    #[inline]
    fn give_back(&self, released: u32, position: u32) {
        if let Some(lending) = self.pool.lending() {
            self.settle(lending, released, position);
        }
        self.words()
            .receiver
            .rx_head
            .store(position, Ordering::Release);
    }

    /// Keeps lent slots back if the pool is shared: such slots are not there to be given.
    fn settle(&self, lending: &Lending, released: u32, position: u32) {
        let count = position.wrapping_sub(released).min(self.mask + 1);
        let rx = &self.words().rx;
        lending.settle((0..count).map(|i| &rx[(released.wrapping_add(i) & self.mask) as usize]));
    }

    /// Hands a copy of each frame that waits to `see`; they go on waiting.
    pub fn peek(&self, mut see: impl FnMut(&[u8])) {
        let mut position = self.rx_next;
        for _ in 0..=self.mask {
            let index = position & self.mask;
            let desc = self.words().rx[index as usize].load(Ordering::Acquire);
            let (len, sequence) = rx_desc(desc);
            position = position.wrapping_add(1);
            if sequence != position {
                break;
            }
            // SAFETY: the slot was published to us and is not released: releasing takes `&mut self`, and so does whatever
            // else gives out the slot's bytes.
            let buffer: Option<&mut [u8]> = unsafe { self.pool.buffer(self.rx_slot(index, desc)) };
            let frame = buffer
                .as_deref()
                .and_then(|slot| slot.get(..usize::from(len)));
            if let Some(frame) = frame.filter(|frame| frame.len() >= FRAME_MIN) {
                see(frame);
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
        let released = self.words().receiver.rx_head.load(Ordering::Relaxed);
        let held = self.rx_next.wrapping_sub(released);
        let index = taken.position & self.mask;
        let desc = self.words().rx[index as usize].load(Ordering::Relaxed);
        let slot = self.rx_slot(index, desc);
        let is_held = held <= self.mask + 1 && taken.position.wrapping_sub(released) < held;
        if !is_held || slot != taken.slot {
            return None;
        }
        // SAFETY: the slot was published to us and is not released: releasing takes `&mut self`,
        // and so does whatever else gives out the slot's bytes.
        let buffer: &[u8] = unsafe { self.pool.buffer(slot) }?;
        buffer.get(..usize::from(taken.len))
    }

    /// Gives the slots of all positions before `position` back to the switch; at most those taken.
    #[inline]
    pub fn release_to(&mut self, position: u32) {
        let line = &self.words().receiver;
        let released = line.rx_head.load(Ordering::Relaxed);
        if position.wrapping_sub(released) <= self.rx_next.wrapping_sub(released) {
            self.give_back(released, position);
        }
    }

    /// Gives the slots of all frames taken so far back to the switch.
    #[inline]
    pub fn release(&mut self) {
        let released = self.words().receiver.rx_head.load(Ordering::Relaxed);
        self.give_back(released, self.rx_next);
    }

    /// Receives up to `max` frames: hands each to `handle`, in place, and releases their slots.
    /// Returns how many there were.
    #[inline]
    pub fn receive(&mut self, max: usize, mut handle: impl FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        let mut bytes = 0;
        if self.queued() > 0 {
            self.collect();
        }
        while count < max {
            let Some(received) = self.take() else { break };
            // SAFETY: the slot was published to us, is not yet released, and this is the only
            // reference to it.
            let Some(buffer) = (unsafe { self.pool.buffer(received.slot) }) else {
                break;
            };
            handle(&mut buffer[..usize::from(received.len)]);
            bytes += u64::from(received.len);
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

    /// Frames queued and not yet consumed by the switch.
    #[inline]
    pub fn queued(&self) -> u32 {
        self.tx_next.wrapping_sub(self.tx_done)
    }

    /// Frames that can still be queued from the port's own TX slots, as far as has been collected.
    #[inline]
    pub fn room(&self) -> u32 {
        self.entry
            .tx_slots
            .min(self.entry.ring_slots)
            .saturating_sub(self.queued())
    }

    /// Queues one frame in the next TX slot: `fill` writes it and returns its length. `false`: no
    /// slot is free (flush first), or the length is none of a frame.
    #[inline]
    pub fn send(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.room() == 0 && self.collect() == 0 {
            self.stats.tx_no_slot += 1;
            return false;
        }
        let Some(slot) = self.next_tx_slot() else {
            self.stats.tx_no_slot += 1;
            return false;
        };
        // SAFETY: a TX slot of this port that is not queued: `room` is positive, slots are used in
        // turn, and frames are consumed in the order in which they were queued. Where the pool is
        // shared: a slot that lies at no ring position and in no queue.
        let Some(buffer) = (unsafe { self.pool.buffer(slot) }) else {
            return false;
        };
        let len = fill(buffer);
        if !(FRAME_MIN..=FRAME_MAX).contains(&len) {
            return false;
        }
        if self.spare.pop().is_none() {
            self.tx_slot = if self.tx_slot + 1 == self.entry.tx_slots {
                0
            } else {
                self.tx_slot + 1
            };
        }
        self.sends_own = true;
        self.queue(Received {
            slot,
            len: len as u16,
        });
        true
    }

    /// Queues a copy of a frame, as [`Port::send`].
    pub(crate) fn send_copy(&mut self, frame: &[u8]) -> bool {
        self.send(|slot| {
            slot[..frame.len()].copy_from_slice(frame);
            frame.len()
        })
    }

    /// Queues a frame that lies in any slot of the instance. The slot must not be released or
    /// written before the next flush has consumed it.
    #[inline]
    pub(crate) fn queue(&mut self, frame: Received) {
        let index = (self.tx_next & self.mask) as usize;
        self.words().tx[index].store(tx_desc(frame.len, frame.slot), Ordering::Relaxed);
        self.tx_next = self.tx_next.wrapping_add(1);
    }

    /// Queues a frame in the RX slot in which it was received, on this port or another one.
    #[inline]
    pub(crate) fn forward(&mut self, frame: Received) {
        if let Some(lending) = self.pool.lending() {
            lending.lend(frame.slot);
        }
        self.queue(frame);
    }

    /// True if another frame of another port's slot can be queued.
    #[inline]
    pub fn can_queue(&self) -> bool {
        self.free() > 0
    }

    /// Frames that fit into the TX ring.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        (self.mask + 1).saturating_sub(self.queued())
    }

    /// The slot that the next [`Port::send`] uses, for callers that write it before they send;
    /// `None` if no slot is free.
    #[inline]
    pub fn next_tx_slot(&mut self) -> Option<u32> {
        let room = self.room();
        if room == 0 {
            return None;
        }
        let Some(lending) = self.pool.lending() else {
            return Some(self.entry.tx_base + self.tx_slot);
        };
        if self.spare.is_empty() {
            // No more than can be queued: the others have their share.
            lending.take(room, &mut self.spare);
        }
        self.spare.last().copied()
    }

    /// Queues whatever descriptor it is given, as that of a received frame: for the C library, which
    /// has checked it, and for tests of the switch against hostile NFs.
    pub fn queue_raw(&mut self, len: u16, slot: u32) {
        self.forward(Received { slot, len });
    }

    /// The raw control words and descriptors, for tests of the switch against hostile NFs.
    pub fn raw_ring(&self) -> &Ring {
        self.words()
    }
}

/// Several ports as the place where an NF puts the frames that it makes.
#[derive(Debug)]
pub struct PortsOutbox<'a>(pub &'a mut [Port]);

impl PortsOutbox<'_> {
    /// The port, if a frame of `len` bytes can be queued on it, as far as its ring is concerned.
    pub(crate) fn with_room(&mut self, port: u8, len: usize) -> Option<&mut Port> {
        let port = self.0.get_mut(usize::from(port))?;
        let is_frame = (FRAME_MIN..=FRAME_MAX).contains(&len);
        let has_room = is_frame && (port.room() > 0 || port.flush(WhenFull::Drop).is_ok());
        has_room.then_some(port)
    }
}

impl Outbox for PortsOutbox<'_> {
    fn emit(&mut self, port: u8, frame: &[u8]) -> bool {
        let port = self.with_room(port, frame.len());
        port.is_some_and(|port| port.send_copy(frame))
    }

    /// No batch is at hand, or its only frame is sent as a copy behind the frames that it leads to.
    fn commit(&mut self, _decided: &[Frame<'_>]) {}
}
