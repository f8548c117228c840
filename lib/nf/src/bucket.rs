//! A token bucket for the packets that a network function makes itself.

use crate::function::Nanos;
use serde::Deserialize;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Rate and depth of a bucket. The default is that of ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rate {
    /// Tokens per second.
    pub(crate) per_second: u32,
    /// Most tokens at once.
    pub(crate) burst: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Rate {
            per_second: 1000,
            burst: 100,
        }
    }
}

/// Tokens in units of 1/10^9 of a token, so that nothing is lost to rounding. Starts full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    spent: u64,
    filled: Nanos,
}

impl Bucket {
    /// Takes a token; `false` if there is none.
    pub(crate) fn take(&mut self, rate: Rate, now: Nanos) -> bool {
        let gained = now.since(self.filled).0;
        let gained = gained.saturating_mul(u64::from(rate.per_second));
        self.filled = now;
        self.spent = self.spent.saturating_sub(gained);
        let after = self.spent + NANOS_PER_SECOND;
        let allowed = after <= u64::from(rate.burst) * NANOS_PER_SECOND;
        if allowed {
            self.spent = after;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_a_burst_and_then_the_rate() {
        let rate = Rate {
            per_second: 10,
            burst: 5,
        };
        let mut bucket = Bucket::default();
        let mut take = |millis: u64| bucket.take(rate, Nanos(millis * 1_000_000));
        assert_eq!((0..9).filter(|_| take(0)).count(), 5);
        assert!(!take(99));
        assert!(take(100));
        assert!(!take(101));
        assert_eq!((0..9).filter(|_| take(60_000)).count(), 5);
    }
}
