//! Sets of numbers, as sorted intervals that do not touch.

use std::ops::RangeInclusive;

/// Sorts intervals and joins those that overlap or touch.
pub fn join(mut intervals: Vec<RangeInclusive<u128>>) -> Vec<RangeInclusive<u128>> {
    intervals.retain(|interval| !interval.is_empty());
    intervals.sort_by_key(|interval| *interval.start());
    let mut joined: Vec<RangeInclusive<u128>> = Vec::new();
    for next in intervals {
        match joined.last_mut() {
            Some(last) if *next.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(next.end());
            }
            _ => joined.push(next),
        }
    }
    joined
}

/// Returns the numbers of `0..=max` that are in none of the intervals, which are joined.
pub fn complement(joined: &[RangeInclusive<u128>], max: u128) -> Vec<RangeInclusive<u128>> {
    let mut left = Vec::new();
    let mut from = Some(0);
    for interval in joined {
        if let Some(from) = from
            && from < *interval.start()
        {
            left.push(from..=interval.start() - 1);
        }
        from = interval.end().checked_add(1);
    }
    if let Some(from) = from.filter(|from| *from <= max) {
        left.push(from..=max);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_joined() {
        let joined = join(vec![5..=9, 1..=2, 3..=3, 7..=20, 30..=30]);
        assert_eq!(joined, [1..=3, 5..=20, 30..=30]);
    }

    #[test]
    fn a_complement_is_all_the_rest() {
        assert_eq!(complement(&[5..=9], 12), [0..=4, 10..=12]);
        assert_eq!(complement(&[0..=12], 12), []);
        assert_eq!(complement(&[], 12), [0..=12]);
        assert_eq!(complement(&[0..=u128::MAX], u128::MAX), []);
    }
}
