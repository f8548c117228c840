//! How far two cores are from each other. In a virtual machine that changes while one looks away,
//! and with it every figure in which two cores share memory: several times as much or as little.

use crate::statistics::Samples;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BATCHES: u64 = 25;
const ROUND_TRIPS: u64 = 200;
/// On a busy machine one of the two may not get its core.
const GIVE_UP: Duration = Duration::from_millis(300);
const SPINS_PER_LOOK: u32 = 1 << 12;

/// Nanoseconds until a value that one core writes is seen by the other one, median of short series;
/// nothing if the two do not run at the same time.
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
        // Threads of their own: the caller keeps its cores.
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

/// One way in nanoseconds, mean of some round trips.
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

fn pin(core: usize) -> Option<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).ok()
}

#[cfg(test)]
mod tests {
    use super::core_to_core_ns;

    #[test]
    fn a_core_that_does_not_exist_has_no_distance() {
        assert_eq!(core_to_core_ns([0, 1000]), None);
    }
}
