//! A test bench for network functions: frames in, frames out, no rings and no root.

use crate::function::{Nanos, NetworkFunction, PortInfo};
use arrayvec::ArrayVec;
use nfluid_ring::layout::{BATCH_MAX, FRAME_MIN, LONG_MAX, SLOT_SIZE, room_slots};
use nfluid_ring::offload::OFFLOAD_BYTES;
use nfluid_ring::{Action, Batch, Frame, Offload, Outbox};
use nfluid_wire::ether::MacAddr;
use std::vec;
use std::vec::Vec;

/// A frame that left the NF: the port and the frame.
pub type Sent = (u8, Vec<u8>);

/// An outbox that keeps all frames that it is given.
#[derive(Debug, Default)]
pub struct Collected(pub Vec<Sent>);

impl Outbox for Collected {
    fn emit_offload(&mut self, port: u8, frame: &[u8], _offload: Offload) -> bool {
        let fits = (FRAME_MIN..=LONG_MAX).contains(&frame.len());
        if fits {
            self.0.push((port, frame.to_vec()));
        }
        fits
    }

    /// No batch: nothing to do.
    fn commit(&mut self, _decided: &[Frame<'_>]) {}
}

/// The frames that leave an NF while it handles a batch, in the order in which they leave.
#[derive(Default)]
struct OfBatch {
    sent: Collected,
    /// Number of frames of the batch that have left, or have been dropped.
    committed: usize,
}

impl Outbox for OfBatch {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool {
        self.sent.emit_offload(port, frame, offload)
    }

    fn commit(&mut self, decided: &[Frame<'_>]) {
        for frame in decided.iter().skip(self.committed) {
            self.committed += 1;
            if let Action::Send(port) = frame.action() {
                self.sent.0.push((port, frame.bytes().to_vec()));
            }
        }
    }
}

/// `count` ports named `p0`, `p1`, ... with MAC addresses 02:00:00:00:00:NN and an MTU of 1500.
pub fn ports(count: u8) -> Vec<PortInfo> {
    (0..count)
        .map(|i| PortInfo {
            name: std::format!("p{i}"),
            mac: MacAddr([2, 0, 0, 0, 0, i]),
            mtu: 1500,
        })
        .collect()
}

/// Passes `frames` (arrival port, bytes) to the NF in batches and returns the frames that it sent, in the order in
/// which the engine sends it: see [`nfluid_ring::batch`].
pub fn run(nf: &mut dyn NetworkFunction, now: Nanos, frames: &[Sent]) -> Vec<Sent> {
    let mut sent = Vec::new();
    for chunk in frames.chunks(BATCH_MAX) {
        let slots = chunk.iter().map(|(_, bytes)| {
            let mut slot = vec![0xa5; room_slots(bytes.len()) * SLOT_SIZE - OFFLOAD_BYTES];
            slot[..bytes.len()].copy_from_slice(bytes);
            slot
        });
        let mut slots: Vec<Vec<u8>> = slots.collect();
        let mut batch: ArrayVec<Frame<'_>, BATCH_MAX> = slots
            .iter_mut()
            .zip(chunk)
            .map(|(slot, (port, bytes))| Frame::new(slot, bytes.len() as u16, *port))
            .collect();
        let mut outbox = OfBatch::default();
        nf.process(now, &mut Batch::new(&mut batch, &mut outbox));
        outbox.commit(&batch);
        sent.append(&mut outbox.sent.0);
    }
    sent
}

/// Hands one frame to the NF; see [`run`].
pub fn run_one(nf: &mut dyn NetworkFunction, now: Nanos, port: u8, frame: &[u8]) -> Vec<Sent> {
    run(nf, now, &[(port, frame.to_vec())])
}
