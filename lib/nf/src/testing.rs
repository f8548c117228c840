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
/// The same of a frame with metadata: what is still to be done to it.
pub type SentOffload = (u8, Vec<u8>, Offload);

/// An outbox that keeps all frames that it is given, with their metadata. A frame with metadata that the switch would
/// refuse is a mistake of the NF, and panics.
#[derive(Debug, Default)]
pub struct Collected(pub Vec<SentOffload>);

impl Collected {
    fn push(&mut self, port: u8, frame: &[u8], offload: Offload) {
        let checked = Offload::check(offload.words(frame.len()), frame.len());
        assert_eq!(checked, Ok(offload), "of {} bytes", frame.len());
        self.0.push((port, frame.to_vec(), offload));
    }

    /// The frames.
    ///
    /// # Panics
    /// One of them has metadata.
    pub fn plain(self) -> Vec<Sent> {
        plain(self.0)
    }
}

impl Outbox for Collected {
    fn emit_offload(&mut self, port: u8, frame: &[u8], offload: Offload) -> bool {
        let fits = (FRAME_MIN..=LONG_MAX).contains(&frame.len());
        if fits {
            self.push(port, frame, offload);
        }
        fits
    }

    /// No batch: nothing to do.
    fn commit(&mut self, _decided: &[Frame<'_>]) {}
}

fn plain(frames: Vec<SentOffload>) -> Vec<Sent> {
    let plain = |(port, bytes, offload): SentOffload| {
        assert!(offload.is_none(), "a frame with metadata: {offload:?}");
        (port, bytes)
    };
    frames.into_iter().map(plain).collect()
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
                self.sent.push(port, frame.bytes(), frame.offload());
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
///
/// # Panics
/// A frame that the NF sent has metadata: these frames have none.
pub fn run(nf: &mut dyn NetworkFunction, now: Nanos, frames: &[Sent]) -> Vec<Sent> {
    let frames = frames.iter().cloned();
    let frames: Vec<SentOffload> = frames
        .map(|(port, bytes)| (port, bytes, Offload::NONE))
        .collect();
    plain(run_offload(nf, now, &frames))
}

/// As [`run`], of frames with metadata.
pub fn run_offload(
    nf: &mut dyn NetworkFunction,
    now: Nanos,
    frames: &[SentOffload],
) -> Vec<SentOffload> {
    let mut sent = Vec::new();
    for chunk in frames.chunks(BATCH_MAX) {
        let slots = chunk.iter().map(|(_, bytes, _)| {
            let mut slot = vec![0xa5; room_slots(bytes.len()) * SLOT_SIZE - OFFLOAD_BYTES];
            slot[..bytes.len()].copy_from_slice(bytes);
            slot
        });
        let mut slots: Vec<Vec<u8>> = slots.collect();
        let frames = slots
            .iter_mut()
            .zip(chunk)
            .map(|(slot, (port, bytes, offload))| {
                let mut frame = Frame::new(slot, bytes.len() as u16, *port);
                frame.set_offload(*offload);
                frame
            });
        let mut batch: ArrayVec<Frame<'_>, BATCH_MAX> = frames.collect();
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

/// The packets that `frames` become on a wire.
///
/// # Panics
/// There is a super-frame that no packets can be made of.
pub fn on_wire(frames: &[SentOffload]) -> Vec<Sent> {
    let mut packets = Vec::new();
    for (port, bytes, offload) in frames {
        let mut segments = offload.packets_of(bytes).expect("packets");
        let mut buffer = vec![0; segments.packet_len()];
        while let Some(len) = segments.write_next(&mut buffer) {
            packets.push((*port, buffer[..len].to_vec()));
        }
    }
    packets
}
