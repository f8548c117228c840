//! The work of the instances' threads, of the I/O thread, and of the daemon's threads that deposit frames.

use super::frames::{Beside, Stamped, doubtful, length};
use super::*;
use nfluid_ring::layout::{
    BLOCK_SLOTS, DESC_OFFLOAD, FRAME_MAX, Released, frame_slots, tx_desc_long, tx_desc_slot,
};
use nfluid_ring::offload::{Level, Offload};
use nfluid_ring::port::TakenSlot;
use std::sync::atomic::Ordering::SeqCst;

/// A slot of a block at which no long frame may begin.
const MISPLACED: u32 = 33;

impl Storm {
    /// A thread of the daemon that deposits frames; `sender` is in its frames.
    pub(super) async fn depositor(self: Rc<Self>, daemon: Rc<Daemon>, sender: u32) {
        while !self.is_over.get() {
            for _ in 0..self.below(2000) {
                step().await;
            }
            let number = self.below(FIRST_MEMBER);
            let place = self.place(number);
            let is_late = self.is_over.get();
            if is_late
                || place.record.get() != Record::Runs
                || place.process.borrow().order.get() != Order::GoOn
            {
                continue;
            }
            place.fed.set(place.fed.get() + 1);
            let instance = place.instance.borrow().clone();
            let frame = |_| Stamped {
                dst: mac_of(number),
                src: [0; 6],
                sender,
                number: self.next(),
                len: length(self.below(32), self.below(70_000)),
                beside: Beside::Nothing,
            };
            let frames: Vec<_> = (0..1 + self.below(4)).map(frame).collect();
            daemon.deposit(&instance, &frames).await;
            place.fed.set(place.fed.get() - 1);
        }
    }

    /// Changes the metadata of frames that are on their way.
    pub(super) async fn scribbler(self: Rc<Self>) {
        while !self.is_over.get() {
            for place in &self.places {
                step().await;
                if let Some((slot, len)) = place.doubtful.get() {
                    let words = doubtful(len, self.next_word());
                    place.instance.borrow().pool.set_offload(slot, words);
                }
            }
        }
    }

    pub(super) fn next(&self) -> u64 {
        self.sent.set(self.sent.get() + 1);
        self.sent.get()
    }

    fn next_word(&self) -> u64 {
        u64::from(self.below(u32::MAX))
    }

    /// A frame is in the hands of its receiver.
    pub(super) fn arrived(&self, number: u32, serial: u32, port: &Port, taken: TakenSlot) {
        let place = self.place(number);
        let instance = place.instance.borrow();
        let len = usize::from(taken.len);
        let index = taken.position & (instance.slots - 1);
        let desc = port.raw_ring().rx[index as usize].load(SeqCst);
        let is_flagged = desc & DESC_OFFLOAD != 0 && instance.group == 0;
        let checked = Stamped::arrived(&instance.pool, taken.slot, len).and_then(|frame| {
            let last = taken.slot + frame.last_slot();
            let words = (is_flagged || len > FRAME_MAX).then(|| instance.pool.offload(last));
            let offload = frame.check_words(words)?;
            if offload.level() > instance.level || len > FRAME_MAX && instance.long.rx == 0 {
                let (area, level) = (instance.long.rx, instance.level);
                return Err(format!(
                    "{frame:?} with {offload:?}, for {area} slots and {level:?}"
                ));
            }
            Ok(frame)
        });
        match checked {
            Ok(frame) => self.m.audit.received(
                (number, serial),
                (frame.sender, frame.dst),
                frame.number,
                len as u64,
            ),
            Err(why) => self.m.audit.violated(format!("at {number}: {why}")),
        }
    }

    /// Notes for the audit how far the owner of a port has released.
    pub(super) fn note_released(&self, number: u32, port: &Port) {
        let word = port.raw_ring().receiver.rx_released.load(SeqCst);
        self.m.audit.released(number, Released::of(word));
    }

