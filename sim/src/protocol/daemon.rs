//! The daemon's side: `lib/switch/src/{ports,destination,fdb,quiet,registry,gaps,deposit,group}.rs`, and `reclaim`.

mod deposit;
mod gaps;

pub use deposit::Content;

use super::deliver::{DEST_LINK, DEST_SWITCH, WAY_GENERATION_SHIFT, WAY_KIND_SHIFT};
use super::drop;
use super::fdb::{OWNER_PINNED, counts};
use super::instance::Instance;
use super::memory::{
    Destination, Entry, Memory, PORT_LEARN, PORT_PINNED, PORT_UP, Pool, Port, Word, add, load,
    store, swap,
};
use super::mutation::Mutation;
use super::schedule::step;
use nfluid_ring::layout::{
    FRAME_MIN, Released, Ring, rx_desc, rx_desc_of, rx_desc_slot, rx_desc_with_slot, tx_desc,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A process of the daemon: what it knows ends with it.
#[derive(Debug)]
pub struct Daemon {
    m: Rc<Memory>,
    /// Threads that deposit frames; -1: a thread waits until no thread deposits. As the lock in `lib/switch`.
    depositing: Cell<i32>,
    /// Ports that have left a switch; all, if another daemon ran before.
    left: RefCell<(bool, BTreeSet<u32>)>,
    seen: RefCell<BTreeMap<u32, (u64, Option<u32>)>>,
}

/// How a port is entered.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// As the first six bytes of a little-endian load.
    pub mac: u64,
    /// Source addresses are learned; else they must be its own.
    pub learns: bool,
    /// Addresses that it may teach.
    pub fdb_limit: u32,
}

fn destination(way: u64) -> Destination {
    match way >> WAY_KIND_SHIFT & 0xff {
        DEST_LINK => Destination::Link(way as u32),
        DEST_SWITCH => Destination::Switch(way as u32),
        _ => Destination::None,
    }
}

impl Daemon {
    /// Begins a process. `others`: one has run before.
    pub fn start(m: &Rc<Memory>, others: bool) -> Rc<Self> {
        Rc::new(Daemon {
            m: Rc::clone(m),
            depositing: Cell::new(0),
            left: RefCell::new((others, BTreeSet::new())),
            seen: RefCell::default(),
        })
    }

    fn port(&self, number: u32) -> &Port {
        self.m.port(number)
    }

    /// As `Switch::set_up`.
    pub async fn set_up(&self, number: u32, up: bool) {
        step().await;
        let flags = &self.port(number).flags;
        flags.set(if up {
            flags.get() | PORT_UP
        } else {
            flags.get() & !PORT_UP
        });
    }

    async fn set_destination(&self, number: u32, to: Destination) {
        let way = &self.port(number).way;
        let (kind, dest) = match to {
            Destination::None => (0, 0),
            Destination::Link(port) => (DEST_LINK, port),
            Destination::Switch(switch) => (DEST_SWITCH, switch),
        };
        let generation =
            (load(way).await >> WAY_GENERATION_SHIFT).wrapping_add(1) << WAY_GENERATION_SHIFT;
        if self.m.has(Mutation::DestinationInTwoWords) {
            let old = way.get() >> WAY_KIND_SHIFT & 0xff;
            store(way, generation | old << WAY_KIND_SHIFT | u64::from(dest)).await;
        }
        store(way, generation | kind << WAY_KIND_SHIFT | u64::from(dest)).await;
        self.m.audit.note_destination(number, to);
    }

    /// As `Switch::connect`.
    pub async fn connect(&self, number: u32, to: Destination) {
        let before = destination(load(&self.port(number).way).await);
        if before != to {
            if let Destination::Switch(switch) = before {
                self.leave_switch(switch, number).await;
            }
            if to != Destination::None {
                self.await_what_was_left(number).await;
            }
            self.set_destination(number, to).await;
        }
        if let Destination::Switch(switch) = to {
            step().await;
            let mut members = self.m.switches[switch as usize].borrow_mut();
            if !members.contains(&number) {
                members.push(number);
            }
        }
    }

    async fn leave_switch(&self, switch: u32, number: u32) {
        if self.m.has(Mutation::LeftHalfway) {
            self.set_destination(number, Destination::None).await;
        }
        self.leave_members(switch, number).await;
        self.forget(number).await;
        self.set_destination(number, Destination::None).await;
        self.left.borrow_mut().1.insert(number);
        self.forget(number).await;
    }

    async fn leave_members(&self, switch: u32, number: u32) {
        step().await;
        self.m.switches[switch as usize]
            .borrow_mut()
            .retain(|it| *it != number);
    }

    async fn forget(&self, number: u32) {
        self.remove_entries(|owner| owner as u32 == number).await;
    }

