//! The two markers, colour-blind, in exact integer arithmetic.
//!
//! Tokens are kept in billionths of a bit, so that a rate in bit/s times a time in ns needs no
//! division and no rounding: a slow rate loses nothing to frequent packets.
//!
//! A super-frame has one colour: that of its first packet. It takes the tokens of all its packets, and its bucket may owe
//! some of them afterwards: else a super-frame would never pass a burst that is smaller. No packet has the colour of a
//! bucket that owes tokens, so the rates hold; a burst is exceeded by less than one super-frame.

use crate::function::Nanos;
use nfluid_ring::layout::LONG_MAX;
use nfluid_ring::offload::{HEADERS_MAX, TCP_SEGMENT_MIN};
use serde::{Deserialize, Serialize};

/// Billionths of a bit per byte.
const UNITS_PER_BYTE: u64 = 8_000_000_000;
/// Largest burst in bytes: what fits 64 bits with headroom for one refill.
pub(super) const BURST_MAX: u64 = 1 << 30;
/// Highest rate in bit/s.
pub(super) const RATE_MAX: u64 = 1_000_000_000_000;

/// Most tokens that a bucket may owe, in bytes: more than all packets of a super-frame have.
const DEBT_MAX: u64 = 1 << 19;
const _: () = assert!(LONG_MAX + LONG_MAX / TCP_SEGMENT_MIN * HEADERS_MAX < DEBT_MAX as usize);
/// The value of a bucket without tokens, in billionths of a bit. Values below are tokens that the bucket owes.
const EMPTY: u64 = DEBT_MAX * UNITS_PER_BYTE;

/// The bytes of a frame that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Of its first packet.
    pub(super) first: usize,
    /// Of all its packets: at most [`DEBT_MAX`].
    pub(super) all: usize,
}

