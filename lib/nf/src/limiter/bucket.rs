//! The two markers, colour-blind, in exact integer arithmetic.
//!
//! Tokens are kept in billionths of a bit, so that a rate in bit/s times a time in ns needs no
//! division and no rounding: a slow rate loses nothing to frequent packets.

use crate::function::Nanos;
use serde::{Deserialize, Serialize};

/// Billionths of a bit per byte.
const UNITS_PER_BYTE: u64 = 8_000_000_000;
/// Largest burst in bytes: what fits 64 bits with headroom for one refill.
pub(super) const BURST_MAX: u64 = 1 << 30;
/// Highest rate in bit/s.
pub(super) const RATE_MAX: u64 = 1_000_000_000_000;

/// A packet's colour (RFC 2697 section 3, RFC 2698 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// Within the committed rate.
    Green,
    /// Above it, within the excess.
    Yellow,
    /// Beyond.
    Red,
}

/// The rates and sizes of a pair of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Limits {
    /// RFC 2697: one rate; what overflows the committed bucket fills the excess bucket.
    SingleRate {
        /// Committed information rate in bit/s.
        cir: u64,
        /// Committed burst size in bytes.
        cbs: u64,
        /// Excess burst size in bytes.
        ebs: u64,
    },
    /// RFC 2698: two rates.
    TwoRates {
        /// Committed information rate in bit/s.
        cir: u64,
        /// Committed burst size in bytes.
        cbs: u64,
        /// Peak information rate in bit/s, at least the committed one.
        pir: u64,
        /// Peak burst size in bytes.
        pbs: u64,
    },
}

/// A pair of token buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    committed: u64,
    /// The excess bucket of RFC 2697, the peak bucket of RFC 2698.
    second: u64,
    filled: Nanos,
}

impl Buckets {
    /// Full buckets, as both RFCs start.
    pub(super) fn full(limits: Limits, now: Nanos) -> Buckets {
        let (committed, second) = limits.bursts();
        Buckets {
            committed,
            second,
            filled: now,
        }
    }

    /// The colour of a packet of `bytes`, which takes its tokens.
    pub(super) fn colour(&mut self, limits: Limits, now: Nanos, bytes: usize) -> Colour {
        self.refill(limits, now);
        let cost = (bytes as u64).saturating_mul(UNITS_PER_BYTE);
        match limits {
            Limits::SingleRate { .. } if self.committed >= cost => {
                self.committed -= cost;
                Colour::Green
            }
            Limits::SingleRate { .. } if self.second >= cost => {
                self.second -= cost;
                Colour::Yellow
            }
            Limits::SingleRate { .. } => Colour::Red,
            Limits::TwoRates { .. } if self.second < cost => Colour::Red,
            Limits::TwoRates { .. } if self.committed < cost => {
                self.second -= cost;
                Colour::Yellow
            }
            Limits::TwoRates { .. } => {
                self.second -= cost;
                self.committed -= cost;
                Colour::Green
            }
        }
    }

    /// True if nothing would be lost by forgetting these buckets: they are full.
    pub(super) fn is_full(&mut self, limits: Limits, now: Nanos) -> bool {
        self.refill(limits, now);
        (self.committed, self.second) == limits.bursts()
    }

    /// The tokens of both buckets, in billionths of a bit.
    pub(super) fn level(mut self, limits: Limits, now: Nanos) -> (u64, u64) {
        self.refill(limits, now);
        (self.committed, self.second)
    }

    /// Buckets with so many tokens, as far as they hold them.
    pub(super) fn at_level(limits: Limits, (committed, second): (u64, u64), now: Nanos) -> Buckets {
        let (committed_max, second_max) = limits.bursts();
        Buckets {
            committed: committed.min(committed_max),
            second: second.min(second_max),
            filled: now,
        }
    }

    /// Whole bytes of tokens in both buckets.
    pub(super) fn tokens(mut self, limits: Limits, now: Nanos) -> (u64, u64) {
        self.refill(limits, now);
        (
            self.committed / UNITS_PER_BYTE,
            self.second / UNITS_PER_BYTE,
        )
    }

    fn refill(&mut self, limits: Limits, now: Nanos) {
        let elapsed = now.since(self.filled).0;
        self.filled = self.filled.max(now);
        let (committed_max, second_max) = limits.bursts();
        match limits {
            Limits::SingleRate { cir, .. } => {
                let total = self.committed.saturating_add(cir.saturating_mul(elapsed));
                self.committed = total.min(committed_max);
                let overflow = total - self.committed;
                self.second = self.second.saturating_add(overflow).min(second_max);
            }
            Limits::TwoRates { cir, pir, .. } => {
                let add =
                    |tokens: u64, rate: u64| tokens.saturating_add(rate.saturating_mul(elapsed));
                self.committed = add(self.committed, cir).min(committed_max);
                self.second = add(self.second, pir).min(second_max);
            }
        }
    }
}

