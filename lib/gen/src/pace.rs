//! Open-loop pacing: an absolute schedule says how many frames should have been sent by now, so
//! that neither a late wake-up nor a rounding error ever adds up, and a slow receiver does not slow
//! the offer down unnoticed.
//!
//! Frames that could not be sent in time are made up for, but only up to a bound: beyond the bound frames are given
//! up and counted as missed, so that a stall is not followed by a flood.

use crate::clock::NS_PER_S;

/// Backlog that is made up for, in nanoseconds of the schedule.
const CATCH_UP_NS: u64 = 10_000_000;
/// Frames are gathered into one burst for at most this long, in nanoseconds.
const GATHER_NS: f64 = 100_000.0;

/// Decides how many frames may go when.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Packets per second; `None` without limit.
    pps: Option<f64>,
    burst_max: u64,
    /// Start of the current schedule.
    start_ns: u64,
    /// Frames due when the current schedule began.
    carried: u64,
    /// Frames of the current schedule sent or given up.
    settled: u64,
    sent: u64,
    missed: u64,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send up to this many frames.
    Send(u64),
    /// No action for this many nanoseconds (`u64::MAX`: ever).
    Wait(u64),
}

impl Pacer {
    /// A schedule of `pps` packets per second from `now_ns` on, in bursts of at most `burst_max`.
    /// At low rates the bursts are shorter: frames are gathered for 100 us at most.
    pub fn new(pps: Option<f64>, burst_max: usize, now_ns: u64) -> Self {
        let burst_max = burst_max.max(1) as u64;
        Pacer {
            pps,
            burst_max,
            start_ns: now_ns,
            carried: 0,
            settled: 0,
            sent: 0,
            missed: 0,
        }
    }

    /// Goes over to another rate from `now_ns` on. Backlog stays due.
    pub fn set_rate(&mut self, pps: Option<f64>, now_ns: u64) {
        self.carried = self.owed(now_ns);
        self.pps = pps;
        self.start_ns = now_ns;
        self.settled = 0;
    }

    /// Frames that should have been sent by `now_ns`. Each is due at the end of its share of time.
    fn due(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        let scheduled = elapsed_ns as f64 * self.pps.unwrap_or_default() / NS_PER_S as f64;
        self.carried + scheduled as u64
    }

    /// Size of a full burst at the current rate.
    fn burst(&self, pps: f64) -> u64 {
        ((pps * GATHER_NS / NS_PER_S as f64) as u64).clamp(1, self.burst_max)
    }

    /// Returns the action at `now_ns`.
    pub fn turn(&mut self, now_ns: u64) -> Turn {
        let pps = match self.pps {
            None => return Turn::Send(self.burst_max),
            Some(pps) if pps > 0.0 => pps,
            Some(_) => return Turn::Wait(u64::MAX),
        };
        let due = self.due(now_ns);
        let backlog_max = self
            .burst_max
            .max((pps * CATCH_UP_NS as f64 / NS_PER_S as f64) as u64);
        let floor = due.saturating_sub(backlog_max);
        if self.settled < floor {
            self.missed += floor - self.settled;
            self.settled = floor;
        }
        let backlog = self.owed(now_ns);
        let burst = self.burst(pps);
        if backlog >= burst {
            return Turn::Send(backlog.min(self.burst_max));
        }
        let missing = (self.settled + burst).saturating_sub(self.carried);
        let ready_ns = self.start_ns + (missing as f64 * NS_PER_S as f64 / pps).ceil() as u64;
        Turn::Wait(ready_ns.saturating_sub(now_ns).max(1))
    }

    /// Frames due by `now_ns` and not sent.
    pub fn owed(&self, now_ns: u64) -> u64 {
        self.due(now_ns).saturating_sub(self.settled)
    }

    /// Gives up the frames that are owed at `now_ns`, and counts them.
    pub fn give_up(&mut self, now_ns: u64) {
        let owed = self.owed(now_ns);
        self.missed += owed;
        self.settled += owed;
    }

