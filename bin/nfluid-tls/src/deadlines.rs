//! The deadlines of connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Times, each with the number of its connection. A connection that has a later deadline by then is inserted again by
/// the caller.
#[derive(Debug, Default)]
pub struct Deadlines {
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Deadlines {
    /// Adds a deadline.
    pub fn put(&mut self, at: Instant, whose: u64) {
        self.queue.push(Reverse((at, whose)));
    }

    /// Removes and returns the earliest deadline that is not later than `now`.
    pub fn due(&mut self, now: Instant) -> Option<(Instant, u64)> {
        let Reverse((at, _)) = self.queue.peek()?;
        if *at > now {
            return None;
        }
        self.queue.pop().map(|Reverse(due)| due)
    }

    /// Returns the time until the earliest deadline; `None` if there is none.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let Reverse((at, _)) = self.queue.peek()?;
        Some(at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_not_before_its_time() {
        let now = Instant::now();
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.wait(now), None);
        let late = now + Duration::from_secs(5);
        deadlines.put(late, 1);
        deadlines.put(now, 2);
        assert_eq!(deadlines.due(now), Some((now, 2)));
        assert_eq!(deadlines.due(now), None);
        assert_eq!(deadlines.wait(now), Some(Duration::from_secs(5)));
        assert_eq!(deadlines.due(late), Some((late, 1)));
    }
}
