//! Time in nanoseconds, passed as a parameter, so that every loop of this crate can be tested without waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds per second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// A clock that never goes backwards.
pub trait Clock {
    /// Nanoseconds since a point that stays the same for all processes of the host.
    fn now_ns(&self) -> u64;

    /// Passes about `ns` nanoseconds without using the CPU more than needed.
    fn pause(&self, ns: u64);
}

/// `CLOCK_MONOTONIC`: the same for all processes and network namespaces of a host, so that a
/// latency measured from one to the other is a true one-way delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

/// Waits shorter than this are not slept: a sleep overshoots by about this much. The core is
/// offered to others meanwhile, because the receiver may need the very same one.
const SPIN_NS_MAX: u64 = 60_000;

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
        time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64
    }

    fn pause(&self, ns: u64) {
        if ns > SPIN_NS_MAX {
            std::thread::sleep(Duration::from_nanos(ns - SPIN_NS_MAX));
        } else {
            std::thread::yield_now();
        }
    }
}

/// A clock that moves only when it is set, or when a caller waits. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now_ns: Arc<AtomicU64>,
}

impl ManualClock {
    /// Moves the time on by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn pause(&self, ns: u64) {
        self.advance(ns.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_the_time() {
        let clock = ManualClock::default();
        let other = clock.clone();
        clock.pause(500);
        clock.pause(0);
        assert_eq!(other.now_ns(), 501);
    }

    #[test]
    fn the_monotonic_clock_passes_at_least_a_sleep() {
        let clock = MonotonicClock;
        let before_ns = clock.now_ns();
        while clock.now_ns() - before_ns < 200_000 {
            clock.pause(200_000);
        }
        assert!(clock.now_ns() > before_ns);
    }
}