    async fn release(&self, number: u32, process: &Process, port: &mut Port, to: u32) {
        let word = |port: &Port| port.raw_ring().receiver.rx_released.load(SeqCst);
        let before = Released::of(word(port));
        port.release_to(to);
        self.note_released(number, port);
        if !self.m.has(Mutation::ReleasedInTwoStores) {
            return;
        }
        let after = word(port);
        let head = Released::of(after).head;
        let released = &port.raw_ring().receiver.rx_released;
        released.store(Released { head, ..before }.word(), SeqCst);
        step().await;
        if process.order.get() == Order::GoOn || self.below(2) == 0 {
            released.store(after, SeqCst);
        }
    }

    pub(super) async fn receiver(
        self: Rc<Self>,
        number: u32,
        process: Rc<Process>,
        mut port: Port,
    ) {
        let place = self.place(number);
        let serial = place.serial.get();
        // Positions of frames that are held.
        let mut held = VecDeque::new();
        while process.order.get() == Order::GoOn {
            step().await;
            let taken = port.take_slot();
            place.taken.set(port.taken());
            self.note_released(number, &port);
            if let Some(taken) = taken {
                // An arrived frame is received, whatever becomes of the process now.
                self.arrived(number, serial, &port, taken);
                held.push_back(taken.position);
            }
            let patience = if taken.is_none() { 4 } else { 8 };
            if !held.is_empty() && self.below(patience) == 0 {
                step().await;
                let some = self.below(2 * held.len() as u32 + 2) as usize;
                let to = held.get(some).copied().unwrap_or(port.taken());
                self.release(number, &process, &mut port, to).await;
                held.drain(..some.min(held.len()));
            }
        }
        if process.order.get() == Order::Leave {
            let to = port.taken();
            self.release(number, &process, &mut port, to).await;
        }
        process.receivers.set(0);
    }

    fn some_address(&self) -> [u8; 6] {
        match self.below(8) {
            0 => [0xff; 6],
            1..5 => mac_of(self.below(PLACES)),
            _ => taught(
                1 + self.below(self.serials.get().max(1)),
                self.below(ADDRESSES.into()) as u8,
            ),
        }
    }

    fn some_frame(&self, number: u32, dst: [u8; 6]) -> Stamped {
        let serial = self.place(number).serial.get();
        let is_pinned = number >= FIRST_MEMBER;
        let src = if is_pinned || self.below(2) == 0 {
            mac_of(number)
        } else {
            taught(serial, self.below(ADDRESSES.into()) as u8)
        };
        let dst = if self.below(4) == 0 {
            self.some_address()
        } else {
            dst
        };
        let beside = match self.below(16) {
            0..12 => Beside::Nothing,
            12 => Beside::Checksum,
            13 => Beside::Super,
            14 => Beside::Doubtful,
            _ if self.below(4) == 0 => Beside::Wrong,
            _ => Beside::Nothing,
        };
        Stamped {
            dst,
            src,
            sender: serial,
            number: self.next(),
            len: length(self.below(32), self.below(70_000)),
            beside,
        }
    }

