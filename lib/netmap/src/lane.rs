//! One queue of a port: netmap's two rings, over the rings of the switch.

use crate::abi::{FRAGMENTS_MAX, slot as flag};
use crate::buffers::Buffers;
use crate::region::{Region, Ring, Slot};
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, LONG_MAX};
use nfluid_ring::offload::Offload;
use nfluid_ring::port::{Port, TakenSlot, WhenFull};
use std::collections::VecDeque;

/// Attempts to have queued frames taken.
const FLUSHES_MAX: u32 = 1000;

/// A ring whose words are those of no ring: the program has been put back to where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRing;

/// One direction: the part of the ring that is the program's, as this side knows it.
#[derive(Debug)]
struct Side {
    ring: Ring,
    head: u32,
    tail: u32,
}

/// A queue, and who uses it.
#[derive(Debug)]
pub struct Lane {
    port: Port,
    tx: Side,
    rx: Side,
    /// Positions of frames that the program has not given back, in order.
    positions: VecDeque<u32>,
    /// A frame for which there were no buffers.
    pending: Option<TakenSlot>,
    /// Descriptors that have this queue.
    pub users: u32,
    /// One of them wants it alone.
    pub is_taken: bool,
    /// Packets of the program that are none, or too long.
    bad: u64,
}

impl Side {
    /// Reads how far the program is.
    fn read(&mut self) -> Result<u32, BadRing> {
        let (head, cur) = (self.ring.head(), self.ring.cur());
        let given = self.ring.distance(self.head, self.tail);
        let is_in = |at| at < self.ring.slots() && self.ring.distance(self.head, at) <= given;
        if is_in(head) && is_in(cur) {
            return Ok(head);
        }
        self.ring.set_head(self.head);
        self.ring.set_tail(self.tail);
        Err(BadRing)
    }

    fn is_ready(&self) -> bool {
        self.ring.cur() != self.tail
    }

    /// The last slot that the program can be given: a full ring has one slot less.
    fn last(&self) -> u32 {
        match self.head {
            0 => self.ring.slots() - 1,
            head => head - 1,
        }
    }
}

impl Lane {
    /// The rings of a port: number `number` of the region and the next. They have no buffers before [`Lane::reset`].
    pub fn new(port: Port, region: &Region, number: usize) -> Self {
        let side = |number| Side {
            ring: region.ring(number),
            head: 0,
            tail: 0,
        };
        let lane = Lane {
            tx: side(number),
            rx: side(number + 1),
            positions: VecDeque::with_capacity(port.entry().ring_slots as usize),
            pending: None,
            users: 0,
            is_taken: false,
            bad: 0,
            port,
        };
        let queue = lane.port.entry().queue;
        region.describe_ring(lane.tx.ring, queue, false);
        region.describe_ring(lane.rx.ring, queue, true);
        lane
    }

    /// Both rings as they are at first. No descriptor has the lane, and all buffers are spare ones.
    pub fn reset(&mut self, buffers: &Buffers) {
        self.give_back(buffers);
        let mut spare = buffers.spare();
        for at in 0..self.tx.ring.slots() {
            let buffer = spare.pop().map_or(0, Buffers::index);
            let slot = |buffer| Slot {
                buffer,
                len: 0,
                flags: 0,
            };
            self.tx.ring.set_slot(at, slot(buffer));
            let place = self.port.entry().rx_base + at;
            self.rx.ring.set_slot(at, slot(Buffers::index(place)));
        }
        for side in [&mut self.tx, &mut self.rx] {
            (side.head, side.tail) = (0, 0);
            side.ring.set_head(0);
        }
        self.tx.tail = self.tx.last();
        self.tx.ring.set_tail(self.tx.tail);
        self.rx.ring.set_tail(0);
    }

    pub fn tx_ring(&self) -> Ring {
        self.tx.ring
    }

    pub fn rx_ring(&self) -> Ring {
        self.rx.ring
    }

    pub fn can_send(&self) -> bool {
        self.tx.is_ready()
    }

    pub fn has_received(&self) -> bool {
        self.rx.is_ready()
    }

    /// Does a frame wait that the program has not been shown?
    pub fn has_arrived(&self) -> bool {
        self.port.is_ready()
    }

    /// The next frame rings; false: one waits.
    pub fn fall_asleep(&mut self, epoch: u32) -> bool {
        self.port.fall_asleep(epoch)
    }

    pub fn awake(&mut self) {
        self.port.awake();
    }

