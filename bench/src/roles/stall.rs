//! Detection of stalls: times in which no frame returns.

use nfluid_ring::clock::monotonic_ns;

/// Detects when frames in flight count as late or lost.
pub struct Stall {
    since: Option<u64>,
    limit_ns: u64,
}

impl Stall {
    /// Makes a detector: frames count as lost when none has arrived for longer than `limit_ns`.
    pub fn new(limit_ns: u64) -> Self {
        Stall {
            since: None,
            limit_ns,
        }
    }

    /// Notes that no frame has arrived. Returns true if the stall has lasted too long, and then starts anew.
    pub fn is_over(&mut self) -> bool {
        let now = monotonic_ns();
        let is_over = now - *self.since.get_or_insert(now) > self.limit_ns;
        if is_over {
            self.since = None;
        }
        is_over
    }

    /// Notes that a frame has arrived, or that none is awaited.
    pub fn end(&mut self) {
        self.since = None;
    }
}
