//! Turns on a core that others share: bounded batches, and points at which the others may run.
//!
//! The kernel chooses the running thread at its timer's ticks, 4 ms apart where there are 250 of them in a second,
//! and when a thread wakes. A thread that always has frames thus keeps its core for a tick, and a thread that wakes
//! behind several such threads waits for a tick of each. Here the thread itself lets the kernel choose once per turn,
//! between two batches, and takes no more frames at once than the thread handles within a turn. A turn costs a system
//! call and changes no share: the kernel chooses the next thread by the CPU time that each cgroup has had so far.
//! Measured: `nfluid-bench noisy`, `r4`.

use crate::clock::monotonic_ns;
use crate::layout::BATCH_MAX;
use crate::slice::Slices;
use rustix::thread::sched_yield;

/// A turn in nanoseconds. At the end of a turn the kernel nearly always runs another waiting thread, so caches are
/// cold once per turn: an NF needs about 10 us to fill them again. With turns of 200 us an NF with a fifth of the
/// core lost 5 % of its throughput by cold caches.
const TURN_NS: u64 = 1_000_000;
/// A thread that finds fewer frames than this before there is nothing to do need not look at the clock.
const FEW: usize = 8;
/// A thread that finds as many frames has much to do.
const MANY: usize = 256;

/// The turns of one thread.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Frames since there was nothing to do.
    frames: usize,
    /// The time at which the turn began; `None` before there are more than a few frames.
    began_ns: Option<u64>,
    /// The time at which the batch at hand began.
    batch_began_ns: u64,
    /// Frames to take at once.
    batch: usize,
    slices: Slices,
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            frames: 0,
            began_ns: None,
            batch_began_ns: 0,
            batch: BATCH_MAX,
            slices: Slices::default(),
        }
    }
}

impl Turns {
    /// Frames to take at once.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Ends the turn: no frames wait, and the next frame begins another turn.
    pub fn idle(&mut self) {
        match self.frames {
            0 => {}
            1..FEW => self.slices.few(monotonic_ns),
            FEW..MANY => {}
            MANY.. => self.slices.many(),
        }
        self.frames = 0;
        self.began_ns = None;
    }

    /// A batch begins: how long it takes is its own time, not that of whatever the thread did before.
    pub fn start(&mut self) {
        if self.began_ns.is_some() {
            self.batch_began_ns = monotonic_ns();
        }
    }

    /// A batch of `frames` has been handled. Is it time to let others run, by [`Turns::pass`]?
    pub fn is_over(&mut self, frames: usize) -> bool {
        self.frames += frames;
        self.frames >= FEW && self.is_over_at(frames, monotonic_ns())
    }

    /// Lets others run; the next turn begins when the kernel says so.
    pub fn pass(&mut self) {
        self.slices.many();
        sched_yield();
        self.began_ns = Some(monotonic_ns());
    }

    fn is_over_at(&mut self, frames: usize, now_ns: u64) -> bool {
        let Some(began_ns) = self.began_ns else {
            self.began_ns = Some(now_ns);
            return false;
        };
        self.bound(frames, now_ns.saturating_sub(self.batch_began_ns));
        now_ns.saturating_sub(began_ns) >= TURN_NS
    }

    /// Halves the batch if its frames took more than a turn, and doubles the batch if its frames took little of a
    /// turn. The time of another thread that ran in between is counted too: a single batch that is too small costs
    /// little.
    fn bound(&mut self, frames: usize, took_ns: u64) {
        if took_ns > TURN_NS {
            self.batch = (frames / 2).max(1);
        } else if took_ns < TURN_NS / 4 {
            self.batch = (self.batch * 2).min(BATCH_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_MAX, TURN_NS, Turns};

    // promise: 1.32
    #[test]
    fn a_turn_is_over_after_its_time() {
        let mut turns = Turns::default();
        assert!(!turns.is_over_at(BATCH_MAX, 1000), "it begins");
        assert!(!turns.is_over_at(BATCH_MAX, 1000 + TURN_NS / 2));
        assert!(turns.is_over_at(BATCH_MAX, 1000 + TURN_NS));
        turns.idle();
        assert!(!turns.is_over_at(BATCH_MAX, 1000 + 2 * TURN_NS), "another");
    }

    // promise: 1.32
    #[test]
    fn a_few_frames_need_no_clock_and_no_turn() {
        let mut turns = Turns::default();
        assert!(!turns.is_over(1) && turns.began_ns.is_none());
        assert!(!turns.is_over(BATCH_MAX) && turns.began_ns.is_some());
    }

    // promise: 1.32
    #[test]
    fn dear_frames_make_small_batches_and_cheap_ones_large_batches() {
        let mut turns = Turns::default();
        let mut now = 0;
        let mut after = |ns| {
            turns.batch_began_ns = now;
            now += ns;
            let batch = turns.batch();
            turns.is_over_at(batch, now);
            turns.batch()
        };
        after(1);
        assert_eq!(after(2 * TURN_NS), BATCH_MAX / 2);
        for _ in 0..BATCH_MAX {
            after(2 * TURN_NS);
        }
        assert_eq!(after(2 * TURN_NS), 1, "never none");
        for _ in 0..BATCH_MAX {
            after(1);
        }
        assert_eq!(after(1), BATCH_MAX);
    }
}
