//! Sender and receiver in one process: frames sent on port 0 return on port 1.

use super::fan::queue;
use super::oneway::prepare_frames;
use super::stall::Stall;
use super::work::{Outcome, Waits, Work, pause};
use crate::traffic::Headers;
use crate::workload::Workload;
use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_ring::port::WhenFull;

/// After this time without a frame, frames in flight count as late or lost.
const LOST_AFTER_NS: u64 = 100_000_000;

/// Limit of frames in flight, and behaviour while none returns.
#[derive(Clone, Copy)]
pub struct Limits {
    pub batch: usize,
    pub window: u32,
    pub waits: Waits,
}

/// Sends and receives alternately.
pub struct Around {
    headers: Headers,
    len: usize,
    limits: Limits,
    under_way: u32,
    lost: u64,
    stall: Stall,
}

impl Around {
    pub fn new(
        attached: &mut Attached,
        workload: &Workload,
        to: [u8; 6],
        len: usize,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() == 2, "it needs two ports");
        let port = attached.ports.first_mut().context("a port to send on")?;
        let flows = workload.flows();
        let headers = Headers::new(&flows, to, len)?;
        prepare_frames(port, |_| headers.template().to_vec());
        Ok(Around {
            headers,
            len,
            limits,
            under_way: 0,
            lost: 0,
            stall: Stall::new(LOST_AFTER_NS),
        })
    }

    fn send(&mut self, attached: &mut Attached) -> u32 {
        let port = &mut attached.ports[0];
        let free = self.limits.window.saturating_sub(self.under_way) as usize;
        let goal = free.min(self.limits.batch);
        queue(port, &mut self.headers, self.len, goal as u32);
        let sent = if port.queued() > 0 {
            // An error shows as missing throughput.
            port.flush(WhenFull::Keep).unwrap_or(0)
        } else {
            0
        };
        self.under_way += sent;
        sent
    }

    fn wait(&mut self, attached: &mut Attached) {
        if self.stall.is_over() {
            self.lost += u64::from(self.under_way);
            self.under_way = 0;
        }
        // The doorbell of a full link does not ring when slots become free.
        let kept = attached.ports[0].queued() > 0 && !attached.ports[0].is_served();
        let waits = match self.limits.waits {
            Waits::Sleeping if kept => Waits::Yielding,
            waits => waits,
        };
        pause(waits, attached);
    }
}

impl Work for Around {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let sent = self.send(attached);
        let got = attached.ports[1].receive(self.limits.window as usize, |_| ());
        self.under_way = self.under_way.saturating_sub(got as u32);
        if got > 0 {
            self.stall.end();
        } else if sent == 0 {
            self.wait(attached);
        }
        got as u64
    }

    fn report(&mut self, outcome: &mut Outcome) {
        outcome.lost = std::mem::take(&mut self.lost);
        // The time until the next run is no stall.
        self.stall.end();
    }
}
