//! Conditions that must hold, whatever the actors do and wherever they are preempted.

use super::drop;
use super::memory::{DROPS, Destination, Memory, Port};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A frame of a storm, behind its addresses and type: who has sent it, and the how-many-eth it is of them.
pub const STAMP_AT: usize = 14;
/// Length of a frame of a storm.
pub const STAMPED_LEN: usize = STAMP_AT + 12;

/// Writes the stamp.
pub fn stamp(frame: &mut [u8], sender: u32, number: u64) {
    frame[STAMP_AT..STAMP_AT + 4].copy_from_slice(&sender.to_le_bytes());
    frame[STAMP_AT + 4..STAMPED_LEN].copy_from_slice(&number.to_le_bytes());
}

/// A flow at a receiver: the instance, the sender's, and the destination's address.
type Flow = (u32, u32, [u8; 6]);

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
    deposited: Cell<u64>,
    /// By port: frames that were received, or lay unread in the ring of an instance that ended.
    got: Vec<Cell<u64>>,
    /// Counters of ports whose numbers were given to others.
    former: RefCell<Books>,
    last: RefCell<BTreeMap<Flow, u64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Books {
    tx_frames: u64,
    rx_frames: u64,
    dropped: u64,
    bad_heads: u64,
}

impl Books {
    fn add(&mut self, port: &Port) {
        self.tx_frames += port.tx_frames.get();
        self.rx_frames += port.rx_frames.get();
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
            got: vec![Cell::default(); ports],
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

    pub(super) fn healed(&self) {
        count(&self.healed, 1);
    }

    pub(super) fn deposited(&self) {
        count(&self.deposited, 1);
    }

    pub(super) fn unread(&self, port: u32, frames: u64) {
        count(&self.got[port as usize], frames);
    }

    /// Notes a new destination of the port. Without a new destination, frames in transit still belong to the last one.
    pub(super) fn note_destination(&self, port: u32, to: Destination) {
        if to != Destination::None {
            self.destinations[port as usize].set(to);
        }
    }

    /// The port's number is another instance's from now on.
    pub(super) fn reused(&self, number: u32, port: &Port) {
        self.destinations[number as usize].set(Destination::None);
        self.former.borrow_mut().add(port);
        self.check_deliveries(number, port);
        self.got[number as usize].set(0);
    }

    /// Every receiver gets what is delivered to it.
    fn check_deliveries(&self, number: u32, port: &Port) {
        let (delivered, got) = (port.rx_frames.get(), self.got[number as usize].get());
        if delivered != got {
            self.violated(format!("port {number} was delivered {delivered} frames, {got} were received or unread at an end"));
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

    /// Each frame arrives as it was sent, once, and behind those of its flow that were sent before.
    pub(super) fn received(&self, (port, instance): (u32, u32), frame: &[u8]) {
        count(&self.got[port as usize], 1);
        let (Ok(to), Ok(sender), Ok(number)) = (
            <[u8; 6]>::try_from(&frame[..6]),
            <[u8; 4]>::try_from(frame.get(STAMP_AT..STAMP_AT + 4).unwrap_or_default()),
            <[u8; 8]>::try_from(frame.get(STAMP_AT + 4..STAMPED_LEN).unwrap_or_default()),
        ) else {
            return self.violated(format!(
                "instance {instance} got {frame:?}, which nobody has sent"
            ));
        };
        let (sender, number) = (u32::from_le_bytes(sender), u64::from_le_bytes(number));
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