impl Limits {
    /// Sizes of both buckets in billionths of a bit.
    fn bursts(self) -> (u64, u64) {
        let (committed, second) = match self {
            Limits::SingleRate { cbs, ebs, .. } => (cbs, ebs),
            Limits::TwoRates { cbs, pbs, .. } => (cbs, pbs),
        };
        let units = |bytes: u64| bytes.saturating_mul(UNITS_PER_BYTE);
        (units(committed), units(second))
    }
}

#[cfg(test)]
mod tests {
    use super::Colour::{Green, Red, Yellow};
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const SECOND: u64 = 1_000_000_000;

    fn colours(limits: Limits, packets: &[(u64, usize)]) -> Vec<Colour> {
        let mut buckets = Buckets::full(limits, Nanos(0));
        let mut colour = |&(at, bytes): &(u64, usize)| buckets.colour(limits, Nanos(at), bytes);
        packets.iter().map(&mut colour).collect()
    }

    #[test]
    fn one_rate_goes_green_yellow_red_and_recovers() {
        let limits = Limits::SingleRate {
            cir: 8000,
            cbs: 1000,
            ebs: 500,
        };
        let packets = [
            (0, 1000),
            (0, 500),
            (0, 1),
            // 1000 bytes/s: after one second the committed bucket is full again, and the excess
            // one only gets what overflows.
            (SECOND, 1000),
            (SECOND, 1),
            (SECOND * 5 / 2, 1000),
            (SECOND * 5 / 2, 500),
            (SECOND * 5 / 2, 1),
        ];
        let expected = [Green, Yellow, Red, Green, Red, Green, Yellow, Red];
        assert_eq!(colours(limits, &packets), expected);
    }

    #[test]
    fn two_rates_go_green_yellow_red_and_recover() {
        let limits = Limits::TwoRates {
            cir: 8000,
            cbs: 1000,
            pir: 16_000,
            pbs: 1500,
        };
        let packets = [
            (0, 1000),
            (0, 500),
            (0, 1),
            (SECOND / 2, 500),
            (SECOND / 2, 500),
            (SECOND / 2, 1),
        ];
        assert_eq!(
            colours(limits, &packets),
            [Green, Yellow, Red, Green, Yellow, Red]
        );
    }

    #[test]
    fn time_that_stands_still_or_goes_back_gives_nothing() {
        let limits = Limits::SingleRate {
            cir: RATE_MAX,
            cbs: 100,
            ebs: 0,
        };
        let packets = [(SECOND, 100), (SECOND, 1), (0, 1), (u64::MAX, 100)];
        assert_eq!(colours(limits, &packets), [Green, Red, Red, Green]);
    }

    proptest! {
        /// However packets come, no more green bytes pass than rate and burst allow.
        #[test]
        fn green_traffic_stays_within_the_committed_rate(
            cir in 1u64..1_000_000,
            cbs in 1u64..5_000,
            two: bool,
            gaps in proptest::collection::vec((0u64..50_000_000, 1usize..1600), 1..300),
        ) {
            let limits = if two {
                Limits::TwoRates { cir, cbs, pir: cir * 2, pbs: cbs * 2 }
            } else {
                Limits::SingleRate { cir, cbs, ebs: cbs }
            };
            let mut buckets = Buckets::full(limits, Nanos(0));
            let (mut now, mut green, mut passed) = (0u64, 0u128, 0u128);
            for (gap, bytes) in gaps {
                now += gap;
                match buckets.colour(limits, Nanos(now), bytes) {
                    Green => green += bytes as u128,
                    Yellow => passed += bytes as u128,
                    Red => {}
                }
            }
            let allowed = |rate: u64, burst: u64| {
                u128::from(burst) + u128::from(rate) * u128::from(now) / 8_000_000_000 + 1
            };
            prop_assert!(green <= allowed(cir, cbs));
            let total = if two { allowed(cir * 2, cbs * 2) } else { allowed(cir, cbs * 2) };
            prop_assert!(green + passed <= total);
        }

        /// Refilling in small steps is refilling at once.
        #[test]
        fn nothing_is_lost_to_rounding(cir in 1u64..100, steps in 1u64..1000) {
            let limits = Limits::SingleRate { cir, cbs: 1 << 20, ebs: 0 };
            let mut often = Buckets::full(limits, Nanos(0));
            often.colour(limits, Nanos(0), 1 << 20);
            let mut once = often;
            for step in 1..=steps {
                often.refill(limits, Nanos(step * 1_000_003));
            }
            once.refill(limits, Nanos(steps * 1_000_003));
            prop_assert_eq!(often.committed, once.committed);
        }
    }
}
