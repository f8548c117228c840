//! Which slice may use which PE when.

use alloc::vec;
use alloc::vec::Vec;

/// Index of a slice in its engine.
pub type SliceId = u8;
/// Most slices of an engine: a set of slices is a 64-bit word.
pub const SLICES_MAX: usize = 64;

/// A set of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SliceSet(u64);

impl SliceSet {
    /// All slices.
    pub const ALL: Self = Self(u64::MAX);
    /// No slice.
    pub const NONE: Self = Self(0);

    /// The set of one slice.
    pub fn of(slice: SliceId) -> Self {
        Self(1_u64.checked_shl(slice.into()).unwrap_or(0))
    }

    /// This set and `slice`.
    #[must_use]
    pub fn with(self, slice: SliceId) -> Self {
        Self(self.0 | Self::of(slice).0)
    }

    /// Returns true if `slice` is in the set.
    pub fn contains(self, slice: SliceId) -> bool {
        self.0 & Self::of(slice).0 != 0
    }
}

/// A part of the interval, in nanoseconds from the interval's begin, and the owners of each PE in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Begin of the window.
    pub begin: u64,
    /// End of the window; the last window may end with `u64::MAX`.
    pub end: u64,
    /// Owners of each PE.
    pub owners: Vec<SliceSet>,
}

/// The owners of all PEs over an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    windows: Vec<Window>,
}

/// Why windows are no partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// There is no window.
    #[error("a partition has at least one window")]
    Empty,
    /// A window is empty, or begins before its predecessor ends.
    #[error("window {0} is empty or overlaps the one before")]
    Order(usize),
    /// A window does not name the owners of each PE.
    #[error("window {window} names the owners of {named} PEs, the engine has {pes}")]
    Pes {
        /// Index of the window.
        window: usize,
        /// PEs that it names.
        named: usize,
        /// PEs of the engine.
        pes: usize,
    },
}

impl Partition {
    /// All slices share all PEs all the time.
    pub fn shared(pes: usize) -> Self {
        Self::spatial(vec![SliceSet::ALL; pes])
    }

    /// Each PE has its owners, all the time.
    pub fn spatial(owners: Vec<SliceSet>) -> Self {
        Self {
            windows: vec![Window {
                begin: 0,
                end: u64::MAX,
                owners,
            }],
        }
    }

    /// All PEs, one slice after the other: slice and length of each window in nanoseconds.
    ///
    /// # Errors
    /// A window is empty, or there is none.
    pub fn temporal(pes: usize, windows: &[(SliceId, u64)]) -> Result<Self, PartitionError> {
        let mut begin = 0_u64;
        let windows = windows.iter().map(|&(slice, length)| {
            let end = begin.saturating_add(length);
            let window = Window {
                begin,
                end,
                owners: vec![SliceSet::of(slice); pes],
            };
            begin = end;
            window
        });
        Self::new(pes, windows.collect())
    }

    /// Any table of PEs and windows.
    ///
    /// # Errors
    /// Windows overlap, are empty, or do not name `pes` PEs.
    pub fn new(pes: usize, windows: Vec<Window>) -> Result<Self, PartitionError> {
        let mut end = 0;
        if windows.is_empty() {
            return Err(PartitionError::Empty);
        }
        for (index, window) in windows.iter().enumerate() {
            if window.begin < end || window.end <= window.begin {
                return Err(PartitionError::Order(index));
            }
            if window.owners.len() != pes {
                return Err(PartitionError::Pes {
                    window: index,
                    named: window.owners.len(),
                    pes,
                });
            }
            end = window.end;
        }
        Ok(Self { windows })
    }

    /// The windows, in their order.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns true if a task of `slice` may run on `pe` from `start` to `end`, in nanoseconds from the interval's begin:
    /// one window has all of it.
    pub fn permits(&self, slice: SliceId, pe: usize, start: u64, end: u64) -> bool {
        let at = self.windows.partition_point(|window| window.end <= start);
        self.windows.get(at).is_some_and(|window| {
            window.begin <= start && end <= window.end && window.owners[pe].contains(slice)
        })
    }

    /// The next begin of a window after `from`, in nanoseconds from the interval's begin.
    pub fn next_begin(&self, from: u64) -> Option<u64> {
        let at = self.windows.partition_point(|window| window.begin <= from);
        self.windows.get(at).map(|window| window.begin)
    }

    /// The PE time that `slice` has between two times, in nanoseconds from the interval's begin: all PEs and windows together.
    pub fn area(&self, slice: SliceId, from: u64, until: u64) -> u64 {
        let windows = self.windows.iter().map(|window| {
            let pes = window.owners.iter().filter(|owners| owners.contains(slice));
            window
                .within(from, until)
                .saturating_mul(pes.count() as u64)
        });
        windows.fold(0, u64::saturating_add)
    }

    /// The longest time that `slice` has at a stretch on a PE between two times.
    pub fn longest(&self, slice: SliceId, from: u64, until: u64) -> u64 {
        let own = |window: &&Window| window.owners.iter().any(|owners| owners.contains(slice));
        let windows = self.windows.iter().filter(own);
        windows
            .map(|window| window.within(from, until))
            .max()
            .unwrap_or(0)
    }

    /// Index of the window at a time, if it has an end.
    pub(super) fn bounded_window(&self, at: u64) -> Option<usize> {
        let index = self.windows.partition_point(|window| window.end <= at);
        let window = self.windows.get(index)?;
        (window.begin <= at && window.end != u64::MAX).then_some(index)
    }
}

impl Window {
    /// Nanoseconds of the window between two times.
    fn within(&self, from: u64, until: u64) -> u64 {
        self.end.min(until).saturating_sub(self.begin.max(from))
    }

    /// Owned PE time of the window, in nanoseconds.
    pub(super) fn owned(&self) -> u64 {
        let pes = self
            .owners
            .iter()
            .filter(|&&owners| owners != SliceSet::NONE);
        self.within(0, u64::MAX).saturating_mul(pes.count() as u64)
    }
}
