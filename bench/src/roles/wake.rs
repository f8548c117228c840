//! A sender that rings, and a receiver that sleeps.

use super::work::{Outcome, Times, Work};
use crate::traffic::STAMP;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use std::time::Duration;

/// Length of a frame in bytes.
const LEN: usize = 64;

/// Sends single stamped frames at intervals.
pub struct Ringer {
    pause: Duration,
    costs: Times,
}

impl Ringer {
    pub fn new(pause: Duration) -> Self {
        Ringer {
            pause,
            costs: Times::default(),
        }
    }
}

impl Work for Ringer {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        // Long enough for the receiver to fall asleep.
        std::thread::sleep(self.pause);
        let port = &mut attached.ports[0];
        let start = monotonic_ns();
        port.send(|buffer| {
            buffer[STAMP].copy_from_slice(&start.to_ne_bytes());
            LEN
        });
        // An error shows as a missing sample.
        if port.flush(WhenFull::Drop).is_ok() {
            self.costs.push_ns(monotonic_ns() - start);
        }
        // 0 frames: the clock is read after every frame.
        0
    }

    fn report(&mut self, outcome: &mut Outcome) {
        self.costs.report(outcome);
    }
}

/// Sleeps until a frame arrives.
#[derive(Default)]
pub struct Sleeper {
    latencies: Times,
}

impl Work for Sleeper {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let Attached {
            ports, doorbell, ..
        } = attached;
        // An error shows as a missing sample.
        let _ = doorbell.wait(ports, None, Duration::from_millis(20));
        let latencies = &mut self.latencies;
        ports[0].receive(64, |frame| {
            if let Some(stamp) = frame.get(STAMP).and_then(|bytes| bytes.try_into().ok()) {
                latencies.push_ns(monotonic_ns().saturating_sub(u64::from_ne_bytes(stamp)));
            }
        });
        0
    }

    fn report(&mut self, outcome: &mut Outcome) {
        self.latencies.report(outcome);
    }
}
