//! Sender and receiver in one process: what it sends on port 0 comes back on port 1.

use super::oneway::prepare_frames;
use super::{Outcome, Work, monotonic_ns, pause};
use crate::experiments::subject::Subject;
use crate::experiments::traffic::{Headers, VARYING};
use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_ring::port::WhenFull;
use std::time::Duration;

/// After this time without a frame those under way count as late or lost.
const LOST_AFTER_NS: u64 = 100_000_000;

/// How much is under way, and what happens while nothing comes back.
#[derive(Clone, Copy)]
pub struct Limits {
    pub batch: usize,
    pub window: u32,
    pub blocks: bool,
}

/// Sends and receives in turn.
pub struct Around {
    headers: Headers,
    len: usize,
    limits: Limits,
    under_way: u32,
    lost: u64,
    idle_since: u64,
}

impl Around {
    pub fn new(
        attached: &mut Attached,
        subject: &Subject,
        to: [u8; 6],
        len: usize,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() == 2, "it needs two ports");
        let port = attached.ports.first_mut().context("a port to send on")?;
        let flows = subject.flows();
        let headers = Headers::new(&flows, to, len)?;
        prepare_frames(port, |_| headers.template().to_vec());
        Ok(Around {
            headers,
            len,
            limits,
            under_way: 0,
            lost: 0,
            idle_since: 0,
        })
    }

    fn send(&mut self, attached: &mut Attached) -> u32 {
        let port = &mut attached.ports[0];
        let free = self.limits.window.saturating_sub(self.under_way) as usize;
        let goal = free.min(self.limits.batch);
        while (port.queued() as usize) < goal {
            let header = self.headers.next();
            let queued = port.send(|buffer| {
                buffer[VARYING].copy_from_slice(header);
                self.len
            });
            if !queued {
                break;
            }
        }
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
        let now = monotonic_ns();
        if self.idle_since == 0 {
            self.idle_since = now;
        } else if now - self.idle_since > LOST_AFTER_NS {
            self.lost += u64::from(self.under_way);
            self.under_way = 0;
            self.idle_since = 0;
        }
        if self.limits.blocks {
            let Attached { ports, doorbell } = attached;
            // As above.
            let _ = doorbell.wait(ports, None, Duration::from_millis(20));
        } else {
            pause(false);
        }
    }
}

impl Work for Around {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let sent = self.send(attached);
        let got = attached.ports[1].receive(self.limits.window as usize, |_| ());
        self.under_way = self.under_way.saturating_sub(got as u32);
        if got > 0 {
            self.idle_since = 0;
        } else if sent == 0 {
            self.wait(attached);
        }
        got as u64
    }

    fn report(&mut self, outcome: &mut Outcome) {
        outcome.lost = std::mem::take(&mut self.lost);
        // The next run begins later; that is no time without frames.
        self.idle_since = 0;
    }
}
