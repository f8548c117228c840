//! The distance of two cores. In a virtual machine it changes without notice, and with it every figure in which two
//! cores share memory: by a factor of several.

use super::cpu::pin;
use nfluid_figures::statistics::Samples;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BATCHES: u64 = 25;
const ROUND_TRIPS: u64 = 200;
/// Timeout: on a busy machine one of the two threads may not get its core.
const GIVE_UP: Duration = Duration::from_millis(40);
const SPINS_PER_LOOK: u32 = 1 << 12;

/// Up to this latency the cores certainly share a cache; a nearer place is not searched.
const NEAR_NS: f64 = 50.0;
/// A latency above the nearest by this factor means another placement.
const ELSEWHERE: f64 = 1.5;
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the cores are as near to each other as possible: all rounds of all variants then run in the same state
/// of the machine.
#[derive(Debug)]
pub struct Steady {
    nearest_ns: f64,
    /// Remaining waiting time.
    patience: Duration,
    waited: Duration,
}

impl Steady {
    /// `nearest_ns`: the known shortest latency; `patience`: total waiting time.
    pub fn new(nearest_ns: Option<f64>, patience: Duration) -> Self {
        Steady {
            nearest_ns: nearest_ns.unwrap_or(f64::INFINITY),
            patience,
            waited: Duration::ZERO,
        }
    }

    /// Searches the nearest placement, for a part of the waiting time.
    pub fn look_around(&mut self) {
        let end = self.waited + self.patience / 4;
        while self.nearest_ns > NEAR_NS && self.waited < end {
            self.pause();
            if let Some(ns) = core_to_core_ns([0, 1]) {
                self.nearest_ns = self.nearest_ns.min(ns);
            }
        }
    }

    /// Waits until the cores are near, or the waiting time is used up.
    pub fn settle(&mut self) {
        while let Some(ns) = core_to_core_ns([0, 1]) {
            self.nearest_ns = self.nearest_ns.min(ns);
            let settled = ns <= NEAR_NS.max(self.nearest_ns * ELSEWHERE);
            if settled || self.waited >= self.patience {
                return;
            }
            self.pause();
        }
    }

    /// Returns the time that it has waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    fn pause(&mut self) {
        thread::sleep(PAUSE);
        self.waited += PAUSE;
    }
}

/// Returns the nanoseconds until one core sees a value that the other writes, as the median of short series; `None` if
/// the two threads do not run at the same time.
pub fn core_to_core_ns(cores: [usize; 2]) -> Option<f64> {
    let ball = AtomicU64::new(0);
    let deadline = Instant::now() + GIVE_UP;
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(cores[1])?;
            (0..BATCHES * ROUND_TRIPS).try_for_each(|round| {
                await_value(&ball, 2 * round + 1, deadline)?;
                ball.store(2 * round + 2, Ordering::Release);
                Some(())
            })
        });
        // Separate threads: the caller keeps its core affinity.
        let one = scope.spawn(|| {
            pin(cores[0])?;
            (0..BATCHES)
                .map(|batch| series(&ball, batch * ROUND_TRIPS, deadline))
                .collect::<Option<Samples>>()
        });
        let samples = one.join().ok()??;
        other.join().ok()??;
        Some(samples.median())
    })
}

/// Returns the time of one way in nanoseconds, the mean of some round trips.
fn series(ball: &AtomicU64, first: u64, deadline: Instant) -> Option<f64> {
    let start = Instant::now();
    for round in first..first + ROUND_TRIPS {
        ball.store(2 * round + 1, Ordering::Release);
        await_value(ball, 2 * round + 2, deadline)?;
    }
    Some(start.elapsed().as_nanos() as f64 / (2 * ROUND_TRIPS) as f64)
}

fn await_value(ball: &AtomicU64, value: u64, deadline: Instant) -> Option<()> {
    loop {
        for _ in 0..SPINS_PER_LOOK {
            if ball.load(Ordering::Acquire) == value {
                return Some(());
            }
            std::hint::spin_loop();
        }
        if Instant::now() > deadline {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Steady, core_to_core_ns};
    use std::time::Duration;

    #[test]
    fn patience_is_bounded() {
        // No cores are that near to each other.
        let mut steady = Steady::new(Some(0.0), Duration::from_millis(200));
        steady.look_around();
        steady.nearest_ns = 0.0;
        steady.settle();
        steady.settle();
        assert!(steady.waited() <= Duration::from_millis(200));
    }

    #[test]
    fn a_core_that_does_not_exist_has_no_distance() {
        assert_eq!(core_to_core_ns([0, 1000]), None);
    }
}
