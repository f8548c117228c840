//! The loop body of a network function: take a batch from a port, let the NF decide, hand what it
//! sends to the switch, release the slots.
//!
//! A frame that goes on is not copied here: its TX descriptor names the RX slot in which it lies.
//! The slot is released only after the call in which the switch has copied it to its receiver.

use crate::batch::{Action, Batch, Frame};
use crate::layout::BATCH_MAX;
use crate::memory::Pool;
use crate::port::{Port, PortsOutbox, Received, WhenFull};
use arrayvec::ArrayVec;
use std::sync::Arc;

/// What became of the frames of a batch.
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
    /// Batches.
    pub batches: u64,
}

/// Runs an NF over the ports of one thread.
#[derive(Debug, Default)]
pub struct Engine {
    stats: EngineStats,
}

impl Engine {
    /// A new engine.
    pub fn new() -> Self {
        Engine::default()
    }

    /// What was counted.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Takes at most [`BATCH_MAX`] frames from port `input`, lets `decide` handle them, and sends.
    /// Returns the number of frames taken.
    pub fn run_once(
        &mut self,
        ports: &mut [Port],
        input: u8,
        decide: &mut dyn FnMut(&mut Batch<'_, '_>),
    ) -> usize {
        let Some(port) = ports.get_mut(usize::from(input)) else {
            return 0;
        };
        let mut taken: ArrayVec<Received, BATCH_MAX> = ArrayVec::new();
        let mut bytes = 0;
        while let Some(received) = port.take() {
            bytes += u64::from(received.len);
            taken.push(received);
            if taken.is_full() {
                break;
            }
        }
        if taken.is_empty() {
            port.release();
            return 0;
        }
        port.count_received(taken.len() as u64, bytes);
        self.stats.received += taken.len() as u64;
        self.stats.batches += 1;
        let pool = Arc::clone(port.pool());
        let actions = self.decide(&pool, &taken, input, ports, decide);
        self.send(ports, &taken, &actions);
        ports[usize::from(input)].release();
        taken.len()
    }

    /// Lets the NF decide; returns, per frame, its final length and action.
    fn decide(
        &mut self,
        pool: &Pool,
        taken: &[Received],
        input: u8,
        ports: &mut [Port],
        decide: &mut dyn FnMut(&mut Batch<'_, '_>),
    ) -> ArrayVec<(u16, Action), BATCH_MAX> {
        let mut frames: ArrayVec<Frame<'_>, BATCH_MAX> = ArrayVec::new();
        for received in taken {
            // SAFETY: the slots were published to us, are all different (positions of one ring,
            // fewer than it has slots), and are not released before this batch ends.
            if let Some(buffer) = unsafe { pool.buffer(received.slot) } {
                frames.push(Frame::new(buffer, received.len, input));
            }
        }
        let mut outbox = PortsOutbox(ports);
        decide(&mut Batch::new(&mut frames, &mut outbox));
        frames
            .iter()
            .map(|frame| (frame.len() as u16, frame.action()))
            .collect()
    }

    fn send(&mut self, ports: &mut [Port], taken: &[Received], actions: &[(u16, Action)]) {
        for (received, &(len, action)) in taken.iter().zip(actions) {
            let Action::Send(out) = action else {
                self.stats.discarded += 1;
                continue;
            };
            let Some(port) = ports.get_mut(usize::from(out)) else {
                self.stats.no_such_port += 1;
                continue;
            };
            if !port.can_queue() {
                // Counted by the port; its frames are gone, as for any full or failing port.
                let _ = port.flush(WhenFull::Drop);
            }
            port.queue(Received {
                slot: received.slot,
                len,
            });
            self.stats.forwarded += 1;
        }
        flush_all(ports);
    }
}

/// Hands everything that is queued on `ports` to the switch. Errors are counted by the ports.
pub fn flush_all(ports: &mut [Port]) {
    for port in ports {
        if port.queued() > 0 {
            let _ = port.flush(WhenFull::Drop);
        }
    }
}
