//! Processing of a frame.

use super::config::Forbidden;
use super::hash::signature;
use super::metrics::Counters;
use crate::traffic::OnWire;
use core::hint::black_box;
use nfluid_ring::{Frame, Offload};

/// Signs every frame, `rounds` times; sends it to the other port unless its signature is forbidden.
pub(super) fn forward(
    frames: &mut [Frame<'_>],
    rounds: u32,
    forbidden: &Forbidden,
    counters: &mut Counters,
) {
    for frame in frames {
        let from = frame.in_port() & 1;
        for _ in 1..rounds {
            black_box(signature(black_box(frame.bytes())));
        }
        let signature = signature(frame.bytes());
        counters.sign(signature);
        if forbidden.contains(signature) {
            counters.forbidden += 1;
            frame.discard();
        } else {
            // This NF takes plain frames only.
            let on_wire = OnWire::of_bytes(frame.len(), Offload::NONE);
            counters.forwarded.count(from, on_wire);
            frame.send(from ^ 1);
        }
    }
}
