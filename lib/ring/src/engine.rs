//! The loop body of a network function: take a batch from a port, let the NF decide, hand the sent frames to the
//! switch, release the slots.
//!
//! A frame that goes on is not copied here: its TX descriptor names the RX slot in which it lies.
//! The slot is released only after the call in which the switch has copied it to its receiver. An I/O
//! thread makes that call later: until then the slots are held.

use crate::batch::{Action, Batch, Frame, Outbox};
use crate::layout::{BATCH_MAX, FRAME_MIN, LONG_MAX, SLOT_SIZE, room_slots};
use crate::offload::{OFFLOAD_BYTES, Offload};
use crate::port::{Port, PortsOutbox, Received, WhenFull};
use crate::turn::Turns;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Counters of the frames of all batches, by decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Frames received.
    pub received: u64,
    /// Frames sent on.
    pub forwarded: u64,
    /// Frames that the NF dropped.
    pub discarded: u64,
    /// Frames sent to a port that the instance does not have.
    pub no_such_port: u64,
    /// Frames sent to a port whose ring was full: an I/O thread has not consumed it.
    pub no_room: u64,
    /// Batches.
    pub batches: u64,
}

/// Runs an NF over the ports of one thread.
#[derive(Debug, Default)]
pub struct Engine {
    stats: EngineStats,
    /// In the order in which they were handed over; at most one for each frame in the TX rings.
    held: VecDeque<Held>,
    /// Looks in a row that found no frame.
    empty_looks: usize,
    turns: Turns,
    seen: Seen,
}

/// The slots of a batch. In a shared pool, other members choose the slot of a frame, and no two frames of a batch may
/// be in the same slot.
#[derive(Debug, Default)]
struct Seen {
    batch: u32,
    /// Per slot, the batch that had it last.
    slots: Vec<u32>,
}

impl Seen {
    fn start(&mut self, slots: u32) {
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 || self.slots.len() != slots as usize {
            self.slots.clear();
            self.slots.resize(slots as usize, 0);
            self.batch = 1;
        }
    }

    fn has(&self, slot: u32) -> bool {
        self.slots.get(slot as usize) == Some(&self.batch)
    }

    fn is_new(&mut self, slot: u32) -> bool {
        let last = self.slots.get_mut(slot as usize);
        last.is_some_and(|last| std::mem::replace(last, self.batch) != self.batch)
    }
}

/// RX slots in which frames lie that an I/O thread has not yet consumed.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The port, and the position up to which its slots are released when nothing holds them.
    input: u8,
    position: u32,
    /// The reason why the frames are held: frames were queued on this port before this position.
    output: u8,
    until: u32,
}

impl Engine {
    /// A new engine.
    pub fn new() -> Self {
        Engine::default()
    }

    /// Returns the counters.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Takes at most [`BATCH_MAX`] frames from port `input`, and no more than can be handled within a turn,
    /// lets `decide` handle them, and sends. After a turn others on this core may run before it returns.
    /// Returns the number of frames taken.
    pub fn run_once(
        &mut self,
        ports: &mut [Port],
        input: u8,
        decide: &mut dyn FnMut(&mut Batch<'_, '_>),
    ) -> usize {
        let most = self.collect(ports).min(self.turns.batch());
        let Some(port) = ports.get_mut(usize::from(input)) else {
            return 0;
        };
        let mut taken: ArrayVec<Received, BATCH_MAX> = ArrayVec::new();
        let mut bytes = 0;
        let is_shared = port.pool().is_shared();
        if is_shared {
            self.seen.start(port.pool().slots());
        }
        while taken.len() < most {
            let Some(received) = port.take() else { break };
            if is_shared && !self.seen.is_new(received.slot) {
                continue;
            }
            port.pool().prefetch(received.slot);
            bytes += u64::from(received.len);
            taken.push(received);
        }
        if taken.is_empty() {
            self.release_holes(ports, input);
            self.empty_looks += 1;
            if self.empty_looks >= ports.len() {
                self.turns.idle();
            }
            if self.empty_looks > LOOKS_BEFORE_RINGING * ports.len() {
                // The thread does not sleep, else the doorbell would have rung.
                ring_all(ports);
            }
            return 0;
        }
        self.empty_looks = 0;
        self.turns.start();
        // This thread has more work before it sleeps: peers on other cores need not wait for that.
        ports.iter_mut().for_each(Port::ring_peer);
        let port = &mut ports[usize::from(input)];
        port.count_received(taken.len() as u64, bytes);
        self.stats.received += taken.len() as u64;
        self.stats.batches += 1;
        self.decide(&taken, input, ports, decide);
        flush_all(ports);
        self.release(ports, input);
        if self.turns.is_over(taken.len()) {
            // The receiver of these frames may be the next thread to run.
            ring_all(ports);
            self.turns.pass();
        }
        taken.len()
    }

