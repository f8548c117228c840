//! A port: receive in place, send, forward without a copy.
//!
//! Transmission is synchronous: [`Port::flush`] makes the hyperio call, in which the switch copies
//! every queued frame to its receiver. When it returns, the queued slots may be used again.

use crate::attach::PortEntry;
use crate::batch::Outbox;
use crate::layout::{
    CALL_NOP, CALL_TX, CALL_TX_KEEP, FRAME_MAX, FRAME_MIN, Ring, SOL_NFLUID, rx_desc, tx_desc,
};
use crate::memory::{Pool, RingMemory};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a full link does to the frames of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// They are dropped, and counted on the receiver's port.
    Drop,
    /// They stay queued; the caller decides when to flush again. Links only: a switch drops.
    Keep,
}

/// What the library counts; the platform's own counters are the switch's.
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

/// A port of this instance. One thread uses it at a time; queues of a port are ports of their own.
#[derive(Debug)]
pub struct Port {
    entry: PortEntry,
    socket: OwnedFd,
    peer_bell: Option<OwnedFd>,
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
    /// Sleep epoch for which the peer has been woken.
    rung: u32,
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
    pub(crate) fn new(
        entry: PortEntry,
        socket: OwnedFd,
        peer_bell: Option<OwnedFd>,
        ring: RingMemory,
        pool: Arc<Pool>,
    ) -> Self {
        // A former owner may have left positions behind: an NF that is restarted goes on there.
        let words = ring.ring();
        let rx_next = words.receiver.rx_head.load(Ordering::Acquire);
        let tx_done = words.switch.tx_tail.load(Ordering::Acquire);
        words.sender.tx_head.store(tx_done, Ordering::Release);
        words.receiver.rx_sleep.store(0, Ordering::Release);
        Port {
            mask: entry.ring_slots - 1,
            entry,
            socket,
            peer_bell,
            ring,
            pool,
            rx_next,
            tx_next: tx_done,
            tx_done,
            tx_slot: 0,
            rung: 0,
            stats: PortStats::default(),
        }
    }

    /// What the platform says about the port.
    pub fn entry(&self) -> &PortEntry {
        &self.entry
    }

