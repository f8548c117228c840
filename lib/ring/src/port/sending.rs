//! Queueing frames: those that the owner makes, and those that it hands on.

use super::*;

impl Port {
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
        let Some(buffer) = (unsafe { self.pool.buffer(slot, 1) }) else {
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
        self.queue(Received::plain(slot, len as u16), Offload::NONE);
        true
    }

    /// Queues one frame of up to [`LONG_MAX`] bytes in the port's slots for long frames: `fill` writes it, and returns its
    /// length and what is still to be done to it. `false`: no slots are free (flush first), the port has none, or the
    /// length is none of a frame.
    pub fn send_long(&mut self, fill: impl FnOnce(&mut [u8]) -> (usize, Offload)) -> bool {
        if !self.can_queue() {
            self.collect();
        }
        let (queued, done) = (self.queued(), self.tx_done);
        let is_consumed = |position| queued == 0 || is_before(position, done);
        let place = self.long_sends.place(is_consumed);
        let Some(slot) = place.filter(|_| self.can_queue()) else {
            self.stats.tx_no_slot += 1;
            return false;
        };
        // SAFETY: slots of the port's own for long frames, of which no part is queued: `place` gives out no slot of a frame
        // that the switch has not consumed.
        let Some(buffer) = (unsafe { self.pool.buffer(slot, LONG_SLOTS) }) else {
            return false;
        };
        let (len, offload) = fill(buffer);
        if !(FRAME_MIN..=LONG_MAX).contains(&len) {
            return false;
        }
        self.sends_own = true;
        let queued = Received {
            slots: frame_slots(len) as u8,
            ..Received::plain(slot, len as u16)
        };
        self.queue(queued, offload);
        self.long_sends.queue(len, self.tx_next);
        true
    }

    /// Queues a copy of a frame to which `offload` is still to be done, as [`Port::send`], or as [`Port::send_long`]
    /// where it has to. `false`: no slots are free (flush first), the port has none for such a frame, or the length is
    /// none of a frame.
    pub(crate) fn send_copy(&mut self, frame: &[u8], offload: Offload) -> bool {
        if !(FRAME_MIN..=LONG_MAX).contains(&frame.len()) {
            return false;
        }
        if frame.len() > FRAME_MAX || !offload.is_none() {
            return self.send_long(|slots| {
                slots[..frame.len()].copy_from_slice(frame);
                (frame.len(), offload)
            });
        }
        self.send(|slot| {
            slot[..frame.len()].copy_from_slice(frame);
            frame.len()
        })
    }

    /// As [`Port::send_copy`]; sends what is queued first where the slots for long frames are full, although the ring is not.
    pub(crate) fn emit(&mut self, frame: &[u8], offload: Offload) -> bool {
        self.send_copy(frame, offload)
            || (self.flush(WhenFull::Drop).is_ok() && self.send_copy(frame, offload))
    }

    /// Queues a frame that lies in any slot of the instance. The slot must not be released or
    /// written before the next flush has consumed it. `offload` is still to be done to it.
    #[inline]
    pub(crate) fn queue(&mut self, frame: Received, offload: Offload) {
        let index = (self.tx_next & self.mask) as usize;
        let desc = if offload.is_none() {
            tx_desc_long(frame.len, frame.slot, frame.slots)
        } else {
            let words = offload.words(usize::from(frame.len));
            self.pool.set_offload_words(frame.last_slot(), words);
            tx_desc_offload(frame.len, frame.slot, frame.slots)
        };
        self.words().tx[index].store(desc, Ordering::Relaxed);
        self.tx_next = self.tx_next.wrapping_add(1);
    }

    /// Queues a frame in the RX slot in which it was received, on this port or another one.
    #[inline]
    pub(crate) fn forward(&mut self, frame: Received, offload: Offload) {
        if let Some(lending) = self.pool.lending() {
            lending.lend(frame.slot);
        }
        self.queue(frame, offload);
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

    /// Queues whatever descriptor it is given, as that of a received frame, for tests of the switch against hostile NFs.
    pub fn queue_raw(&mut self, len: u16, slot: u32) {
        self.forward(Received::plain(slot, len), Offload::NONE);
    }

    /// Queues a received frame of `len` bytes that lies in `slots` slots from slot `slot` of the pool on, for the C library,
    /// which has checked that they are a frame's, and that `offload` can be still to be done to it.
    ///
    /// # Safety
    /// `slots` is not 0, and no reference to the metadata's bytes, the last ones of the last slot, exists.
    #[inline]
    pub unsafe fn queue_slots(&mut self, len: u16, (slot, slots): (u32, u8), offload: Offload) {
        let frame = Received {
            slots,
            ..Received::plain(slot, len)
        };
        self.forward(frame, offload);
    }
}

/// Is position `one` before `other`, or the same? Both wrap.
#[inline]
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() <= 0
}

/// Several ports as the place where an NF puts the frames that it makes.
#[derive(Debug)]
pub struct PortsOutbox<'a>(pub &'a mut [Port]);

impl PortsOutbox<'_> {
    /// The port, if a frame of `len` bytes can be queued on it, as far as its ring is concerned.
    pub(crate) fn with_room(&mut self, port: u8, len: usize) -> Option<&mut Port> {
        let port = self.0.get_mut(usize::from(port))?;
        let is_frame = (FRAME_MIN..=LONG_MAX).contains(&len);
        let has_room = is_frame && (port.room() > 0 || port.flush(WhenFull::Drop).is_ok());
        has_room.then_some(port)
    }
}

impl Outbox for PortsOutbox<'_> {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool {
        let port = self.with_room(port, frame.len());
        port.is_some_and(|port| port.emit(frame, offload))
    }

    /// No batch is at hand, or its only frame is sent as a copy behind the frames that it leads to.
    fn commit(&mut self, _decided: &[Frame<'_>]) {}
}