    /// As `Switch::fdb_sweep`: removes what no longer counts.
    pub async fn sweep(&self) {
        let mut doomed = BTreeSet::new();
        for (_, entry) in self.entries() {
            let owner = load(&entry.owner).await;
            if !counts(&self.m, owner).await {
                doomed.insert(owner);
            }
        }
        self.remove_entries(|owner| doomed.contains(&owner)).await;
    }

    fn entries(&self) -> Vec<((u32, u64), Rc<Entry>)> {
        let fdb = self.m.fdb.borrow();
        fdb.iter()
            .map(|(key, entry)| (*key, Rc::clone(entry)))
            .collect()
    }

    async fn remove_entries(&self, is_doomed: impl Fn(u64) -> bool) {
        for (key, entry) in self.entries() {
            if is_doomed(load(&entry.owner).await) {
                self.take_entry(key).await;
            }
        }
    }

    async fn take_entry(&self, key: (u32, u64)) {
        step().await;
        let Some(entry) = self.m.fdb.borrow_mut().remove(&key) else {
            return;
        };
        let owner = entry.owner.get();
        let port = self.port(owner as u32);
        if owner & OWNER_PINNED == 0 {
            step().await;
            port.fdb_used.set(port.fdb_used.get().saturating_sub(1));
        }
        store(&port.last_source, 0).await;
    }

    /// As `Switch::pin_address`.
    pub async fn pin_address(&self, switch: u32, address: u64, number: u32) {
        self.take_entry((switch, address)).await;
        step().await;
        let owner = Cell::new(u64::from(number) | OWNER_PINNED);
        self.m
            .fdb
            .borrow_mut()
            .insert((switch, address), Rc::new(Entry { owner }));
    }

    /// Waits for calls of I/O threads, which may make those of any port.
    async fn await_calls(&self) {
        step().await;
        let calls = self.m.ports.iter().map(|port| (port, port.tx_calls.get()));
        let under_way: Vec<_> = calls.filter(|(port, _)| port.busy.get() != 0).collect();
        for (port, calls) in under_way {
            while load(&port.busy).await != 0 && load(&port.tx_calls).await.wrapping_sub(calls) < 2
            {
            }
        }
    }

    async fn await_quiet(&self) {
        self.m.synchronize().await;
        self.await_calls().await;
    }

    async fn await_what_was_left(&self, number: u32) {
        let (others, is_left) = {
            let left = self.left.borrow();
            (left.0, left.1.contains(&number))
        };
        let is_waited = !self.m.has(Mutation::DestinationInTwoWords)
            && !self.m.has(Mutation::NoMembershipCheck)
            && !self.m.has(Mutation::MoveDoesNotWait);
        if is_waited && (others || is_left) {
            self.await_quiet().await;
            *self.left.borrow_mut() = (false, BTreeSet::new());
        }
    }

    /// As `Switch::enter`, of one instance.
    pub async fn enter(&self, instance: &Instance, spec: Spec) {
        let number = instance.number;
        let port = self.port(number);
        step().await;
        let was_up = port.flags.replace(0) & PORT_UP != 0;
        if instance.group > 0 {
            self.join_group(instance).await;
        }
        self.replace(number, instance).await;
        if was_up {
            self.await_quiet().await;
        }
        port.mask.set(instance.slots - 1);
        port.pool.set(number);
        port.rx_base.set(0);
        port.long_base.set(instance.rx_long_base());
        port.long_slots.set(instance.long.rx);
        port.group.set(instance.group);
        self.set_destination(number, Destination::None).await;
        self.m.audit.reused(number, port, instance.begins);
        port.mac.set(spec.mac);
        port.fdb_limit.set(spec.fdb_limit);
        for word in [&port.busy, &port.fdb_used, &port.fdb_refused] {
            word.set(0);
        }
        let counters = [
            &port.tx_frames,
            &port.tx_bytes,
            &port.tx_calls,
            &port.tx_bad_heads,
            &port.last_source,
            &port.rx_frames,
            &port.rx_bytes,
            &port.tx_more_segments,
            &port.tx_more_bytes,
            &port.rx_more_segments,
            &port.rx_more_bytes,
        ];
        for counter in counters.into_iter().chain(&port.drops) {
            counter.set(0);
        }
        port.tx_pos.set(instance.begins.head);
        port.rx_reserved.set(instance.begins.word());
        let learns = if spec.learns { PORT_LEARN } else { PORT_PINNED };
        store(&port.flags, PORT_UP | learns | instance.flags()).await;
    }

    /// Puts an instance's maps into the tables.
    async fn replace(&self, number: u32, instance: &Instance) {
        step().await;
        self.m.pools.borrow_mut()[number as usize] = Rc::clone(&instance.pool);
        step().await;
        self.m.rings.borrow_mut()[number as usize] = Rc::clone(&instance.ring);
    }

