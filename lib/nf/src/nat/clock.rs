//! Time as the tables keep it: tenths of a second in 32 bits, enough for 13 years of uptime.

use crate::function::Nanos;

const NANOS_PER_TENTH: u64 = 100_000_000;

/// A moment, in tenths of a second since the host's start of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tenths(u32);

impl Tenths {
    pub(super) fn of(now: Nanos) -> Tenths {
        Tenths(u32::try_from(now.0 / NANOS_PER_TENTH).unwrap_or(u32::MAX))
    }

    /// The moment in nanoseconds.
    pub(super) fn nanos(self) -> Nanos {
        Nanos(u64::from(self.0) * NANOS_PER_TENTH)
    }

    #[inline]
    pub(super) const fn plus_secs(self, seconds: u32) -> Tenths {
        Tenths(self.0.saturating_add(seconds.saturating_mul(10)))
    }

    /// Tenths of a second until `later`; 0 if that has passed.
    pub(super) const fn until(self, later: Tenths) -> u32 {
        later.0.saturating_sub(self.0)
    }

    /// So many tenths of a second later.
    pub(super) const fn plus(self, tenths: u32) -> Tenths {
        Tenths(self.0.saturating_add(tenths))
    }

    /// Whole seconds until `later`, rounded up; 0 if that has passed.
    pub(super) const fn secs_until(self, later: Tenths) -> u32 {
        later.0.saturating_sub(self.0).div_ceil(10)
    }
}
