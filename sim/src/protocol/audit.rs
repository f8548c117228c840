//! Conditions that must hold, whatever the actors do and wherever they are preempted.

use super::drop;
use super::memory::{DROPS, Destination, Memory, Port};
use nfluid_ring::layout::{BLOCK_SLOTS, Released};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A flow at a receiver: the instance, the sender's, and the destination's address.
type Flow = (u32, u32, [u8; 6]);

/// Slots for long frames that were reserved and not released.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// In the ring.
    position: u32,
    /// Positions of the area: the first slot, and that behind the last.
    start: u32,
    end: u32,
    /// No frame lies there: a hole is, or will be, published at the position.
    is_empty: bool,
}

/// Counts what should be counted, and compares the protocol's counters with these counts.
#[derive(Debug)]
pub struct Audit {
    violation: RefCell<Option<String>>,
    /// The last destination of each port.
    destinations: Vec<Cell<Destination>>,
    /// Frames of TX rings that are done with, and copies of flooded ones beyond the first.
    consumed: Cell<u64>,
    copies: Cell<u64>,
    /// Slots that a daemon had reserved and not published when it was killed.
    orphaned: Cell<u64>,
    healed: Cell<u64>,
    /// Frames, and bytes of those that were put into a ring.
    deposited: Cell<u64>,
    deposited_bytes: Cell<u64>,
    /// By port: frames that were received, or lay unread in the ring of an instance that ended, and their bytes.
    got: Vec<Cell<(u64, u64)>>,
    /// By port, in the order of the ring.
    held: Vec<RefCell<Vec<Held>>>,
    /// By port: the position of the area behind the last frame released.
    given_back: Vec<Cell<u32>>,
    /// Counters of ports whose numbers were given to others.
    former: RefCell<Books>,
    last: RefCell<BTreeMap<Flow, u64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Books {
    tx_frames: u64,
    rx_frames: u64,
    tx_bytes: u64,
    rx_bytes: u64,
    tx_more: (u64, u64),
    rx_more: (u64, u64),
    dropped: u64,
    bad_heads: u64,
}

impl Books {
    fn add(&mut self, port: &Port) {
        self.tx_frames += port.tx_frames.get();
        self.rx_frames += port.rx_frames.get();
        self.tx_bytes += port.tx_bytes.get();
        self.rx_bytes += port.rx_bytes.get();
        self.tx_more.0 += port.tx_more_segments.get();
        self.tx_more.1 += port.tx_more_bytes.get();
        self.rx_more.0 += port.rx_more_segments.get();
        self.rx_more.1 += port.rx_more_bytes.get();
        self.dropped +=
            port.drops.iter().map(Cell::get).sum::<u64>() - port.drops[drop::RECLAIMED].get();
        self.bad_heads += port.tx_bad_heads.get();
    }
}

fn count(word: &Cell<u64>, more: u64) {
    word.set(word.get() + more);
}

impl Audit {
    pub(super) fn new(ports: usize) -> Self {
        Audit {
            violation: RefCell::default(),
            destinations: vec![Cell::default(); ports],
            consumed: Cell::default(),
            copies: Cell::default(),
            orphaned: Cell::default(),
            healed: Cell::default(),
            deposited: Cell::default(),
            deposited_bytes: Cell::default(),
            got: vec![Cell::default(); ports],
            held: vec![RefCell::default(); ports],
            given_back: vec![Cell::default(); ports],
            former: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// Notes a violated condition: the first violation is kept.
    pub fn violated(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    /// Returns the first violation.
    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Does everything hold so far?
    pub fn holds(&self) -> bool {
        self.violation.borrow().is_none()
    }

    pub(super) fn consumed(&self, frames: u32) {
        count(&self.consumed, u64::from(frames));
    }

    /// A frame was flooded, and so often counted as entered.
    pub(super) fn flooded(&self, copies: usize) {
        count(&self.copies, copies as u64 - 1);
    }

    pub(super) fn orphaned(&self, slots: u64) {
        count(&self.orphaned, slots);
    }

    pub(super) fn healed(&self, port: u32, position: u32) {
        count(&self.healed, 1);
        self.emptied(port, position);
    }

    /// A frame was put into a ring; or dropped before: then it has no bytes.
    pub(super) fn deposited(&self, bytes: u64) {
        count(&self.deposited, 1);
        count(&self.deposited_bytes, bytes);
    }

    pub(super) fn unread(&self, port: u32, frames: u64, bytes: u64) {
        let got = &self.got[port as usize];
        let before = got.get();
        got.set((before.0 + frames, before.1 + bytes));
    }

    /// Notes a reservation. No two frames that a port holds have a slot in common, and no frame crosses a block.
    pub(super) fn reserved_long(
        &self,
        port: u32,
        position: u32,
        (start, slots): (u32, u32),
        area: u32,
    ) {
        let end = start.wrapping_add(slots);
        let mut held = self.held[port as usize].borrow_mut();
        let is_apart = |other: &Held| {
            start.wrapping_sub(other.end).cast_signed() >= 0
                && end.wrapping_sub(other.start) <= area
        };
        let other = held.iter().find(|other| !is_apart(other));
        let crosses = start % BLOCK_SLOTS as u32 + slots > BLOCK_SLOTS as u32;
        if crosses || other.is_some() {
            self.violated(format!(
                "port {port} has slots {start} to {end} of {area} for position {position}, {other:?} is held"
            ));
        }
        held.push(Held {
            position,
            start,
            end,
            is_empty: false,
        });
    }

    /// A hole is published at a position of a long frame.
    pub(super) fn emptied(&self, port: u32, position: u32) {
        let mut held = self.held[port as usize].borrow_mut();
        let of_hole = held.iter_mut().find(|held| held.position == position);
        if let Some(held) = of_hole {
            held.is_empty = true;
        }
    }

    /// Checks that the owner of a port has released, with each position, the slots for long frames that were reserved with it.
    /// Slots up to the next long frame may be released as well: skipped slots, and those of holes.
    pub fn released(&self, port: u32, released: Released) {
        let given_back = &self.given_back[port as usize];
        let mut held = self.held[port as usize].borrow_mut();
        held.retain(|held| {
            let is_held = held.position.wrapping_sub(released.head).cast_signed() >= 0;
            if !is_held {
                given_back.set(held.end);
            }
            is_held
        });
        let end = given_back.get();
        let frame = held.iter().find(|held| !held.is_empty);
        let last = held.last().map_or(end, |held| held.end);
        let next = frame.map_or(last, |held| held.start);
        if released.long.wrapping_sub(end) > next.wrapping_sub(end) {
            self.violated(format!(
                "port {port} has released {released:?}, and slots {end} to {next} are to be released"
            ));
        }
    }

    /// Notes a new destination of the port. Without a new destination, frames in transit still belong to the last one.
    pub(super) fn note_destination(&self, port: u32, to: Destination) {
        if to != Destination::None {
            self.destinations[port as usize].set(to);
        }
    }

    /// The port's number is another instance's from now on, whose positions begin here.
    pub(super) fn reused(&self, number: u32, port: &Port, begins: Released) {
        self.destinations[number as usize].set(Destination::None);
        self.former.borrow_mut().add(port);
        self.check_deliveries(number, port);
        self.got[number as usize].set((0, 0));
        self.held[number as usize].borrow_mut().clear();
        self.given_back[number as usize].set(begins.long);
    }

    /// Every receiver gets what is delivered to it.
    fn check_deliveries(&self, number: u32, port: &Port) {
        let delivered = (port.rx_frames.get(), port.rx_bytes.get());
        let got = self.got[number as usize].get();
        if delivered != got {
            self.violated(format!("port {number} was delivered {delivered:?} frames and bytes, {got:?} were received or unread at an end"));
        }
    }

    /// Returns the last destination of the port.
    pub(super) fn destination(&self, port: u32) -> Destination {
        self.destinations[port as usize].get()
    }

    /// No frame goes to a port that is not on its sender's switch.
    pub(super) fn published(&self, from: Destination, to: u32) {
        let other = self.destination(to);
        if matches!(from, Destination::Switch(_)) && from != other {
            self.violated(format!(
                "a frame of {from:?} was put into port {to} on {other:?}"
            ));
        }
    }

    /// Each frame arrives once, and behind those of its flow that were sent before.
    pub(super) fn received(
        &self,
        (port, instance): (u32, u32),
        (sender, to): (u32, [u8; 6]),
        number: u64,
        bytes: u64,
    ) {
        self.unread(port, 1, bytes);
        let before = self
            .last
            .borrow_mut()
            .insert((instance, sender, to), number);
        if number == 0 || before.is_some_and(|before| before >= number) {
            self.violated(format!(
                "instance {instance} got frame {number} of instance {sender} to {to:?} after {before:?}"
            ));
        }
    }

    /// When nothing is under way: the books balance, and every receiver has got what was delivered to it.
    pub fn balance(&self, m: &Memory) {
        let mut books = *self.former.borrow();
        for (number, port) in (0..).zip(&m.ports) {
            books.add(port);
            self.check_deliveries(number, port);
        }
        let Books {
            tx_frames,
            rx_frames,
            tx_bytes,
            rx_bytes,
            tx_more,
            rx_more,
            dropped,
            bad_heads,
        } = books;
        let deposited = self.deposited.get();
        let checks = [
            (
                "entered and deposited: delivered or dropped",
                tx_frames + deposited,
                rx_frames + dropped,
            ),
            (
                "bytes sent and deposited: delivered",
                tx_bytes + self.deposited_bytes.get(),
                rx_bytes,
            ),
            ("segments sent: delivered", tx_more.0, rx_more.0),
            ("bytes of segments sent: delivered", tx_more.1, rx_more.1),
            (
                "consumed: entered",
                self.consumed.get(),
                tx_frames.wrapping_sub(self.copies.get()),
            ),
            (
                "reserved by daemons that were killed: healed",
                self.orphaned.get(),
                self.healed.get(),
            ),
            (
                "heads that make no sense, of senders that make sense",
                bad_heads,
                0,
            ),
        ];
        for (what, left, right) in checks {
            if left != right {
                self.violated(format!("{what}: {left}, {right}"));
            }
        }
    }
}

/// Reasons by number, for who compares.
pub fn drops_of(port: &Port) -> [u64; DROPS] {
    std::array::from_fn(|reason| port.drops[reason].get())
}
