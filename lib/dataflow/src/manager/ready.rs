//! Ready units of one graph, by bucket of priority: adding and taking cost a few instructions each.

use alloc::boxed::Box;
use alloc::vec;

use crate::plan::BUCKETS;

const NONE: u32 = u32::MAX;

/// A set of units; each can be in it once.
#[derive(Debug)]
pub struct Ready {
    /// First and last unit of each bucket's list; a list is in the order in which its units became ready.
    ends: [(u32, u32); BUCKETS],
    /// The unit behind each unit in its list.
    next: Box<[u32]>,
    /// A bit per bucket that has a unit.
    filled: [u64; BUCKETS / 64],
}

impl Ready {
    pub fn new(units: usize) -> Self {
        Self {
            ends: [(NONE, NONE); BUCKETS],
            next: vec![NONE; units].into(),
            filled: [0; BUCKETS / 64],
        }
    }

    pub fn add(&mut self, unit: u32, bucket: u8) {
        let (first, last) = &mut self.ends[usize::from(bucket)];
        self.next[unit as usize] = NONE;
        if *first == NONE {
            *first = unit;
            self.filled[usize::from(bucket / 64)] |= 1 << (bucket % 64);
        } else {
            self.next[*last as usize] = unit;
        }
        *last = unit;
    }

    pub fn is_empty(&self) -> bool {
        self.filled == [0; BUCKETS / 64]
    }

    /// The unit that has waited longest among those of the highest priority.
    pub fn first(&self) -> Option<u32> {
        let bucket = self.bucket()?;
        Some(self.ends[bucket].0)
    }

    /// Removes [`Self::first`].
    pub fn take(&mut self) -> Option<u32> {
        let bucket = self.bucket()?;
        let (first, last) = &mut self.ends[bucket];
        let unit = *first;
        if unit == *last {
            (*first, *last) = (NONE, NONE);
            self.filled[bucket / 64] &= !(1 << (bucket % 64));
        } else {
            *first = self.next[unit as usize];
        }
        Some(unit)
    }

    fn bucket(&self) -> Option<usize> {
        let word = self.filled.iter().position(|&word| word != 0)?;
        Some(word * 64 + self.filled[word].trailing_zeros() as usize)
    }
}
