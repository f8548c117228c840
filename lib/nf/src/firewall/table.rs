//! A bounded hash table with bounded work per operation, whatever keys an adversary picks.
//!
//! Each key has two buckets of eight slots (one cache line each) and goes into the emptier one;
//! when both are full the insertion is refused. At the load that the table is sized for (a half)
//! that does not happen by chance (Azar et al., "Balanced Allocations", 1994), and a sender who
//! does not know the seed cannot aim at it.
//!
//! There are as many buckets as the items need, and more with each few items: one bucket is divided
//! at a time (Litwin, "Linear Hashing", 1980). So few items lie on few pages, in whatever table,
//! and an insertion moves at most one bucket's.

use alloc::vec;
use alloc::vec::Vec;

const BUCKET: usize = 8;
/// Buckets of an empty table: a page.
const BUCKETS_MIN: usize = 4096 / (BUCKET * size_of::<u64>());
/// Items for each bucket, on average, while there can be more buckets. A bucket that is not divided yet has twice as
/// many, which is the load that the table is sized for.
const ITEMS_PER_BUCKET: usize = 2;

/// Position of an item, valid until it is removed.
pub type Slot = u32;

/// Items found by a hash that the caller computes and an equality test that it gives.
#[derive(Debug)]
pub struct Table<T> {
    /// `half << 32 | slot + 1`, with the half of the hash by which the item is in this bucket; 0 is free.
    buckets: Vec<[u64; BUCKET]>,
    /// Buckets in use; the others were never touched.
    used: usize,
    items: Vec<Option<T>>,
    free: Vec<Slot>,
    len: usize,
    capacity: usize,
}

impl<T> Table<T> {
    /// An empty table for at most `capacity` items. The memory is reserved here, so that the data
    /// path does not allocate; untouched pages cost nothing under an ordinary kernel.
    pub fn new(capacity: usize) -> Self {
        let buckets = capacity.div_ceil(BUCKET / 2).next_power_of_two();
        Table {
            buckets: vec![[0; BUCKET]; buckets],
            used: buckets.min(BUCKETS_MIN),
            items: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            len: 0,
            capacity,
        }
    }

    /// A table that holds nothing and takes no memory.
    pub fn unused() -> Self {
        Table {
            buckets: Vec::new(),
            used: 0,
            items: Vec::new(),
            free: Vec::new(),
            len: 0,
            capacity: 0,
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Most items.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Positions in use are below this.
    pub fn slots(&self) -> usize {
        self.items.len()
    }

    /// Returns the bucket for half a hash. Buckets behind the last one in use are not divided from their lower halves
    /// yet.
    #[inline]
    fn bucket_of(&self, half: u64) -> usize {
        let mask = self.used.next_power_of_two() - 1;
        let at = half as usize & mask;
        if at < self.used { at } else { at & (mask >> 1) }
    }

    /// Divides the next bucket, if there can be more: what belongs there moves to a new one.
    fn divide(&mut self) {
        let (old, new) = (self.bucket_of(self.used as u64), self.used);
        if new == self.buckets.len() {
            return;
        }
        self.used += 1;
        for place in 0..BUCKET {
            let entry = self.buckets[old][place];
            if entry != 0 && self.bucket_of(entry >> 32) == new {
                self.buckets[new][place] = entry;
                self.buckets[old][place] = 0;
            }
        }
    }

    /// The item with this hash for which `is_it` holds.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<Slot> {
        if self.buckets.is_empty() {
            return None;
        }
        for half in halves(hash) {
            for &entry in &self.buckets[self.bucket_of(half)] {
                if entry >> 32 == half && entry as u32 != 0 {
                    let slot = entry as u32 - 1;
                    if self.get(slot).is_some_and(&is_it) {
                        return Some(slot);
                    }
                }
            }
        }
        None
    }

    /// The item at `slot`.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.items.get(slot as usize)?.as_ref()
    }

    /// The item at `slot`.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.items.get_mut(slot as usize)?.as_mut()
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.items.iter().flatten()
    }

    /// Adds an item that is not there yet. `None`: the table, or both buckets, are full.
    pub fn insert(&mut self, hash: u64, item: T) -> Option<Slot> {
        if self.len == self.capacity {
            return None;
        }
        if self.len >= self.used * ITEMS_PER_BUCKET {
            self.divide();
        }
        let [first, second] = halves(hash);
        let taken = |half: u64| {
            let bucket = &self.buckets[self.bucket_of(half)];
            bucket.iter().filter(|entry| **entry != 0).count()
        };
        let half = if taken(first) <= taken(second) {
            first
        } else {
            second
        };
        let bucket = self.bucket_of(half);
        let place = self.buckets[bucket].iter().position(|entry| *entry == 0)?;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.items[slot as usize] = Some(item);
                slot
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as Slot
            }
        };
        self.buckets[bucket][place] = half << 32 | u64::from(slot + 1);
        self.len += 1;
        Some(slot)
    }

    /// Removes and returns the item at `slot`, which was inserted with `hash`.
    pub fn remove(&mut self, hash: u64, slot: Slot) -> Option<T> {
        let item = self.items.get_mut(slot as usize)?.take()?;
        for half in halves(hash) {
            let wanted = half << 32 | u64::from(slot + 1);
            let bucket = self.bucket_of(half);
            if let Some(entry) = self.buckets[bucket].iter_mut().find(|e| **e == wanted) {
                *entry = 0;
                break;
            }
        }
        self.free.push(slot);
        self.len -= 1;
        Some(item)
    }
}

/// The two halves of a hash, each of which leads to a bucket.
#[inline]
fn halves(hash: u64) -> [u64; 2] {
    [hash & 0xffff_ffff, hash >> 32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_wire::HashSeed;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn the_table_fills_to_its_capacity() {
        let seed = HashSeed::new(7);
        for capacity in [1, 8, 100, 256, 10_000, 65_536] {
            let mut table = Table::new(capacity);
            for key in 0..capacity as u64 {
                assert!(
                    table.insert(seed.hash_u64(key), key).is_some(),
                    "{key} of {capacity}"
                );
            }
            assert_eq!(table.insert(seed.hash_u64(u64::MAX), 0), None);
            assert_eq!(table.len(), capacity);
        }
    }

    #[test]
    fn equal_hashes_are_refused_after_two_buckets() {
        let mut table = Table::new(1000);
        let inserted = (0..1000)
            .filter(|key| table.insert(0x1_0000_0002, *key).is_some())
            .count();
        assert_eq!(inserted, 2 * BUCKET);
        let last = (0..1000).filter(|key| table.find(0x1_0000_0002, |k| k == key).is_some());
        assert_eq!(last.count(), 2 * BUCKET);
    }

    /// So that buckets are divided, and all are in the end.
    const CAPACITY: usize = 280;

    proptest! {
        #[test]
        fn it_behaves_like_a_map(
            operations in proptest::collection::vec((any::<bool>(), 0u64..600), 0..1500),
        ) {
            let seed = HashSeed::new(1);
            let mut table = Table::new(CAPACITY);
            let mut model: HashMap<u64, Slot> = HashMap::new();
            for (insert, key) in operations {
                let hash = seed.hash_u64(key);
                let found = table.find(hash, |k| *k == key);
                prop_assert_eq!(found, model.get(&key).copied());
                match found {
                    None if insert => match table.insert(hash, key) {
                        Some(slot) => { model.insert(key, slot); }
                        None => prop_assert_eq!(table.len(), CAPACITY),
                    },
                    Some(slot) if !insert => {
                        prop_assert_eq!(table.remove(hash, slot), Some(key));
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
