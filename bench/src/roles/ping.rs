//! Round trips of single frames.

use super::oneway::prepare_frames;
use super::work::{Outcome, Times, Work};
use crate::traffic::{Headers, STAMP};
use crate::workload::Workload;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use std::time::Duration;

/// Length of a ping in bytes.
const LEN: usize = 64;
/// Time after which a ping counts as lost.
const GIVE_UP_NS: u64 = 50_000_000;

/// Sends on port 0, sleeps until the frame returns on port 1.
pub struct Ping {
    times: Times,
    lost: u64,
}

impl Ping {
    pub fn new(attached: &mut Attached, workload: &Workload, to: [u8; 6]) -> anyhow::Result<Self> {
        anyhow::ensure!(attached.ports.len() == 2, "it needs two ports");
        let headers = Headers::new(&workload.flows(), to, LEN)?;
        prepare_frames(&mut attached.ports[0], |_| headers.template().to_vec());
        Ok(Ping {
            times: Times::default(),
            lost: 0,
        })
    }
}

impl Work for Ping {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let Attached {
            ports, doorbell, ..
        } = attached;
        let start = monotonic_ns();
        let stamp = start.to_ne_bytes();
        ports[0].send(|buffer| {
            buffer[STAMP].copy_from_slice(&stamp);
            LEN
        });
        // An error shows as a lost ping.
        let _ = ports[0].flush(WhenFull::Drop);
        loop {
            let mut back = false;
            ports[1].receive(64, |frame| back |= frame.get(STAMP) == Some(&stamp[..]));
            let now = monotonic_ns();
            if back {
                self.times.push_ns(now - start);
                return 1;
            }
            if now - start > GIVE_UP_NS {
                self.lost += 1;
                return 0;
            }
            // An error shows as a lost ping.
            let _ = doorbell.wait(ports, None, Duration::from_millis(20));
        }
    }

    fn report(&mut self, outcome: &mut Outcome) {
        self.times.report(outcome);
        outcome.lost = std::mem::take(&mut self.lost);
    }
}
