//! The end of a run: all actors end, and all conditions are checked.

use super::frames::{Beside, STAMPED_LEN, Stamped};
use super::*;
use nfluid_ring::layout::{FRAME_MAX, LONG_MAX, Released, tx_desc_slot};
use nfluid_ring::offload::Offload;

impl Storm {
    /// Ends all actors, and checks all conditions.
    pub(super) async fn end(self: &Rc<Self>, daemon: &Daemon) {
        self.is_over.set(true);
        for place in &self.places {
            while place.process.borrow().senders.get() > 0 || place.fed.get() > 0 {
                step().await;
            }
        }
        self.io_is_over.set(true);
        while self.io_threads.get() > 0 {
            step().await;
        }
        for number in self.numbers().chain(self.numbers()).chain(self.numbers()) {
            daemon.heal(number).await;
        }
        for number in self.numbers() {
            let place = self.place(number);
            // Longer than an actor is starved.
            let mut patience = 100_000;
            while place.taken.get() != self.m.port(number).rx_reserved.get() as u32 && patience > 0
            {
                patience -= 1;
                step().await;
            }
            if patience == 0 {
                self.m
                    .audit
                    .violated(format!("port {number} waits for ever: {}", self.waits()));
            }
            self.stop(number, Order::Leave).await;
            self.check_released(number);
        }
        self.m.audit.balance(&self.m);
        self.check_addresses();
        self.check_slots();
        self.probe(daemon).await;
    }

    /// Every position and every slot for long frames has been given back.
    fn check_released(&self, number: u32) {
        let ring = Rc::clone(&self.place(number).instance.borrow().ring);
        let released = ring.ring().receiver.rx_released.get();
        let reserved = self.m.port(number).rx_reserved.get();
        if released != reserved {
            let [released, reserved] = [released, reserved].map(Released::of);
            self.m.audit.violated(format!(
                "port {number} has released {released:?} of {reserved:?}, which are reserved"
            ));
        }
    }

    /// Each address that counts in the FDB was learned from the present instance, on its present switch.
    pub(super) fn check_addresses(&self) {
        for ((switch, address), entry) in self.m.fdb.borrow().iter() {
            let owner = entry.owner.get();
            let number = owner as u32;
            let is_there = self.place(number).wants.get() == Destination::Switch(*switch);
            let bytes = address.to_le_bytes();
            let serial = u32::from(u16::from_le_bytes([bytes[2], bytes[3]]));
            let is_its = bytes[1] != 9 || serial == self.place(number).serial.get();
            if alone(counts(&self.m, owner)) && !(is_there && is_its) {
                self.m.audit.violated(format!(
                    "switch {switch} has {bytes:?} on port {number}, where it is not"
                ));
            }
        }
        for (switch, members) in (0..).zip(&self.m.switches) {
            let is_there =
                |number: &u32| self.place(*number).wants.get() == Destination::Switch(switch);
            if !members.borrow().iter().all(is_there) {
                self.m.audit.violated(format!(
                    "switch {switch} has {members:?}, not all of which are there"
                ));
            }
        }
    }

    /// Each member has as many slots as it was given.
    pub(super) fn check_slots(&self) {
        for number in FIRST_MEMBER..PLACES {
            let owned = self.place(number).instance.borrow().owned(&self.m).len();
            if owned != 2 * SLOTS as usize {
                self.m
                    .audit
                    .violated(format!("member {number} has {owned} slots"));
            }
        }
    }

    /// Every instance on a switch reaches all others there.
    pub(super) async fn probe(&self, daemon: &Daemon) {
        for number in FIRST_MEMBER..PLACES {
            // A process that attaches to a member is given its slots.
            let (instance, taken) = (
                self.place(number).instance.borrow().clone(),
                self.place(number).taken.get(),
            );
            daemon.reclaim(&instance, taken).await;
            daemon.set_up(number, true).await;
        }
        let mut ports: Vec<_> = self
            .places
            .iter()
            .map(|place| place.instance.borrow().attach())
            .collect();
        for (from, to) in self
            .numbers()
            .flat_map(|from| self.numbers().map(move |to| (from, to)))
        {
            let (place, wants) = (self.place(from), self.place(to).wants.get());
            let is_switch = self.m.port(from).way.get() >> WAY_KIND_SHIFT & 0xff == DEST_SWITCH;
            if from == to || !is_switch || place.wants.get() != wants {
                continue;
            }
            self.probe_one(&mut ports, from, (to, STAMPED_LEN)).await;
            let area = |number: u32| self.place(number).instance.borrow().long;
            if area(from).tx > 0 && area(to).rx > 0 {
                self.probe_one(&mut ports, from, (to, LONG_MAX)).await;
            }
        }
    }

    async fn probe_one(&self, ports: &mut [[Port; 2]], from: u32, (to, len): (u32, usize)) {
        let place = self.place(from);
        let [_, sender] = &mut ports[from as usize];
        let sent = Stamped {
            dst: mac_of(to),
            src: mac_of(from),
            sender: place.serial.get(),
            number: self.next(),
            len,
            beside: Beside::Nothing,
        };
        let is_queued = if len > FRAME_MAX {
            sender.send_long(|_| (len, Offload::NONE))
        } else {
            sender.send(|_| len)
        };
        assert!(is_queued, "nothing else is queued");
        let head = &sender.raw_ring().sender.tx_head;
        let desc = &sender.raw_ring().tx[(head.get() & (SLOTS - 1)) as usize];
        let pool = Rc::clone(&place.instance.borrow().pool);
        sent.write(&pool, tx_desc_slot(desc.get()));
        head.set(head.get().wrapping_add(1));
        let sent_to = hyperio(&self.m, from, Caller::Instance { keeps: false }).await;
        sender.collect();
        let [receiver, _] = &mut ports[to as usize];
        let arrived = receiver.take_slot();
        receiver.release();
        self.note_released(to, receiver);
        let pool = Rc::clone(&self.place(to).instance.borrow().pool);
        let arrived = arrived.map(|it| Stamped::arrived(&pool, it.slot, usize::from(it.len)));
        if sent_to.is_err() || arrived != Some(Ok(sent)) {
            self.m.audit.violated(format!(
                "port {from} does not reach port {to}: {sent_to:?}, {arrived:?} of {sent:?}"
            ));
        }
    }

    /// For who looks why a run does not end.
    pub(super) fn waits(&self) -> String {
        let of = |number: u32| {
            let (port, place) = (self.m.port(number), self.place(number));
            let process = place.process.borrow();
            format!(
                "{number}: {:?}, {:?}, taken {}, reserved {}, busy {}, senders {}, receivers {}; ",
                place.record.get(),
                place.wants.get(),
                place.taken.get(),
                port.rx_reserved.get(),
                port.busy.get(),
                process.senders.get(),
                process.receivers.get(),
            )
        };
        self.numbers().map(of).collect()
    }
}