    /// Packets that the program has queued go to the switch.
    pub fn send(&mut self, buffers: &Buffers) -> Result<(), BadRing> {
        let head = self.tx.read()?;
        if head == self.tx.head {
            return Ok(());
        }
        let (mut at, mut has_places) = (self.tx.head, false);
        while at != head {
            let slot = self.tx.ring.slot(at);
            let plain = slot.flags & (flag::INDIRECT | flag::MORE_FRAGMENTS) == 0
                && (FRAME_MIN..=FRAME_MAX).contains(&usize::from(slot.len));
            match buffers.slot(slot.buffer).filter(|_| plain) {
                Some(place) if self.port.can_queue() => {
                    has_places |= buffers.is_place(place);
                    // SAFETY: a slot of the pool; a program's buffer has no metadata behind it, and no reference exists.
                    unsafe {
                        self.port.queue_slots(slot.len, (place, 1), Offload::NONE);
                    };
                    at = self.tx.ring.next(at);
                }
                Some(_) => self.flush(),
                None => {
                    has_places = true;
                    at = self.gather(at, head, buffers);
                }
            }
        }
        self.flush();
        if has_places {
            self.exchange(head, buffers);
        }
        self.tx.head = head;
        self.tx.tail = self.tx.last();
        self.tx.ring.set_tail(self.tx.tail);
        Ok(())
    }

    /// Everything that is queued leaves: a receiver that is full drops, and counts.
    fn flush(&mut self) {
        for _ in 0..FLUSHES_MAX {
            // An error takes the frames, and is counted by the port: the port is down, or another process uses it.
            let _discarded = self.port.flush(WhenFull::Drop);
            self.port.await_io_thread();
            if self.port.queued() == 0 {
                return;
            }
            // An I/O thread leaves the port, and takes these frames along.
            rustix::thread::sched_yield();
        }
        self.port.discard_queued();
    }

