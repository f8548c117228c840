//! A share of a core, and how each hierarchy writes it.

use super::CgroupError;
use std::fmt;

/// A part of one core in per-mille: 1000 is a whole core, 250 a quarter, 4000 four cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// The kernel's smallest quota, and the smallest and largest period, in microseconds (kernel/sched/core.c).
const QUOTA_US_MIN: u64 = 1_000;
const PERIOD_US_MAX: u64 = 1_000_000;
/// The period for caps of 10 % of a core and more, in microseconds.
const PERIOD_US: u64 = 10_000;

impl Share {
    /// The largest share: 1000 cores.
    pub const MAX_PER_MILLE: u32 = 1_000_000;
    /// The share whose weight a group has that was given none: `cpu.weight` 100, `cpu.shares` 1024.
    pub const DEFAULT: Share = Share(100);

    /// A share of `per_mille` thousandths of a core, 1 to [`Share::MAX_PER_MILLE`].
    pub fn from_per_mille(per_mille: u32) -> Result<Self, CgroupError> {
        if (1..=Self::MAX_PER_MILLE).contains(&per_mille) {
            Ok(Self(per_mille))
        } else {
            Err(CgroupError::BadShare {
                per_mille,
                max: Self::MAX_PER_MILLE,
            })
        }
    }

    /// A share of `percent` hundredths of a core, 1 to 100,000.
    pub fn from_percent(percent: u32) -> Result<Self, CgroupError> {
        Self::from_per_mille(percent.saturating_mul(10))
    }

    /// Thousandths of a core.
    pub fn per_mille(self) -> u32 {
        self.0
    }

    /// The v2 weight, 1 to 10000.
    pub(super) fn weight_v2(self) -> u32 {
        self.0.min(10_000)
    }

    /// The v1 weight, 2 to 102400: the same scheduler weight as [`Share::weight_v2`] gives.
    pub(super) fn weight_v1(self) -> u32 {
        let scaled = (u64::from(self.weight_v2()) * 1024).div_ceil(100);
        u32::try_from(scaled).unwrap_or(u32::MAX).max(2)
    }

    /// The cap as (quota, period) in microseconds.
    pub(super) fn quota_and_period_us(self) -> (u64, u64) {
        let share = u64::from(self.0);
        let period = (QUOTA_US_MIN * 1000)
            .div_ceil(share)
            .clamp(PERIOD_US, PERIOD_US_MAX);
        (period * share / 1000, period)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} %", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_and_absurd_shares_are_refused() {
        assert!(Share::from_per_mille(0).is_err());
        assert!(Share::from_percent(0).is_err());
        assert!(Share::from_percent(u32::MAX).is_err());
        assert!(Share::from_per_mille(Share::MAX_PER_MILLE + 1).is_err());
    }

    #[test]
    fn a_half_weighs_half() {
        let whole = Share::from_percent(100).expect("legal");
        let half = Share::from_percent(50).expect("legal");
        assert_eq!(whole.weight_v2(), 2 * half.weight_v2());
        assert_eq!(whole.weight_v1(), 2 * half.weight_v1());
        assert_eq!(whole.to_string(), "100.0 %");
    }

    proptest! {
        #[test]
        fn weights_are_in_range_and_monotonic(a in 1u32..=1_000_000, b in 1u32..=1_000_000) {
            let (low, high) = (Share(a.min(b)), Share(a.max(b)));
            prop_assert!((1..=10_000).contains(&low.weight_v2()));
            prop_assert!((2..=262_144).contains(&low.weight_v1()));
            prop_assert!(low.weight_v2() <= high.weight_v2());
            prop_assert!(low.weight_v1() <= high.weight_v1());
        }

        #[test]
        fn caps_are_legal_and_within_a_thousandth(per_mille in 1u32..=1_000_000) {
            let (quota, period) = Share(per_mille).quota_and_period_us();
            prop_assert!(quota >= QUOTA_US_MIN);
            prop_assert!((PERIOD_US..=PERIOD_US_MAX).contains(&period));
            let got = quota as f64 / period as f64 * 1000.0;
            prop_assert!((got - f64::from(per_mille)).abs() <= 1.0, "{per_mille} became {got}");
        }
    }
}
