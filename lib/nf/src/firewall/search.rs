//! Which interval of an axis a number falls into.

use super::interval::Coordinate;
use alloc::vec::Vec;

/// A search over the starts of intervals.
pub trait Search {
    /// Numbers on the axis.
    type Number: Coordinate;

    /// Over `keys`, which are sorted and begin with 0.
    fn new(keys: &[Self::Number]) -> Self;

    /// Index of the last key that is not above `x`.
    fn rank(&self, x: Self::Number) -> usize;
}

/// Keys per node: one cache line of `u32`.
const NODE: usize = 16;

/// A search tree over sorted numbers, 16 keys per node, so that 20,000 keys need four cache lines
/// and no unpredictable branch (a static B+ tree; each level holds the first key of each node
/// below).
#[derive(Debug, Default)]
pub struct SearchTree {
    /// From the root down; each level a multiple of 16 keys, padded with the largest number.
    levels: Vec<Vec<[u32; NODE]>>,
    keys: usize,
}

impl Search for SearchTree {
    type Number = u32;

    fn new(keys: &[u32]) -> Self {
        let mut levels = Vec::new();
        let mut level: Vec<u32> = keys.to_vec();
        loop {
            let nodes: Vec<[u32; NODE]> = level
                .chunks(NODE)
                .map(|chunk| {
                    let mut node = [u32::MAX; NODE];
                    node[..chunk.len()].copy_from_slice(chunk);
                    node
                })
                .collect();
            level = nodes.iter().map(|node| node[0]).collect();
            let done = nodes.len() <= 1;
            levels.push(nodes);
            if done {
                break;
            }
        }
        levels.reverse();
        SearchTree {
            levels,
            keys: keys.len(),
        }
    }

    #[inline]
    fn rank(&self, x: u32) -> usize {
        let mut node = 0;
        for level in &self.levels {
            // Padding equals `x` at most if `x` is the largest number: hence the bound.
            let Some(keys) = level.get(node).or(level.last()) else {
                return 0;
            };
            let not_above: u32 = keys.iter().map(|key| u32::from(*key <= x)).sum();
            node = node * NODE + (not_above as usize).saturating_sub(1);
        }
        node.min(self.keys.saturating_sub(1))
    }
}

/// As [`SearchTree`], for IPv6 addresses: the upper halves first, of which there are fewer.
#[derive(Debug, Default)]
pub struct SearchHalves {
    keys: Vec<u128>,
}

impl Search for SearchHalves {
    type Number = u128;

    fn new(keys: &[u128]) -> Self {
        SearchHalves {
            keys: keys.to_vec(),
        }
    }

    #[inline]
    fn rank(&self, x: u128) -> usize {
        self.keys.partition_point(|key| *key <= x).saturating_sub(1)
    }
}

/// A table with an entry per number, for axes with few numbers: one load.
#[derive(Debug, Default)]
pub struct Direct(Vec<u16>);

impl Search for Direct {
    type Number = u32;

    /// The table ends with the last key: larger numbers have its rank.
    fn new(keys: &[u32]) -> Self {
        let starts = keys.windows(2).enumerate();
        let last = keys.len().saturating_sub(1);
        let ranks = starts.flat_map(|(rank, pair)| (pair[0]..pair[1]).map(move |_| rank as u16));
        Direct(ranks.chain([last as u16]).collect())
    }

    #[inline]
    fn rank(&self, x: u32) -> usize {
        let x = (x as usize).min(self.0.len() - 1);
        usize::from(self.0[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread<C: Copy + Ord>(mut keys: Vec<C>, zero: C) -> Vec<C> {
        keys.push(zero);
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    proptest! {
        #[test]
        fn ranks_equal_a_plain_search(
            keys in proptest::collection::vec(any::<u32>(), 0..600),
            mask in any::<u32>(),
            others in proptest::collection::vec(any::<u32>(), 10),
        ) {
            let keys = spread(keys.into_iter().map(|key| key & mask).collect(), 0);
            let tree = SearchTree::new(&keys);
            let ends = [0, 1, u32::MAX - 1, u32::MAX];
            let near = keys.iter().flat_map(|key| [*key, key.wrapping_sub(1), key.wrapping_add(1)]);
            for x in near.chain(ends).chain(others) {
                prop_assert_eq!(tree.rank(x), keys.partition_point(|key| *key <= x) - 1, "{}", x);
            }
        }

        #[test]
        fn ranks_in_a_table_equal_a_plain_search(
            keys in proptest::collection::vec(0..4097_u32, 0..50),
        ) {
            let keys = spread(keys, 0);
            let table = Direct::new(&keys);
            for x in 0..=4097 {
                prop_assert_eq!(table.rank(x), keys.partition_point(|key| *key <= x) - 1, "{}", x);
            }
        }

        #[test]
        fn ranks_of_ipv6_equal_a_plain_search(
            keys in proptest::collection::vec((0..9_u64, any::<u64>()), 0..300),
            others in proptest::collection::vec(any::<u128>(), 10),
        ) {
            let join = |(high, low): (u64, u64)| u128::from(high) << 64 | u128::from(low);
            let keys = spread(keys.into_iter().map(join).collect(), 0);
            let tree = SearchHalves::new(&keys);
            let near = keys.iter().flat_map(|key| [*key, key.wrapping_sub(1), key.wrapping_add(1)]);
            for x in near.chain([0, u128::MAX]).chain(others) {
                prop_assert_eq!(tree.rank(x), keys.partition_point(|key| *key <= x) - 1, "{}", x);
            }
        }
    }
}
