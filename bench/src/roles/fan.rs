//! Traffic of many NFs in one process: frames sent on a port return on the same port, through the NF that is linked to
//! it.

use super::oneway::prepare_frames;
use super::stall::Stall;
use super::work::{Outcome, Times, Waits, Work, pause};
use crate::traffic::{Headers, STAMP, VARYING};
use crate::workload::Workload;
use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::{Port, WhenFull};
use serde::{Deserialize, Serialize};

/// After this time without a frame, frames in flight count as late or lost.
const LOST_AFTER_NS: u64 = 100_000_000;
/// Interval of pings.
const PING_EVERY_NS: u64 = 2_000_000;
/// Time after which a ping counts as lost.
const PING_LOST_NS: u64 = 1_000_000_000;

/// The traffic.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Fan {
    /// Length of a frame in bytes.
    pub len: usize,
    /// Frames per burst.
    pub batch: u32,
    /// Frames in flight through each NF.
    pub window: u32,
    /// Behaviour of the process while no NF takes or gives frames.
    pub waits: Waits,
    /// If true, only single frames pass the NF of the last port, at intervals, and their round trip is measured.
    pub pings: bool,
}

/// Sends and receives, port by port.
pub struct FanTraffic {
    fan: Fan,
    headers: Headers,
    under_way: Vec<u32>,
    next: usize,
    /// Consecutive ports without frames in either direction.
    idle_ports: usize,
    stall: Stall,
    lost: u64,
    ping: Option<Ping>,
}

/// Sender of single frames.
#[derive(Default)]
struct Ping {
    sent_at: Option<u64>,
    next_at: u64,
    times: Times,
    lost: u64,
}

impl FanTraffic {
    pub fn new(attached: &mut Attached, workload: &Workload, fan: Fan) -> anyhow::Result<Self> {
        let first = attached.ports.first().context("a port to send on")?;
        let headers = Headers::new(&workload.flows(), first.entry().mac, fan.len)?;
        for port in &mut attached.ports {
            prepare_frames(port, |_| headers.template().to_vec());
        }
        let ports = attached.ports.len() - usize::from(fan.pings);
        Ok(FanTraffic {
            fan,
            headers,
            under_way: vec![0; ports],
            next: 0,
            idle_ports: 0,
            stall: Stall::new(LOST_AFTER_NS),
            lost: 0,
            ping: fan.pings.then(Ping::default),
        })
    }

    /// Sends whole bursts only: meanwhile the NF works on other frames.
    fn send(&mut self, port: &mut Port, at: usize) -> u32 {
        if self.under_way[at] + self.fan.batch > self.fan.window {
            return 0;
        }
        queue(port, &mut self.headers, self.fan.len, self.fan.batch);
        // An error shows as missing throughput.
        let sent = port.flush(WhenFull::Keep).unwrap_or(0);
        self.under_way[at] += sent;
        sent
    }

    fn serve(&mut self, attached: &mut Attached) -> u64 {
        let at = self.next;
        let Some(port) = attached.ports.get_mut(at) else {
            return 0;
        };
        self.next = if at + 1 == self.under_way.len() {
            0
        } else {
            at + 1
        };
        let got = port.receive(self.fan.window as usize, |_| ());
        self.under_way[at] = self.under_way[at].saturating_sub(got as u32);
        let sent = self.send(port, at);
        if got > 0 {
            self.stall.end();
        }
        if got > 0 || sent > 0 {
            self.idle_ports = 0;
            return got as u64;
        }
        self.idle_ports += 1;
        if self.idle_ports >= self.under_way.len() {
            self.idle_ports = 0;
            self.wait(attached);
        }
        0
    }

    fn wait(&mut self, attached: &mut Attached) {
        if self.stall.is_over() {
            self.lost += self.under_way.iter().map(|n| u64::from(*n)).sum::<u64>();
            self.under_way.fill(0);
        }
        pause(self.fan.waits, attached);
    }
}

impl Work for FanTraffic {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        if let (Some(ping), Some(port)) = (&mut self.ping, attached.ports.last_mut()) {
            ping.look(port);
        }
        if self.under_way.is_empty() {
            return 0;
        }
        self.serve(attached)
    }

    fn report(&mut self, outcome: &mut Outcome) {
        outcome.lost = std::mem::take(&mut self.lost);
        if let Some(ping) = &mut self.ping {
            ping.times.report(outcome);
            outcome.lost += std::mem::take(&mut ping.lost);
            // The time until the next run is no round trip.
            ping.sent_at = None;
        }
        self.stall.end();
    }
}

impl Ping {
    /// Takes the ping that has returned; sends the next one when it is due.
    fn look(&mut self, port: &mut Port) {
        let now = monotonic_ns();
        if let Some(sent) = self.sent_at {
            let mut back = false;
            port.receive(64, |frame| {
                back |= frame.get(STAMP) == Some(&sent.to_ne_bytes()[..]);
            });
            if back {
                self.times.push_ns(now - sent);
                self.sent_at = None;
            } else if now - sent > PING_LOST_NS {
                self.lost += 1;
                self.sent_at = None;
            }
        } else if now >= self.next_at {
            self.next_at = now + PING_EVERY_NS;
            self.sent_at = Some(now);
            port.send(|buffer| {
                buffer[STAMP].copy_from_slice(&now.to_ne_bytes());
                LEN
            });
            // An error shows as a lost ping.
            let _ = port.flush(WhenFull::Drop);
        }
    }
}

/// Length of a ping in bytes.
const LEN: usize = 64;

/// Queues frames of the next flows until `goal` are queued or no slot is free.
pub fn queue(port: &mut Port, headers: &mut Headers, len: usize, goal: u32) {
    while port.queued() < goal {
        let header = headers.next();
        let queued = port.send(|buffer| {
            buffer[VARYING].copy_from_slice(header);
            len
        });
        if !queued {
            break;
        }
    }
}
