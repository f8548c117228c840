//! Time in which nothing comes back.

use nfluid_ring::clock::monotonic_ns;

/// Tells when frames that are under way count as late or lost.
pub struct Stall {
    since: Option<u64>,
    limit_ns: u64,
}

impl Stall {
    /// They do when nothing has come for longer than `limit_ns`.
    pub fn new(limit_ns: u64) -> Self {
        Stall {
            since: None,
            limit_ns,
        }
    }

    /// Nothing has come. Whether that has lasted too long; then it begins anew.
    pub fn is_over(&mut self) -> bool {
        let now = monotonic_ns();
        let is_over = now - *self.since.get_or_insert(now) > self.limit_ns;
        if is_over {
            self.since = None;
        }
        is_over
    }

    /// Something has come, or nothing is waited for: the next run begins later.
    pub fn end(&mut self) {
        self.since = None;
    }
}