    /// What the library has counted.
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
                return Some(Received {
                    slot: self.entry.rx_base + index,
                    len,
                });
            }
            self.release_hole(position);
        }
    }

    /// Nobody is handed a hole, so nobody would release it, and a ring full of holes would stay
    /// full. One behind frames that are still held goes with them.
    #[cold]
    fn release_hole(&mut self, position: u32) {
        let line = &self.words().receiver;
        if line.rx_head.load(Ordering::Relaxed) == position {
            line.rx_head.store(self.rx_next, Ordering::Release);
        }
    }

    /// The next frame, if one waits, for an owner who does not finish with frames in order or at
    /// once, as an uplink whose interface reads the slots. Holes are skipped: positions may be
    /// missing. The slot is the caller's until [`Port::release_to`] passes its position.
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
        let slot = self.entry.rx_base + (taken.position & self.mask);
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
            line.rx_head.store(position, Ordering::Release);
        }
    }

    /// Gives the slots of all frames taken so far back to the switch.
    #[inline]
    pub fn release(&mut self) {
        self.words()
            .receiver
            .rx_head
            .store(self.rx_next, Ordering::Release);
    }

    /// Receives up to `max` frames: hands each to `handle`, in place, and releases their slots.
    /// Returns how many there were.
    #[inline]
    pub fn receive(&mut self, max: usize, mut handle: impl FnMut(&mut [u8])) -> usize {
        let mut count = 0;
        let mut bytes = 0;
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

    /// Frames that can still be queued from the port's own TX slots.
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
        if self.room() == 0 {
            self.stats.tx_no_slot += 1;
            return false;
        }
        let slot = self.entry.tx_base + self.tx_slot;
        // SAFETY: a TX slot of this port that is not queued: `room` is positive, slots are used in
        // turn, and frames are consumed in the order in which they were queued.
        let Some(buffer) = (unsafe { self.pool.buffer(slot) }) else {
            return false;
        };
        let len = fill(buffer);
        if !(FRAME_MIN..=FRAME_MAX).contains(&len) {
            return false;
        }
        self.tx_slot = if self.tx_slot + 1 == self.entry.tx_slots {
            0
        } else {
            self.tx_slot + 1
        };
        self.queue(Received {
            slot,
            len: len as u16,
        });
        true
    }

    /// Queues a frame that lies in any slot of the instance. The slot must not be released or
    /// written before the next flush has consumed it.
    #[inline]
    pub(crate) fn queue(&mut self, frame: Received) {
        let index = (self.tx_next & self.mask) as usize;
        self.words().tx[index].store(tx_desc(frame.len, frame.slot), Ordering::Relaxed);
        self.tx_next = self.tx_next.wrapping_add(1);
    }

    /// True if another frame of another port's slot can be queued.
    #[inline]
    pub fn can_queue(&self) -> bool {
        self.queued() <= self.mask
    }

    /// The slot that the next [`Port::send`] uses, for callers that write it before they send;
    /// `None` if no slot is free.
    #[inline]
    pub fn next_tx_slot(&self) -> Option<u32> {
        (self.room() > 0).then(|| self.entry.tx_base + self.tx_slot)
    }

    /// Queues whatever descriptor it is given: for the C library, which has checked it, and for
    /// tests of the switch against hostile NFs.
    pub fn queue_raw(&mut self, len: u16, slot: u32) {
        self.queue(Received { slot, len });
    }

    /// The raw control words and descriptors, for tests of the switch against hostile NFs.
    pub fn raw_ring(&self) -> &Ring {
        self.words()
    }

    /// Hands the queued frames to the switch, in this thread's own context, and wakes the link's
    /// peer if it sleeps. Returns how many frames the switch consumed.
    ///
    /// # Errors
    /// `EBUSY`: another thread is in a call on this port; `ENETDOWN`: the port is down. The queued
    /// frames are discarded and counted in [`PortStats::tx_errors`].
    pub fn flush(&mut self, when_full: WhenFull) -> io::Result<u32> {
        let mut consumed = 0;
        while self.queued() > 0 {
            let step = self.call(when_full)?;
            consumed += step;
            if step == 0 || (when_full == WhenFull::Keep && self.queued() > 0) {
                break;
            }
        }
        Ok(consumed)
    }

    fn call(&mut self, when_full: WhenFull) -> io::Result<u32> {
        let option = match when_full {
            WhenFull::Drop => CALL_TX,
            WhenFull::Keep => CALL_TX_KEEP,
        };
        self.words()
            .sender
            .tx_head
            .store(self.tx_next, Ordering::Release);
        self.stats.calls += 1;
        if let Err(error) = self.hyperio(option) {
            self.stats.tx_errors += 1;
            self.discard_queued();
            return Err(error);
        }
        let words = self.words();
        let tail = words.switch.tx_tail.load(Ordering::Acquire);
        let asleep = words.switch.peer_asleep.load(Ordering::Relaxed);
        let consumed = tail.wrapping_sub(self.tx_done);
        if consumed > self.queued() {
            // Another thread uses this port too: positions mean nothing any more.
            self.stats.tx_errors += 1;
            self.discard_queued();
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        self.tx_done = tail;
        self.stats.tx_frames += u64::from(consumed);
        if asleep != 0 && asleep != self.rung {
            self.ring_peer(asleep);
        }
        Ok(consumed)
    }

    /// Takes back what is queued: the switch has not consumed it and never will.
    pub fn discard_queued(&mut self) {
        self.tx_next = self.words().switch.tx_tail.load(Ordering::Acquire);
        self.tx_done = self.tx_next;
        self.words()
            .sender
            .tx_head
            .store(self.tx_next, Ordering::Release);
    }

    /// One byte into the peer's pipe. A full pipe is a ring that the peer has not answered yet; a
    /// closed one means that it is gone: neither is this sender's error.
    fn ring_peer(&mut self, epoch: u32) {
        if let Some(bell) = &self.peer_bell {
            let _ = rustix::io::write(bell, &[1]);
            self.stats.rings += 1;
        }
        self.rung = epoch;
    }

    /// Enters the switch and does nothing there: the cost of the call itself.
    ///
    /// # Errors
    /// As the kernel reports them.
    pub fn nop(&self) -> io::Result<()> {
        self.hyperio(CALL_NOP)
    }

    /// Runs the switch over a TX ring in which nothing is queued.
    ///
    /// # Errors
    /// As for [`Port::flush`].
    pub fn call_empty(&self) -> io::Result<()> {
        self.hyperio(CALL_TX)
    }

    #[inline]
    fn hyperio(&self, option: i32) -> io::Result<()> {
        let value = 0u32;
        // SAFETY: the option value is a live u32 of the length that is passed; the kernel only
        // reads it.
        let status = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                SOL_NFLUID,
                option,
                (&raw const value).cast(),
                size_of::<u32>() as libc::socklen_t,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Several ports as the place where an NF puts the frames that it makes.
#[derive(Debug)]
pub struct PortsOutbox<'a>(pub &'a mut [Port]);

impl Outbox for PortsOutbox<'_> {
    fn emit(&mut self, port: u8, frame: &[u8]) -> bool {
        let Some(port) = self.0.get_mut(usize::from(port)) else {
            return false;
        };
        if !(FRAME_MIN..=FRAME_MAX).contains(&frame.len()) {
            return false;
        }
        if port.room() == 0 && port.flush(WhenFull::Drop).is_err() {
            return false;
        }
        port.send(|slot| {
            slot[..frame.len()].copy_from_slice(frame);
            frame.len()
        })
    }
}
