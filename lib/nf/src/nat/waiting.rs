//! Fragments that have come before the first one of their datagram, and wait for it (RFC 4787 REQ-14).
//!
//! The treatment of such fragments is not known yet, so outside hosts can have frames stored. The memory for them is
//! bounded: slots of 2 KiB per side, so that outside hosts do not displace inside hosts; slots per source and
//! destination; and time. The oldest fragments give way.

use super::Nat;
use super::clock::Tenths;
use super::fragment::Datagram;
use super::metrics::DropReason;
use super::packet::{Class, Packet};
use super::process::datagram;
use crate::traffic::OnWire;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nfluid_ring::layout::frame_slots;
use nfluid_ring::{Frame, Offload, Outbox};

/// Seconds that a fragment waits: RFC 6146 section 4, `FRAGMENT_MIN`.
pub(super) const WAIT_SECS: u32 = 2;
/// Most slots of one source to one destination: a datagram of 64 KiB in reverse order and some more.
const PAIR_MAX: usize = 64;

#[derive(Debug)]
struct Entry {
    datagram: Datagram,
    expires: Tenths,
    bytes: Vec<u8>,
}

impl Entry {
    fn slots(&self) -> usize {
        frame_slots(self.bytes.len())
    }
}

/// The fragments that wait on one side, in the order in which they came. A frame of an ordinary length takes one slot, a
/// jumbo frame several.
#[derive(Debug)]
pub(super) struct Waiting {
    frames: VecDeque<Entry>,
    /// Slots of all frames.
    slots: usize,
    slots_max: usize,
}

impl Waiting {
    pub(super) fn new(slots_max: usize) -> Waiting {
        Waiting {
            frames: VecDeque::new(),
            slots: 0,
            slots_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the time at which the oldest packet has waited long enough.
    pub(super) fn next_end(&self) -> Option<Tenths> {
        self.frames.front().map(|frame| frame.expires)
    }

    /// Keeps a copy of a frame. Returns how many older ones have given way; `None`: none may wait.
    pub(super) fn add(&mut self, now: Tenths, datagram: Datagram, bytes: &[u8]) -> Option<u64> {
        let slots = frame_slots(bytes.len());
        if slots > self.slots_max {
            return None;
        }
        let is_of_pair = |frame: &&Entry| frame.datagram.has_ends_of(&datagram);
        let of_pair = self.frames.iter().filter(is_of_pair).map(Entry::slots);
        let mut of_pair: usize = of_pair.sum();
        let mut displaced = 0;
        while of_pair + slots > PAIR_MAX {
            let oldest = self.frames.iter().position(|frame| is_of_pair(&frame));
            of_pair -= self.remove(oldest?)?.slots();
            displaced += 1;
        }
        while self.slots + slots > self.slots_max {
            self.remove(0)?;
            displaced += 1;
        }
        self.slots += slots;
        self.frames.push_back(Entry {
            datagram,
            expires: now.plus_secs(WAIT_SECS),
            bytes: bytes.to_vec(),
        });
        Some(displaced)
    }

    fn remove(&mut self, at: usize) -> Option<Entry> {
        let removed = self.frames.remove(at)?;
        self.slots -= removed.slots();
        Some(removed)
    }

    /// Takes out the oldest frame of a datagram.
    pub(super) fn take(&mut self, now: Tenths, datagram: Datagram) -> Option<Vec<u8>> {
        let is_of_it = |frame: &Entry| frame.datagram == datagram && now < frame.expires;
        let at = self.frames.iter().position(is_of_it)?;
        Some(self.remove(at)?.bytes)
    }

    /// Removes fragments that have waited long enough; returns their number.
    pub(super) fn expire(&mut self, now: Tenths) -> u64 {
        let mut count = 0;
        while self.next_end().is_some_and(|end| end <= now) {
            self.remove(0);
            count += 1;
        }
        count
    }
}

impl Nat {
    /// Keeps a fragment whose first one has not come. Returns false if none may wait.
    #[cold]
    pub(super) fn let_wait(&mut self, now: Tenths, frame: &Frame<'_>, packet: &Packet) -> bool {
        let side = usize::from(frame.in_port() & 1);
        let Some(datagram) = datagram(frame, packet) else {
            return false;
        };
        let displaced = self.waiting[side].add(now, datagram, frame.bytes());
        let displaced_count = displaced.unwrap_or_default();
        self.counters
            .dropped_many(DropReason::FragmentDisplaced, displaced_count);
        displaced.is_some()
    }

    /// Sends the fragments of a datagram that have waited, behind their first one: the last of the frames decided
    /// about. Drops them if that has not `passed`.
    #[cold]
    pub(super) fn release(
        &mut self,
        now: Tenths,
        datagram: Datagram,
        passed: bool,
        decided: &[Frame<'_>],
        outbox: &mut dyn Outbox,
    ) {
        let Some(first) = decided.last() else {
            return;
        };
        let from = first.in_port();
        while let Some(mut bytes) = self.waiting[usize::from(from & 1)].take(now, datagram) {
            let course = self.fragments.recall(self.state.hasher, datagram, now);
            let Some(course) = course.filter(|_| passed) else {
                self.counters.dropped(DropReason::FragmentRefused);
                continue;
            };
            let arrived = OnWire::of_bytes(bytes.len(), Offload::NONE);
            let packet = Packet::parse(&bytes);
            debug_assert_eq!(packet.class, Class::LaterFragment, "only those wait");
            self.take_course(from, &mut bytes, &packet, course);
            outbox.commit(decided);
            let port = course.out_port;
            let whole = (&bytes[..], Offload::NONE);
            let sent = match self.send_in_fragments(port, whole, &packet, outbox) {
                None if outbox.emit(port, &bytes) => Ok(()),
                None => Err(DropReason::NoRoom),
                Some(sent) => sent,
            };
            match sent {
                Ok(()) => self.counters.forwarded.count(from, arrived),
                Err(reason) => self.counters.dropped(reason),
            }
        }
    }
}