    /// Queues a frame at position `head`. False: there is no room, or the instance has no slots for such a frame.
    fn queue(&self, instance: &Instance, port: &mut Port, head: u32, frame: &Stamped) -> bool {
        let is_long = frame.len > FRAME_MAX || instance.long.tx > 0 && self.below(4) == 0;
        let is_queued = if is_long {
            port.send_long(|_| (frame.len, Offload::NONE))
        } else {
            port.next_tx_slot().is_some() && port.send(|_| frame.len)
        };
        if !is_queued {
            return false;
        }
        let desc = &port.raw_ring().tx[(head & (instance.slots - 1)) as usize];
        let slot = tx_desc_slot(desc.load(SeqCst));
        let slots = if is_long { frame_slots(frame.len) } else { 1 };
        frame.write(&instance.pool, slot);
        if let Some(words) = frame.words() {
            desc.store(desc.load(SeqCst) | DESC_OFFLOAD, SeqCst);
            let last = slot + slots as u32 - 1;
            instance.pool.set_offload(last, words);
            if frame.beside == Beside::Doubtful {
                let place = self.place(instance.number);
                place.doubtful.set(Some((last, frame.len)));
            }
        }
        // Of the frames that must not arrive, some are right but for their place.
        if frame.beside == Beside::Wrong && instance.long.tx > 0 && self.below(2) == 0 {
            let first = slot / BLOCK_SLOTS as u32 * BLOCK_SLOTS as u32 + MISPLACED;
            let slots = 2 + self.below(BLOCK_SLOTS as u32 - MISPLACED - 1) as usize;
            let len = slots * nfluid_ring::layout::SLOT_SIZE - 16;
            let misplaced = tx_desc_long(len as u16, first, slots as u8);
            desc.store(misplaced, SeqCst);
        }
        true
    }

    pub(super) async fn sender(self: Rc<Self>, number: u32, process: Rc<Process>, mut port: Port) {
        let place = self.place(number);
        let instance = place.instance.borrow().clone();
        let is_served = place.is_served.get();
        let mut head = port.raw_ring().switch.tx_tail.get();
        while process.order.get() == Order::GoOn && !self.is_over.get() {
            // The slot may be another frame's from now on.
            place.doubtful.set(None);
            let dst = self.some_address();
            for _ in 0..1 + self.below(6) {
                step().await;
                let frame = self.some_frame(number, dst);
                if !self.queue(&instance, &mut port, head, &frame) {
                    break;
                }
                head = head.wrapping_add(1);
            }
            step().await;
            port.raw_ring().sender.tx_head.set(head);
            if is_served {
                step().await;
                port.collect();
                continue;
            }
            let keeps = self.below(4) == 0;
            if hyperio(&self.m, number, Caller::Instance { keeps })
                .await
                .is_ok()
            {
                port.collect();
            } else {
                port.discard_queued();
                head = port.raw_ring().switch.tx_tail.get();
            }
        }
        place.doubtful.set(None);
        // Of what is queued the I/O thread takes all along; who is killed leaves it.
        while is_served && process.order.get() != Order::Die && port.queued() > 0 {
            step().await;
            port.collect();
        }
        process.senders.set(0);
    }

    pub(super) async fn io_thread(self: Rc<Self>) {
        while !self.io_is_over.get() {
            for number in self.numbers() {
                step().await;
                let port = self.m.port(number);
                let ring = Rc::clone(&self.m.rings.borrow()[number as usize]);
                let is_due = ring.ring().sender.tx_head.get() != port.tx_pos.get();
                if self.place(number).is_served.get() && is_due && is_up(port) {
                    let _ = hyperio(&self.m, number, Caller::IoThread).await;
                }
            }
        }
        self.io_threads.set(0);
    }

    /// Chooses the capabilities of an instance and the first positions of its rings: some rings begin shortly before their
    /// positions wrap.
    pub(super) fn some_form(&self, number: u32) -> Form {
        let position = |bound: u32| match self.below(2) {
            0 => 0,
            _ => 0u32.wrapping_sub(1 + self.below(bound)),
        };
        let mut form = Form {
            begins: Released {
                head: position(1000),
                long: 0,
            },
            ..Form::default()
        };
        if number >= FIRST_MEMBER {
            return form;
        }
        form.long = LongSlots {
            rx: [0, 64, 64, 128][self.below(4) as usize],
            tx: [64, 64, 128, 0][self.below(4) as usize],
        };
        let levels = [Level::Plain, Level::Checksums, Level::Super];
        let highest = if form.long.rx > 0 { 3 } else { 2 };
        form.level = levels[self.below(highest) as usize];
        if form.long.rx > 0 {
            form.begins.long = position(4000);
        }
        form
    }
}
