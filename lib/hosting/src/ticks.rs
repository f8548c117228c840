//! The times at which the NF is told that time has passed.
//!
//! While frames come, the NF gets a tick every 50 ms. An NF with timers gets one more tick soon after the last frame,
//! and then names the time of its next work. Until then the thread sleeps, and costs nothing, however many entries
//! the NF's tables have.

use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::doorbell::AGEING_IDLE;
use std::time::Duration;

/// Shortest time between two ticks.
const TICK: Duration = Duration::from_millis(50);
/// Longest sleep before the tick that follows the last frame, while the NF has timers.
const SETTLING: Duration = Duration::from_millis(500);

/// The last tick.
#[derive(Debug, Default)]
pub struct Ticks {
    at: Nanos,
    /// Frames that had been received at that time.
    received: u64,
}

impl Ticks {
    /// Returns true if a tick is due, and records it as the last one; `received`: frames so far.
    pub fn is_due(&mut self, received: u64, now: Nanos) -> bool {
        if Duration::from_nanos(now.since(self.at).0) < TICK {
            return false;
        }
        *self = Ticks { at: now, received };
        true
    }

    /// Returns the longest time until the next tick if no frame comes.
    pub fn until_next(&self, nf: &dyn NetworkFunction, received: u64, now: Nanos) -> Duration {
        if !nf.has_timers() {
            return AGEING_IDLE;
        }
        if received != self.received {
            return SETTLING;
        }
        let left = nf.next_tick().since(now);
        Duration::from_nanos(left.0).clamp(TICK, AGEING_IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_nf::{ConfigError, Metric, PortInfo};
    use nfluid_ring::Batch;
    use serde_json::Value;

    /// An NF that waits for a time, or for nothing.
    struct Waiting(Option<Nanos>);

    impl NetworkFunction for Waiting {
        fn process(&mut self, _now: Nanos, _batch: &mut Batch<'_, '_>) {}

        fn has_timers(&self) -> bool {
            self.0.is_some()
        }

        fn next_tick(&self) -> Nanos {
            self.0.unwrap_or_default()
        }

        fn metrics(&self, _sink: &mut dyn FnMut(Metric)) {}

        fn reconfigure(&mut self, _: &Value, _: &[PortInfo]) -> Result<(), ConfigError> {
            Ok(())
        }
    }

    // promise: 10.24
    #[test]
    fn an_idle_nf_sleeps_until_it_has_something_to_do() {
        let s = Nanos::from_secs;
        let mut ticks = Ticks::default();
        let until = |ticks: &Ticks, nf: Option<Nanos>, received| {
            ticks.until_next(&Waiting(nf), received, s(100))
        };
        assert_eq!(until(&ticks, None, 7), AGEING_IDLE);
        assert_eq!(until(&ticks, Some(s(130)), 7), SETTLING, "frames came");
        assert!(ticks.is_due(7, s(100)));
        assert!(!ticks.is_due(7, s(100)), "it was just now");
        assert_eq!(until(&ticks, Some(s(130)), 7), Duration::from_secs(30));
        assert_eq!(until(&ticks, Some(s(90)), 7), TICK);
        assert_eq!(until(&ticks, Some(Nanos(u64::MAX)), 7), AGEING_IDLE);
        assert_eq!(until(&ticks, Some(s(130)), 8), SETTLING, "one more");
    }
}
