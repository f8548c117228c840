//! A sender and a receiver with one port each.

use super::{Outcome, Work, pause};
use crate::experiments::traffic::udp_frame;
use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_ring::port::{Port, WhenFull};

/// Sends what lies in its TX slots.
pub struct Sender {
    len: usize,
    batch: usize,
    yields: bool,
}

impl Sender {
    pub fn new(
        attached: &mut Attached,
        len: usize,
        batch: usize,
        flows: u32,
        yields: bool,
    ) -> anyhow::Result<Self> {
        let port = attached.ports.first_mut();
        let port = port.context("a sender needs a port")?;
        prepare_frames(port, |slot| udp_frame(len, slot % flows.max(1)));
        Ok(Sender { len, batch, yields })
    }
}

impl Work for Sender {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let port = &mut attached.ports[0];
        while (port.queued() as usize) < self.batch && port.send(|_| self.len) {}
        match port.flush(WhenFull::Keep) {
            Ok(0) => {
                pause(self.yields);
                0
            }
            Ok(sent) => u64::from(sent),
            Err(_) => 0,
        }
    }
}

/// Reads every byte that comes.
pub struct Receiver {
    batch: usize,
    yields: bool,
    fold: u64,
}

impl Receiver {
    pub fn new(batch: usize, yields: bool) -> Self {
        Receiver {
            batch,
            yields,
            fold: 0,
        }
    }
}

impl Work for Receiver {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let fold = &mut self.fold;
        let got = attached.ports[0].receive(self.batch, |frame| *fold ^= read_all(frame));
        if got == 0 {
            pause(self.yields);
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

/// Writes the frame that `make` returns into each TX slot, and sends none of them.
pub fn prepare_frames(port: &mut Port, make: impl Fn(u32) -> Vec<u8>) {
    for slot in 0..port.entry().tx_slots {
        let frame = make(slot);
        // Discarded below; only the content of the slots matters.
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