    /// Notes that `count` frames were sent.
    pub fn sent(&mut self, count: u64) {
        self.sent += count;
        self.settled += count;
    }

    /// Frames sent since the beginning.
    pub fn sent_total(&self) -> u64 {
        self.sent
    }

    /// Returns the number of scheduled frames that were given up.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lets an ideal port send for `duration_ns`, waking up to `late_ns` late. Returns the pacer.
    fn run(pps: f64, burst: usize, duration_ns: u64, late_ns: u64) -> Pacer {
        let mut pacer = Pacer::new(Some(pps), burst, 0);
        let mut now_ns = 0;
        while now_ns < duration_ns {
            match pacer.turn(now_ns) {
                Turn::Send(count) => pacer.sent(count),
                Turn::Wait(ns) => now_ns = now_ns.saturating_add(ns).saturating_add(late_ns),
            }
        }
        pacer
    }

    // promise: 12.4
    #[test]
    fn the_rate_is_met_without_drift() {
        for (pps, late_ns) in [(1e3, 0), (1e3, 70_000), (1e6, 50_000), (3.7e6, 333)] {
            let pacer = run(pps, 64, 10 * NS_PER_S, late_ns);
            let error = pacer.sent_total() as f64 - 10.0 * pps;
            assert!(
                error.abs() <= 64.0 + pps * late_ns as f64 / 1e9,
                "{pps}: {error}"
            );
            assert_eq!(pacer.missed(), 0);
        }
    }

    #[test]
    fn slow_rates_send_frame_by_frame() {
        let mut pacer = Pacer::new(Some(10.0), 256, 0);
        assert_eq!(pacer.turn(0), Turn::Wait(100_000_000));
        assert_eq!(pacer.turn(100_000_000), Turn::Send(1));
        pacer.sent(1);
        assert_eq!(pacer.turn(100_000_000), Turn::Wait(100_000_000));
    }

    #[test]
    fn a_stall_is_made_up_for_only_so_far() {
        let mut pacer = Pacer::new(Some(1e6), 64, 0);
        let mut sent = 0;
        while let Turn::Send(count) = pacer.turn(NS_PER_S) {
            pacer.sent(count);
            sent += count;
        }
        // Frames that do not fill a burst yet wait for the next frames.
        assert!((1_000_000 - 64..=1_000_000).contains(&(sent + pacer.missed())));
        assert!(sent <= 10_000, "{sent}");
    }

    #[test]
    fn zero_and_unlimited() {
        assert_eq!(Pacer::new(Some(0.0), 64, 0).turn(5), Turn::Wait(u64::MAX));
        assert_eq!(Pacer::new(None, 64, 0).turn(5), Turn::Send(64));
    }

    #[test]
    fn a_new_rate_starts_afresh_and_keeps_what_was_due() {
        let mut pacer = Pacer::new(Some(0.0), 64, 0);
        pacer.set_rate(Some(1000.0), NS_PER_S);
        assert_eq!(pacer.turn(NS_PER_S), Turn::Wait(1_000_000));
        pacer.set_rate(Some(1e6), NS_PER_S + 3_000_000);
        assert_eq!(pacer.turn(NS_PER_S + 3_000_000), Turn::Wait(61_000));
        assert_eq!(pacer.turn(NS_PER_S + 3_061_000), Turn::Send(64));
        assert_eq!(pacer.missed(), 0);
    }

    proptest! {
        #[test]
        fn never_ahead_of_the_schedule(pps in 1.0f64..1e8, burst in 1usize..=256,
            steps in prop::collection::vec(1u64..1_000_000, 1..200)) {
            let mut pacer = Pacer::new(Some(pps), burst, 0);
            let mut now_ns = 0;
            for step in steps {
                now_ns += step;
                if let Turn::Send(count) = pacer.turn(now_ns) {
                    prop_assert!(count <= burst as u64);
                    pacer.sent(count);
                }
                let schedule = now_ns as f64 * pps / 1e9;
                prop_assert!(pacer.sent_total() as f64 <= schedule + 1e-6 * schedule);
            }
        }
    }
}
