//! A sender and a receiver with one port each.

use super::work::{Outcome, Waits, Work, pause};
use crate::traffic::udp_frame;
use anyhow::Context;
use nfluid_ring::Offload;
use nfluid_ring::attach::Attached;
use nfluid_ring::layout::{FRAME_MAX, frame_slots};
use nfluid_ring::port::{Port, WhenFull};

/// Sends the prepared frames of its TX slots.
pub struct Sender {
    len: usize,
    batch: usize,
    waits: Waits,
}

impl Sender {
    pub fn new(
        attached: &mut Attached,
        len: usize,
        batch: usize,
        flows: u32,
        waits: Waits,
    ) -> anyhow::Result<Self> {
        let port = attached.ports.first_mut();
        let port = port.context("a sender needs a port")?;
        if len > FRAME_MAX {
            prepare_long_frames(port, &udp_frame(len, 0));
        } else {
            prepare_frames(port, |slot| udp_frame(len, slot % flows.max(1)));
        }
        Ok(Sender { len, batch, waits })
    }
}

impl Work for Sender {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let port = &mut attached.ports[0];
        // Frames that an I/O thread has not yet consumed are in flight; frames that a full link has kept are not.
        let under_way = if port.is_served() { port.queued() } else { 0 };
        let goal = under_way as usize + self.batch;
        let len = self.len;
        // One loop for each kind: a choice per frame would be measured with the frames.
        if len > FRAME_MAX {
            while (port.queued() as usize) < goal && port.send_long(|_| (len, Offload::NONE)) {}
        } else {
            while (port.queued() as usize) < goal && port.send(|_| len) {}
        }
        let flushed = port.flush_quietly(WhenFull::Keep);
        // An I/O thread on this core is rung when there is nothing else to do.
        port.ring_peer();
        match flushed {
            Ok(0) => {
                pause(self.waits, attached);
                0
            }
            Ok(sent) => u64::from(sent),
            Err(_) => 0,
        }
    }
}

/// Receives frames.
pub struct Receiver {
    batch: usize,
    /// True: reads every byte.
    reads: bool,
    waits: Waits,
    fold: u64,
}

impl Receiver {
    pub fn new(batch: usize, reads: bool, waits: Waits) -> Self {
        Receiver {
            batch,
            reads,
            waits,
            fold: 0,
        }
    }
}

impl Work for Receiver {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let (fold, reads) = (&mut self.fold, self.reads);
        let got = attached.ports[0].receive(self.batch, |frame| {
            if reads {
                *fold ^= read_all(frame);
            }
        });
        if got == 0 {
            pause(self.waits, attached);
        }
        got as u64
    }

    fn report(&mut self, outcome: &mut Outcome) {
        outcome.fold = self.fold;
    }
}

/// Reads every byte of the frame, eight at a time.
fn read_all(frame: &[u8]) -> u64 {
    let (words, rest) = frame.as_chunks::<8>();
    let folded = words
        .iter()
        .fold(0, |fold, word| fold ^ u64::from_ne_bytes(*word));
    rest.iter()
        .fold(folded, |fold, byte| fold ^ u64::from(*byte))
}

/// Writes a frame to each place where a long frame of its length is sent from, and sends none of them.
fn prepare_long_frames(port: &mut Port, frame: &[u8]) {
    let mut written = 0;
    while written < port.entry().tx_long_slots as usize {
        // Discarded below: only the slots' content matters.
        let is_queued = port.send_long(|slots| {
            slots[..frame.len()].copy_from_slice(frame);
            (frame.len(), Offload::NONE)
        });
        if is_queued {
            written += frame_slots(frame.len());
        } else {
            port.discard_queued();
        }
    }
    port.discard_queued();
}

/// Writes the frames of `make` into all TX slots, and sends none of them.
pub fn prepare_frames(port: &mut Port, make: impl Fn(u32) -> Vec<u8>) {
    for slot in 0..port.entry().tx_slots {
        let frame = make(slot);
        // Discarded below: only the slots' content matters.
        let _ = port.send(|buffer| {
            buffer[..frame.len()].copy_from_slice(&frame);
            frame.len()
        });
        if port.room() == 0 {
            port.discard_queued();
        }
    }
    port.discard_queued();
}
