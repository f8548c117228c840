//! The user numbers of instances: the kernel's, and the number that each instance sees.

use std::fmt;

/// The user and group number that an instance sees as its own.
pub const INSIDE_ID: u32 = 1000;

/// The kernel's user and group number of one instance. No two instances may share one: it is what keeps them from
/// signalling and tracing each other, and what per-user limits count by, whatever namespaces they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(u32);

impl KernelId {
    /// The number.
    pub fn raw(self) -> u32 {
        self.0
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A range of user numbers that no other program of the host uses. Below 65536 are the host's own users; service
/// managers and container engines hand out ranges from 100000 (subuid(5)) to about 2^31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelIdRange {
    first: u32,
    count: u32,
}

/// The range of user numbers is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "user numbers {first}..+{count} are not usable: they must start at 65536 or above, be at least one, and end below 4294967294"
)]
pub struct BadKernelIdRange {
    first: u32,
    count: u32,
}

impl KernelIdRange {
    /// Begin and length of nfluid's range by default.
    pub const DEFAULT: Self = Self {
        first: 3_000_000,
        count: 1_000_000,
    };

    /// A range of `count` numbers from `first` on.
    ///
    /// # Errors
    /// [`BadKernelIdRange`] if the range touches the host's own users or the numbers that mean "nobody" to the
    /// kernel.
    pub fn new(first: u32, count: u32) -> Result<Self, BadKernelIdRange> {
        let end = first.checked_add(count);
        if first >= 65_536 && count > 0 && end.is_some_and(|end| end < u32::MAX - 1) {
            Ok(Self { first, count })
        } else {
            Err(BadKernelIdRange { first, count })
        }
    }

    /// The `index`-th number, or nothing past the end.
    pub fn get(&self, index: u32) -> Option<KernelId> {
        (index < self.count).then(|| KernelId(self.first + index))
    }

    /// Returns the number of user numbers.
    pub fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_users_are_out_of_reach() {
        assert!(KernelIdRange::new(0, 10).is_err());
        assert!(KernelIdRange::new(65_535, 10).is_err());
        assert!(KernelIdRange::new(70_000, 0).is_err());
        assert!(KernelIdRange::new(u32::MAX - 5, 4).is_err());
        let range = KernelIdRange::new(70_000, 2).unwrap();
        let ids: Vec<_> = (0..4)
            .map(|index| range.get(index).map(KernelId::raw))
            .collect();
        assert_eq!(ids, [Some(70_000), Some(70_001), None, None]);
    }
}