    /// Makes a frame of a packet that does not lie in one buffer as a whole. Returns the slot behind it.
    #[cold]
    fn gather(&mut self, from: u32, head: u32, buffers: &Buffers) -> u32 {
        let mut frame = Vec::new();
        let (mut at, mut count, mut is_good) = (from, 0, true);
        loop {
            let slot = self.tx.ring.slot(at);
            let len = usize::from(slot.len).min(nfluid_ring::layout::SLOT_SIZE);
            let bytes = match buffers.slot(slot.buffer) {
                _ if slot.flags & flag::INDIRECT != 0 => self.tx.ring.pointer(at),
                Some(buffer) => buffers.start(buffer).as_ptr().cast_const(),
                None => std::ptr::null(),
            };
            is_good &= !bytes.is_null() && len == usize::from(slot.len);
            if is_good && frame.len() + len <= LONG_MAX {
                // SAFETY: a buffer, or what the program says to be memory of its own, as to the kernel; nobody writes there
                // while the program is in this library.
                frame.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, len) });
            } else {
                is_good = false;
            }
            at = self.tx.ring.next(at);
            count += 1;
            let has_more = slot.flags & flag::MORE_FRAGMENTS != 0;
            if !has_more {
                break;
            }
            if at == head || count >= FRAGMENTS_MAX {
                is_good = false;
                break;
            }
        }
        if !(is_good && self.send_copy(&frame, buffers)) {
            self.count_bad(frame.len());
        }
        at
    }

    /// Sends a frame that lies in no buffer; false: it cannot be sent.
    fn send_copy(&mut self, frame: &[u8], buffers: &Buffers) -> bool {
        if frame.len() < FRAME_MIN {
            return false;
        }
        if frame.len() <= FRAME_MAX {
            let Some(loose) = buffers.spare().pop() else {
                return false;
            };
            let len = buffers.fill(loose, frame);
            if !self.port.can_queue() {
                self.flush();
            }
            // SAFETY: a slot of the pool, which nobody else has, and to which no reference exists.
            unsafe { self.port.queue_slots(len, (loose, 1), Offload::NONE) };
            self.flush();
            buffers.spare().push(loose);
            return true;
        }
        if self.port.entry().tx_long_slots == 0 {
            return false;
        }
        let fill = |slots: &mut [u8]| {
            slots[..frame.len()].copy_from_slice(frame);
            (frame.len(), Offload::NONE)
        };
        self.port.send_long(fill) || {
            self.flush();
            self.port.send_long(fill)
        }
    }

    #[cold]
    fn count_bad(&mut self, len: usize) {
        if self.bad == 0 {
            let longest = match self.port.entry().tx_long_slots {
                0 => FRAME_MAX,
                _ => LONG_MAX,
            };
            crate::say(format_args!(
                "port '{}': a packet of {len} bytes cannot be sent, nor others like it: a frame has {FRAME_MIN} to {longest} bytes, in buffers of the instance",
                self.port.entry().name()
            ));
        }
        self.bad += 1;
    }

    /// Places that were sent are at home; the transmit ring gets loose buffers for them, as far as there are any.
    fn exchange(&mut self, head: u32, buffers: &Buffers) {
        let mut spare = buffers.spare();
        let mut at = self.tx.head;
        while at != head {
            let slot = self.tx.ring.slot(at);
            if let Some(place) = buffers.slot(slot.buffer).filter(|it| buffers.is_place(*it))
                && let Some(loose) = spare.pop()
            {
                buffers.give_up(place, &mut spare);
                self.tx.ring.set_slot(
                    at,
                    Slot {
                        buffer: Buffers::index(loose),
                        flags: slot.flags | flag::BUFFER_CHANGED,
                        ..slot
                    },
                );
            }
            at = self.tx.ring.next(at);
        }
    }

    /// Slots that the program has released go back to the switch.
    pub fn release(&mut self, buffers: &Buffers) -> Result<(), BadRing> {
        let head = self.rx.read()?;
        if head != self.rx.head {
            self.release_until(head, buffers);
        }
        self.give_back(buffers);
        Ok(())
    }

    fn release_until(&mut self, head: u32, buffers: &Buffers) {
        let mut loose = Vec::new();
        while self.rx.head != head {
            let slot = self.rx.ring.slot(self.rx.head);
            if let Some(buffer) = buffers.slot(slot.buffer) {
                buffers.give_up(buffer, &mut loose);
            }
            self.rx.head = self.rx.ring.next(self.rx.head);
        }
        if !loose.is_empty() {
            buffers.spare().append(&mut loose);
        }
    }

    /// Gives positions back, in order, as far as their places are at home.
    fn give_back(&mut self, buffers: &Buffers) {
        let entry = self.port.entry();
        let (base, mask) = (entry.rx_base, entry.ring_slots - 1);
        let mut end = None;
        while let Some(position) = self.positions.front() {
            if !buffers.is_home(base + (position & mask)) {
                break;
            }
            end = Some(position.wrapping_add(1));
            self.positions.pop_front();
        }
        if let Some(end) = end {
            self.port.release_to(end);
        }
    }

    /// Shows the program what has arrived.
    pub fn receive(&mut self, buffers: &Buffers) {
        let (keeps, before, last) = (buffers.keeps(), self.rx.tail, self.rx.last());
        while self.rx.tail != last {
            let Some(taken) = self.pending.take().or_else(|| self.port.take_slot()) else {
                break;
            };
            if keeps || taken.slots > 1 {
                if !self.show_copy(&taken, buffers) {
                    self.pending = Some(taken);
                    break;
                }
            } else {
                buffers.lend(taken.slot);
                self.show(taken.slot, taken.len, 0);
            }
            self.positions.push_back(taken.position);
        }
        if self.rx.tail != before {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            self.rx.ring.set_time(now.tv_sec, now.tv_nsec / 1000);
            self.rx.ring.set_tail(self.rx.tail);
        }
        if keeps {
            self.give_back(buffers);
        }
    }

    #[inline]
    fn show(&mut self, slot: u32, len: u16, flags: u16) {
        let buffer = Buffers::index(slot);
        let flags = flags | flag::BUFFER_CHANGED;
        let slot = Slot { buffer, len, flags };
        self.rx.ring.set_slot(self.rx.tail, slot);
        self.rx.tail = self.rx.ring.next(self.rx.tail);
    }

    /// Shows a copy, in as many buffers as the frame fills. Returns false, and does nothing, if there are not so many, or not
    /// so many slots.
    fn show_copy(&mut self, taken: &TakenSlot, buffers: &Buffers) -> bool {
        let needed = usize::from(taken.len).div_ceil(FRAME_MAX);
        let room = self.rx.ring.distance(self.rx.tail, self.rx.last()) as usize;
        let mut spare = buffers.spare();
        if spare.len() < needed || room < needed {
            return false;
        }
        let rest = spare.len() - needed;
        let loose = spare.split_off(rest);
        drop(spare);
        let Some(frame) = self.port.taken_frame(taken) else {
            // Never: the position is not given back. The buffers are not lost.
            buffers.spare().extend(loose);
            return true;
        };
        let mut shown = [(0, 0); FRAGMENTS_MAX];
        for ((shown, slot), part) in shown.iter_mut().zip(&loose).zip(frame.chunks(FRAME_MAX)) {
            *shown = (*slot, buffers.fill(*slot, part));
        }
        for (index, (slot, len)) in shown[..needed].iter().enumerate() {
            let has_more = index + 1 < needed;
            self.show(*slot, *len, if has_more { flag::MORE_FRAGMENTS } else { 0 });
        }
        true
    }

    /// The last descriptor has gone: what was not sent and what was not read is gone, too.
    pub fn close(&mut self, buffers: &Buffers) {
        self.tx.ring.set_head(self.tx.head);
        self.release_until(self.rx.tail, buffers);
        self.positions
            .extend(self.pending.take().map(|taken| taken.position));
        while let Some(taken) = self.port.take_slot() {
            self.positions.push_back(taken.position);
        }
        self.give_back(buffers);
        self.rx.ring.set_head(self.rx.head);
        self.is_taken = false;
    }
}