    /// Lets `decide` handle a frame that [`Port::receive_offload`] took out of the ring of port `input` before, with what
    /// is still to be done to it. The frame is copied, and sent from a slot of the port by which it leaves, when that
    /// port is flushed.
    pub fn run_copy(
        &mut self,
        ports: &mut [Port],
        input: u8,
        (frame, offload): (&[u8], Offload),
        decide: &mut dyn FnMut(&mut Batch<'_, '_>),
    ) {
        if !(FRAME_MIN..=LONG_MAX).contains(&frame.len()) {
            return;
        }
        let mut slots = vec![0; room_slots(frame.len()) * SLOT_SIZE - OFFLOAD_BYTES];
        slots[..frame.len()].copy_from_slice(frame);
        let mut frames: ArrayVec<Frame<'_>, BATCH_MAX> = ArrayVec::new();
        let mut copy = Frame::new(&mut slots, frame.len() as u16, input);
        copy.set_offload(offload);
        frames.push(copy);
        let mut outbox = PortsOutbox(ports);
        decide(&mut Batch::new(&mut frames, &mut outbox));
        self.stats.received += 1;
        self.stats.batches += 1;
        for frame in &frames {
            match frame.action() {
                Action::Send(out) if outbox.emit_offload(out, frame.bytes(), frame.offload()) => {
                    self.stats.forwarded += 1;
                }
                // A port that cannot send counts that itself.
                Action::Send(out) if usize::from(out) < outbox.0.len() => {}
                Action::Send(_) => self.stats.no_such_port += 1,
                Action::Drop => self.stats.discarded += 1,
            }
        }
    }

    /// Hands over the queued frames and notes the frames that I/O threads have consumed. Returns true if none of all
    /// frames taken so far lies in a slot any more.
    pub fn settle(&mut self, ports: &mut [Port]) -> bool {
        flush_all(ports);
        ring_all(ports);
        self.collect(ports);
        self.held.is_empty() && ports.iter().all(|port| port.queued() == 0)
    }

    /// Releases what I/O threads have consumed. Returns how many frames can be queued on any port.
    fn collect(&mut self, ports: &mut [Port]) -> usize {
        let mut free = BATCH_MAX as u32;
        for port in ports.iter_mut().filter(|port| port.queued() > 0) {
            port.collect();
            free = free.min(port.free());
        }
        while let Some(first) = self.held.front().copied() {
            let output = ports.get(usize::from(first.output));
            if output.is_some_and(|port| !port.is_consumed(first.until)) {
                break;
            }
            self.held.pop_front();
            if let Some(port) = ports.get_mut(usize::from(first.input))
                && !self.held.front().is_some_and(|next| next.holds_as(&first))
            {
                port.release_to(first.position);
            }
        }
        free as usize
    }

    /// Releases holes that no frame precedes. Holes behind held slots are released with those slots.
    fn release_holes(&mut self, ports: &mut [Port], input: u8) {
        let last = self.held.iter().rev().find(|held| held.input == input);
        let position = ports[usize::from(input)].taken();
        if last.is_some_and(|held| held.position != position) {
            self.release(ports, input);
        }
    }

    /// Gives the slots of the taken frames back, or notes the reason why they are held.
    fn release(&mut self, ports: &mut [Port], input: u8) {
        let outputs = ports.iter().zip(0..).filter(|(port, _)| port.queued() > 0);
        let position = ports[usize::from(input)].taken();
        let before = self.held.len();
        self.held.extend(outputs.map(|(port, output)| Held {
            input,
            position,
            output,
            until: port.tx_next(),
        }));
        if self.held.is_empty() {
            ports[usize::from(input)].release();
        } else if self.held.len() == before {
            // Only the frames before these holes hold them.
            self.held.push_back(Held {
                input,
                position,
                output: input,
                until: ports[usize::from(input)].tx_next(),
            });
        }
    }

