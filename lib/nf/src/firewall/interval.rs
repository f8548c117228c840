//! Sets of coordinates as sorted, disjoint, inclusive intervals.

use alloc::vec::Vec;

/// A coordinate: an unsigned number.
pub trait Coordinate: Copy + Ord {
    /// The smallest.
    const MIN: Self;
    /// The largest.
    const MAX: Self;
    /// `self - low`, modulo the size of the type.
    fn distance(self, low: Self) -> Self;
    /// The next larger one; `None` for the largest of the type.
    fn next(self) -> Option<Self>;
    /// The next smaller one; `None` for the smallest.
    fn previous(self) -> Option<Self>;
}

macro_rules! coordinate {
    ($type:ty) => {
        impl Coordinate for $type {
            const MIN: Self = 0;
            const MAX: Self = <$type>::MAX;
            #[inline(always)]
            fn distance(self, low: Self) -> Self {
                self.wrapping_sub(low)
            }
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn previous(self) -> Option<Self> {
                self.checked_sub(1)
            }
        }
    };
}
coordinate!(u32);
coordinate!(u128);

/// A set of coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<C>(Vec<(C, C)>);

impl<C: Coordinate> Set<C> {
    /// The union of intervals, each `low..=high` with `low <= high`.
    pub fn union(intervals: impl IntoIterator<Item = (C, C)>) -> Self {
        let mut sorted: Vec<(C, C)> = intervals.into_iter().collect();
        sorted.sort_unstable();
        let mut merged: Vec<(C, C)> = Vec::with_capacity(sorted.len());
        for (low, high) in sorted {
            match merged.last_mut() {
                Some((_, end)) if end.next().is_none_or(|after| low <= after) => {
                    *end = (*end).max(high);
                }
                _ => merged.push((low, high)),
            }
        }
        Set(merged)
    }

    /// Returns the values of `C::MIN..=max` that are not in the set.
    pub fn complement(&self, max: C) -> Self {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut from = Some(C::MIN);
        for &(low, high) in &self.0 {
            if let (Some(start), Some(end)) = (from, low.previous())
                && start <= end
            {
                gaps.push((start, end));
            }
            from = high.next();
        }
        if let Some(start) = from.filter(|start| *start <= max) {
            gaps.push((start, max));
        }
        Set(gaps)
    }

    /// Returns the values that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.as_slice(), other.0.as_slice());
        let mut both = Vec::new();
        while let ([(a_low, a_high), a_rest @ ..], [(b_low, b_high), b_rest @ ..]) = (a, b) {
            let (low, high) = ((*a_low).max(*b_low), (*a_high).min(*b_high));
            if low <= high {
                both.push((low, high));
            }
            if a_high <= b_high {
                a = a_rest;
            } else {
                b = b_rest;
            }
        }
        Set(both)
    }

    /// The intervals, sorted, disjoint and not adjacent.
    pub fn intervals(&self) -> &[(C, C)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MAX: u32 = 40;

    fn members(set: &Set<u32>) -> Vec<bool> {
        (0..=MAX)
            .map(|x| set.0.iter().any(|(low, high)| (*low..=*high).contains(&x)))
            .collect()
    }

    fn set() -> impl Strategy<Value = Set<u32>> {
        proptest::collection::vec((0..=MAX, 0..=MAX), 0..6)
            .prop_map(|pairs| Set::union(pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b)))))
    }

    proptest! {
        #[test]
        fn set_algebra(a in set(), b in set()) {
            let both = members(&a).into_iter().zip(members(&b));
            let and: Vec<bool> = both.clone().map(|(a, b)| a && b).collect();
            prop_assert_eq!(members(&a.intersection(&b)), and);
            let not: Vec<bool> = members(&a).into_iter().map(|a| !a).collect();
            prop_assert_eq!(members(&a.complement(MAX)), not);
            let or: Vec<bool> = both.map(|(a, b)| a || b).collect();
            let union = Set::union(a.0.iter().chain(&b.0).copied());
            prop_assert_eq!(members(&union), or);
            for pair in union.0.windows(2) {
                prop_assert!(pair[0].1 + 1 < pair[1].0, "sorted, disjoint, not adjacent");
            }
        }
    }

    #[test]
    fn the_ends_of_the_number_range() {
        let all = Set::union([(0_u128, u128::MAX)]);
        assert_eq!(all.complement(u128::MAX).intervals(), []);
        assert_eq!(Set(Vec::new()).complement(u128::MAX), all);
    }
}
