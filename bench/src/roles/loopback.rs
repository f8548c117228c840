//! Processes of instances whose two ports are joined: frames sent on port 1 arrive on port 0, and the other way round.
//! No other process determines the load.

use super::function::Function;
use super::oneway::prepare_frames;
use super::work::{Outcome, Times, Waits, Work, pause};
use crate::traffic::{Headers, VARYING, udp_frame};
use crate::workload::Workload;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use std::time::Duration;

/// An NF through which the same frames circulate: it always has work, and its throughput is that of the CPU time of the
/// NF and its I/O threads.
pub struct Circle(Function);

impl Circle {
    /// Puts `frames` frames of `len` bytes into circulation through the first two ports, at most as many as port 1 has
    /// TX slots.
    pub fn new(
        attached: &mut Attached,
        workload: &Workload,
        len: usize,
        frames: u32,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() >= 2, "it needs two ports");
        let mut headers = Headers::new(&workload.flows(), attached.ports[0].entry().mac, len)?;
        let port = &mut attached.ports[1];
        for _ in 0..frames {
            let template = headers.template().to_vec();
            let varying = headers.next();
            let queued = port.send(|slot| {
                slot[..len].copy_from_slice(&template);
                slot[VARYING].copy_from_slice(varying);
                len
            });
            anyhow::ensure!(queued, "more frames than TX slots");
        }
        port.flush(WhenFull::Keep)?;
        Ok(Circle(Function::on(&attached.ports[..2], workload)?))
    }
}

impl Work for Circle {
    fn bursts_per_look(&self) -> u32 {
        self.0.bursts_per_look()
    }

    fn burst(&mut self, attached: &mut Attached) -> u64 {
        self.0.burst(attached)
    }
}

/// Of so many circulating frames a single one leaves, a rate that an uplink can send. If the uplink's ring were sometimes
/// full, an NF would have the less to do the more often that happens.
const ONE_OF: u64 = 64;

/// A [`Circle`] that also sends frames out of its third port, one of [`ONE_OF`] circulating frames, and receives on it:
/// its work is that of an NF with an uplink, and it always has work.
pub struct Outward {
    circle: Circle,
    len: usize,
    /// Circulated frames since the last one left.
    since: u64,
    /// Frames received on the third port, and their folded payload.
    came_in: u64,
    fold: u64,
}

impl Outward {
    /// As [`Circle::new`].
    pub fn new(
        attached: &mut Attached,
        workload: &Workload,
        len: usize,
        frames: u32,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() == 3, "it needs three ports");
        prepare_frames(&mut attached.ports[2], |slot| udp_frame(len, slot));
        Ok(Outward {
            circle: Circle::new(attached, workload, len, frames)?,
            len,
            since: 0,
            came_in: 0,
            fold: 0,
        })
    }
}

impl Work for Outward {
    fn bursts_per_look(&self) -> u32 {
        self.circle.bursts_per_look()
    }

    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let frames = self.circle.burst(attached);
        self.since += frames;
        let out = &mut attached.ports[2];
        for _ in 0..self.since / ONE_OF {
            out.send(|_| self.len);
        }
        self.since %= ONE_OF;
        if out.queued() > 0 {
            // The uplink's full ring drops and counts the frame.
            let _ = out.flush(WhenFull::Drop);
        }
        let fold = &mut self.fold;
        self.came_in += out.receive(usize::MAX, |frame| {
            *fold = frame
                .iter()
                .fold(*fold, |sum, byte| sum.rotate_left(1) ^ u64::from(*byte));
        }) as u64;
        frames
    }

    fn report(&mut self, outcome: &mut Outcome) {
        outcome.came_in = std::mem::take(&mut self.came_in);
        outcome.fold = std::mem::take(&mut self.fold);
    }
}

/// Requests batches of one size, and receives frames without reading them.
pub struct Stream {
    len: usize,
    batch: u32,
}

impl Stream {
    pub fn new(attached: &mut Attached, len: usize, batch: u32) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() == 2, "it needs two ports");
        prepare_frames(&mut attached.ports[1], |slot| udp_frame(len, slot));
        Ok(Stream { len, batch })
    }
}

impl Work for Stream {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let port = &mut attached.ports[1];
        port.collect();
        let asks = port.room() >= self.batch;
        if asks {
            for _ in 0..self.batch {
                // A slot is free.
                port.send(|_| self.len);
            }
            // An error shows as missing throughput.
            let _ = port.flush(WhenFull::Keep);
        }
        let got = attached.ports[0].receive(usize::MAX, |_| ());
        if got == 0 && !asks {
            pause(Waits::Sleeping, attached);
        }
        got as u64
    }
}

/// Hands over single frames, and sleeps until each has been consumed.
pub struct HandOver {
    pause: Duration,
    times: Times,
}

/// Length of its frames in bytes.
const LEN: usize = 64;

impl HandOver {
    /// `pause`: time before each frame, long enough for the consumer to fall asleep.
    pub fn new(attached: &mut Attached, pause: Duration) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() == 2, "it needs two ports");
        prepare_frames(&mut attached.ports[1], |slot| udp_frame(LEN, slot));
        Ok(HandOver {
            pause,
            times: Times::default(),
        })
    }
}

impl Work for HandOver {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        let start = monotonic_ns();
        let port = &mut attached.ports[1];
        port.send(|_| LEN);
        let mut consumed = port.flush(WhenFull::Drop).unwrap_or(0);
        while consumed == 0 && attached.ports[1].queued() > 0 {
            pause(Waits::Sleeping, attached);
            consumed = attached.ports[1].collect();
        }
        if consumed > 0 {
            self.times.push_ns(monotonic_ns() - start);
        }
        attached.ports[0].receive(usize::MAX, |_| ());
        u64::from(consumed)
    }

    fn report(&mut self, outcome: &mut Outcome) {
        self.times.report(outcome);
    }
}