    /// Lets the NF decide, and queues the frames that the NF sends, in the order that [`crate::batch`] promises.
    fn decide(
        &mut self,
        taken: &[Received],
        input: u8,
        ports: &mut [Port],
        decide: &mut dyn FnMut(&mut Batch<'_, '_>),
    ) {
        let port = &ports[usize::from(input)];
        let pool = Arc::clone(port.pool());
        let mut frames: ArrayVec<Frame<'_>, BATCH_MAX> = ArrayVec::new();
        for received in taken {
            // SAFETY: the slots were published to us, are all different (positions of one ring, fewer than the ring
            // has slots, and parts of its area for long frames that follow each other; of a shared pool, the slots that
            // were not seen before), and are not released before this
            // batch ends. Other members of the group could write to the slots; by joining the group the instance has
            // declared to trust that they do not.
            if let Some(buffer) = unsafe { pool.buffer(received.slot, usize::from(received.slots)) }
            {
                let mut frame = Frame::new(buffer, received.len, input);
                frame.set_offload(port.offload_of(*received));
                frames.push(frame);
            }
        }
        let mut outbox = BatchOutbox {
            ports: PortsOutbox(ports),
            taken,
            stats: &mut self.stats,
            seen: pool.is_shared().then_some(&self.seen),
            committed: 0,
        };
        decide(&mut Batch::new(&mut frames, &mut outbox));
        outbox.commit(&frames);
    }
}

/// The ports of a batch: frames that the NF makes are queued behind the frames that the NF has decided about.
struct BatchOutbox<'a> {
    ports: PortsOutbox<'a>,
    /// The received frames of the batch.
    taken: &'a [Received],
    stats: &'a mut EngineStats,
    /// The slots of the batch, if the pool is shared.
    seen: Option<&'a Seen>,
    /// Number of frames of the batch that have been queued, or dropped.
    committed: usize,
}

impl Outbox for BatchOutbox<'_> {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool {
        let Some(port) = self.ports.with_room(port, frame.len()) else {
            return false;
        };
        // If the pool is shared, slots of committed frames come back while the NF still has those frames, and others
        // in the group can have any slot come back.
        let in_use = |seen: &Seen| port.next_tx_slot().is_some_and(|slot| seen.has(slot));
        if self.seen.is_some_and(in_use) {
            return false;
        }
        port.emit(frame, offload)
    }

    fn commit(&mut self, decided: &[Frame<'_>]) {
        let decided = decided.iter().zip(self.taken).skip(self.committed);
        for (frame, received) in decided {
            self.committed += 1;
            let Action::Send(out) = frame.action() else {
                self.stats.discarded += 1;
                continue;
            };
            let Some(port) = self.ports.0.get_mut(usize::from(out)) else {
                self.stats.no_such_port += 1;
                continue;
            };
            if !port.can_queue() {
                // Counted by the port; its frames are gone, as for any full or failing port.
                let _ = port.flush_quietly(WhenFull::Drop);
            }
            // The engine takes no more frames than there is room for, but the NF may have made some.
            if !port.can_queue() {
                self.stats.no_room += 1;
                continue;
            }
            let changed = Received {
                len: frame.len() as u16,
                ..*received
            };
            port.forward(changed, frame.offload());
            self.stats.forwarded += 1;
        }
    }
}

impl Held {
    /// Does it hold the same slots?
    fn holds_as(&self, other: &Held) -> bool {
        (self.input, self.position) == (other.input, other.position)
    }
}

/// Empty looks at each port before sleeping peers are rung for all the same.
const LOOKS_BEFORE_RINGING: usize = 2;

/// Hands everything that is queued on `ports` to the switch. Errors are counted by the ports. Peers
/// that sleep are rung when the caller has nothing else to do: see [`Port::flush_quietly`].
pub fn flush_all(ports: &mut [Port]) {
    for port in ports {
        if port.queued() > 0 {
            let _ = port.flush_quietly(WhenFull::Drop);
        }
    }
}

/// Wakes the receivers that flushes have found asleep.
pub(crate) fn ring_all(ports: &mut [Port]) {
    ports.iter_mut().for_each(Port::ring_all);
}

#[cfg(test)]
mod tests {
    use super::Seen;

    // promise: 1.26
    #[test]
    fn a_slot_is_new_once_per_batch() {
        let mut seen = Seen::default();
        seen.start(64);
        assert!(seen.is_new(5) && !seen.is_new(5) && seen.is_new(6));
        assert!(seen.has(5) && !seen.has(7));
        assert!(!seen.is_new(64), "no such slot");
        seen.start(64);
        assert!(seen.is_new(5));
        seen.batch = u32::MAX;
        seen.start(64);
        assert!(seen.is_new(5) && !seen.is_new(5));
    }
}