    /// As `Switch::remove_ids` and what follows, of one instance; nothing is known of it but its numbers.
    pub async fn remove(&self, instance: &Instance) {
        let number = instance.number;
        let port = self.port(number);
        store(&port.flags, 0).await;
        let before = destination(load(&port.way).await);
        if let Destination::Switch(switch) = before {
            self.leave_members(switch, number).await;
            self.forget(number).await;
        }
        self.set_destination(number, Destination::None).await;
        self.forget(number).await;
        step().await;
        self.m.pools.borrow_mut()[number as usize] = Rc::clone(&self.m.placeholder.1);
        step().await;
        self.m.rings.borrow_mut()[number as usize] = Rc::clone(&self.m.placeholder.0);
        self.m.synchronize().await;
        if !self.m.has(Mutation::NumberReusedAtOnce) {
            self.await_calls().await;
        }
        if instance.group > 0 {
            for owner in &self.m.owners[instance.group as usize] {
                swap(owner, number + 1, 0).await;
            }
        }
    }

    async fn join_group(&self, instance: &Instance) {
        let me = instance.number + 1;
        let mut need = 2 * instance.slots;
        for owner in &self.m.owners[instance.group as usize] {
            if need > 0 && swap(owner, 0, me).await == 0 {
                need -= 1;
            }
        }
        if need > 0 {
            self.m
                .audit
                .violated(format!("{need} slots of a group are nobody's"));
        }
        self.deal(instance).await;
    }

    /// As `Group::deal`.
    async fn deal(&self, instance: &Instance) {
        let mut slots = instance.owned(&self.m).into_iter();
        let ring = instance.ring.ring();
        for (desc, slot) in ring.rx.iter().zip(&mut slots).take(instance.slots as usize) {
            step().await;
            store(desc, rx_desc_with_slot(desc.get(), slot)).await;
        }
        let first = load(&ring.switch.tx_tail).await;
        for (i, slot) in (0..instance.slots).zip(&mut slots) {
            let index = first.wrapping_add(i) & (instance.slots - 1);
            store(&ring.tx[index as usize], tx_desc(0, slot)).await;
        }
    }

    /// As `Switch::reclaim`, of one instance whose process is gone. `taken`: the position up to which it had got frames.
    pub async fn reclaim(&self, instance: &Instance, taken: u32) {
        let port = self.port(instance.number);
        let ring = instance.ring.ring();
        self.set_up(instance.number, false).await;
        if instance.group > 0 {
            self.m.synchronize().await;
            self.await_calls().await;
        } else if load(&port.busy).await != 0 {
            self.await_calls().await;
        }
        let reserved = load(&port.rx_reserved).await;
        let end = Released::of(reserved).head;
        let mut holes = 0;
        if !self.m.has(Mutation::ReclaimDoesNotWait) {
            holes = self.fill_gaps(instance).await;
        }
        let head = Released::of(load(&ring.receiver.rx_released).await).head;
        let lost = u64::from(used(end, head, instance.slots));
        add(&port.drops[drop::RECLAIMED], lost.saturating_sub(holes)).await;
        step().await;
        let (frames, bytes) = unread(instance, end, taken);
        self.m.audit.unread(instance.number, frames, bytes);
        let released = if self.m.has(Mutation::ReclaimForgetsLong) {
            let long = Released::of(ring.receiver.rx_released.get()).long;
            Released { head: end, long }.word()
        } else {
            reserved
        };
        ring.receiver.rx_released.set(released);
        self.m
            .audit
            .released(instance.number, Released::of(released));
        let consumed = load(&port.tx_pos).await;
        store(&ring.sender.tx_head, consumed).await;
        store(&ring.switch.tx_tail, consumed).await;
        if instance.group > 0 {
            self.deal(instance).await;
        }
    }
}

/// Frames that were published and neither taken nor released, and their bytes.
pub(super) fn unread(instance: &Instance, reserved: u32, taken: u32) -> (u64, u64) {
    let ring = instance.ring.ring();
    let head = Released::of(ring.receiver.rx_released.get()).head;
    let is_released = head.wrapping_sub(taken).cast_signed() > 0;
    let first = if is_released { head } else { taken };
    let left = reserved.wrapping_sub(first);
    let positions =
        (0..if left > instance.slots { 0 } else { left }).map(|i| first.wrapping_add(i));
    let words = positions.map(|position| {
        let index = position & (instance.slots - 1);
        (position, ring.rx[index as usize].get())
    });
    let lengths = words.filter_map(|(position, word)| {
        let (len, sequence) = rx_desc(word);
        let is_frame = sequence == position.wrapping_add(1) && usize::from(len) >= FRAME_MIN;
        is_frame.then_some(u64::from(len))
    });
    lengths.fold((0, 0), |(frames, bytes), len| (frames + 1, bytes + len))
}

fn used(reserved: u32, head: u32, slots: u32) -> u32 {
    reserved.wrapping_sub(head).min(slots)
}