impl Size {
    /// Of a frame that is one packet of `bytes`.
    pub(super) const fn one(bytes: usize) -> Self {
        Size {
            first: bytes,
            all: bytes,
        }
    }
}

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

    /// The colour of a frame, which takes the tokens of all its packets.
    pub(super) fn colour(&mut self, limits: Limits, now: Nanos, size: Size) -> Colour {
        self.refill(limits, now);
        let needed = EMPTY.saturating_add((size.first as u64).saturating_mul(UNITS_PER_BYTE));
        let cost = (size.all as u64).saturating_mul(UNITS_PER_BYTE);
        let take = |bucket: &mut u64| *bucket = bucket.saturating_sub(cost);
        match limits {
            Limits::SingleRate { .. } if self.committed >= needed => {
                take(&mut self.committed);
                Colour::Green
            }
            Limits::SingleRate { .. } if self.second >= needed => {
                take(&mut self.second);
                Colour::Yellow
            }
            Limits::SingleRate { .. } => Colour::Red,
            Limits::TwoRates { .. } if self.second < needed => Colour::Red,
            Limits::TwoRates { .. } if self.committed < needed => {
                take(&mut self.second);
                Colour::Yellow
            }
            Limits::TwoRates { .. } => {
                take(&mut self.second);
                take(&mut self.committed);
                Colour::Green
            }
        }
    }

    /// True if nothing would be lost by forgetting these buckets: they are full.
    pub(super) fn is_full(&mut self, limits: Limits, now: Nanos) -> bool {
        self.refill(limits, now);
        (self.committed, self.second) == limits.bursts()
    }

    /// The values of both buckets, which [`Buckets::at_level`] takes.
    pub(super) fn level(mut self, limits: Limits, now: Nanos) -> (u64, u64) {
        self.refill(limits, now);
        (self.committed, self.second)
    }

    /// The level of buckets that hold so many tokens, in billionths of a bit, and owe none.
    pub(super) const fn level_of((committed, second): (u64, u64)) -> (u64, u64) {
        (
            committed.saturating_add(EMPTY),
            second.saturating_add(EMPTY),
        )
    }

    /// Buckets at such a level, as far as they hold the tokens.
    pub(super) fn at_level(limits: Limits, (committed, second): (u64, u64), now: Nanos) -> Buckets {
        let (committed_max, second_max) = limits.bursts();
        Buckets {
            committed: committed.min(committed_max),
            second: second.min(second_max),
            filled: now,
        }
    }

    /// Whole bytes of tokens in both buckets; negative: tokens that the bucket owes.
    pub(super) fn tokens(mut self, limits: Limits, now: Nanos) -> (i64, i64) {
        self.refill(limits, now);
        let bytes = |value: u64| (value / UNITS_PER_BYTE) as i64 - DEBT_MAX as i64;
        (bytes(self.committed), bytes(self.second))
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
    /// The values of both buckets when they are full.
    fn bursts(self) -> (u64, u64) {
        let (committed, second) = match self {
            Limits::SingleRate { cbs, ebs, .. } => (cbs, ebs),
            Limits::TwoRates { cbs, pbs, .. } => (cbs, pbs),
        };
        let full = |bytes: u64| {
            bytes
                .saturating_add(DEBT_MAX)
                .saturating_mul(UNITS_PER_BYTE)
        };
        (full(committed), full(second))
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
        let mut colour =
            |&(at, bytes): &(u64, usize)| buckets.colour(limits, Nanos(at), Size::one(bytes));
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

    /// Catches: a super-frame that never passes, or that passes without paying for its later packets.
    #[test]
    fn a_super_frame_passes_with_its_first_packet_and_the_rest_is_owed() {
        let whole = Size {
            first: 1500,
            all: 60_000,
        };
        let one = Size::one(1500);
        let rates = [
            Limits::SingleRate {
                cir: 8000,
                cbs: 2000,
                ebs: 0,
            },
            Limits::TwoRates {
                cir: 8000,
                cbs: 2000,
                pir: 8000,
                pbs: 2000,
            },
        ];
        for limits in rates {
            let mut buckets = Buckets::full(limits, Nanos(0));
            let mut colour = |at: u64, size| buckets.colour(limits, Nanos(at * SECOND), size);
            assert_eq!(colour(0, whole), Green);
            // 58,000 bytes are owed: 58 s later the bucket is empty, and 1.5 s later there is one packet's worth.
            assert_eq!(
                [colour(1, Size::one(20)), colour(58, Size::one(20))],
                [Red; 2]
            );
            assert_eq!([colour(59, one), colour(60, one)], [Red, Green]);
            assert_eq!(buckets.tokens(limits, Nanos(60 * SECOND)).0, 500);
            assert_eq!(buckets.colour(limits, Nanos(60 * SECOND), whole), Red);
            buckets.colour(limits, Nanos(62 * SECOND), whole);
            assert_eq!(buckets.tokens(limits, Nanos(62 * SECOND)).0, -58_000);
        }
    }

    /// Catches: a yellow super-frame that is charged to the wrong bucket, or to none.
    #[test]
    fn a_yellow_super_frame_owes_the_excess_bucket() {
        let limits = Limits::SingleRate {
            cir: 8000,
            cbs: 2000,
            ebs: 3000,
        };
        let mut buckets = Buckets::full(limits, Nanos(0));
        let whole = Size {
            first: 1500,
            all: 10_000,
        };
        buckets.colour(limits, Nanos(0), Size::one(2000));
        assert_eq!(buckets.colour(limits, Nanos(0), whole), Yellow);
        assert_eq!(buckets.tokens(limits, Nanos(0)), (0, -7000));
    }

    #[test]
    fn the_largest_burst_and_the_largest_debt_fit() {
        let limits = Limits::TwoRates {
            cir: RATE_MAX,
            cbs: BURST_MAX,
            pir: RATE_MAX,
            pbs: BURST_MAX,
        };
        let mut buckets = Buckets::full(limits, Nanos(0));
        let full = buckets.tokens(limits, Nanos(0));
        assert_eq!(full, (BURST_MAX as i64, BURST_MAX as i64));
        buckets.committed = EMPTY;
        let all = DEBT_MAX as usize;
        buckets.colour(limits, Nanos(0), Size { first: 0, all });
        assert_eq!(buckets.tokens(limits, Nanos(0)).0, -(DEBT_MAX as i64));
        assert_eq!(buckets.tokens(limits, Nanos(u64::MAX)), full);
    }

    proptest! {
        /// However packets come, no more green bytes pass than rate and burst allow, and one super-frame.
        #[test]
        fn green_traffic_stays_within_the_committed_rate(
            cir in 1u64..1_000_000,
            cbs in 1u64..5_000,
            two: bool,
            gaps in proptest::collection::vec((0u64..50_000_000, 1usize..1600, 1usize..45), 1..300),
        ) {
            let limits = if two {
                Limits::TwoRates { cir, cbs, pir: cir * 2, pbs: cbs * 2 }
            } else {
                Limits::SingleRate { cir, cbs, ebs: cbs }
            };
            let mut buckets = Buckets::full(limits, Nanos(0));
            let (mut now, mut green, mut passed) = (0u64, 0u128, 0u128);
            let mut longest = 0;
            for (gap, bytes, packets) in gaps {
                now += gap;
                let all = bytes * packets;
                longest = longest.max(all - bytes);
                match buckets.colour(limits, Nanos(now), Size { first: bytes, all }) {
                    Green => green += all as u128,
                    Yellow => passed += all as u128,
                    Red => {}
                }
            }
            // Each of the two buckets may owe the later packets of one super-frame.
            let allowed = |rate: u64, burst: u64| {
                let rate = u128::from(rate) * u128::from(now) / 8_000_000_000;
                u128::from(burst) + rate + 1 + longest as u128
            };
            prop_assert!(green <= allowed(cir, cbs));
            let total = if two { allowed(cir * 2, cbs * 2) } else { allowed(cir, cbs * 2) };
            prop_assert!(green + passed <= total + longest as u128);
        }

        /// Refilling in small steps is refilling at once.
        #[test]
        fn nothing_is_lost_to_rounding(cir in 1u64..100, steps in 1u64..1000) {
            let limits = Limits::SingleRate { cir, cbs: 1 << 20, ebs: 0 };
            let mut often = Buckets::full(limits, Nanos(0));
            often.colour(limits, Nanos(0), Size::one(1 << 20));
            let mut once = often;
            for step in 1..=steps {
                often.refill(limits, Nanos(step * 1_000_003));
            }
            once.refill(limits, Nanos(steps * 1_000_003));
            prop_assert_eq!(often.committed, once.committed);
        }
    }
}
