//! Bounded tables: entries by index, and indices by hash.

use alloc::vec;
use alloc::vec::Vec;

/// Index of no entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Open-addressing hash table from a hash to an entry's index. The table does not know the keys: the caller compares,
/// because the keys stand in the entries. A slot has 8 bytes, so that a look-up touches one cache line before the
/// entry's own.
///
/// Linear probing at a load of at most one half; a removal moves the followers back, so there are no tombstones to
/// gather. Hashes are seeded: an outsider cannot aim at one slot.
///
/// Hashes lead to as many slots as the entries need, and to more with each entry: one slot's entries
/// are divided at a time (Litwin, "Linear Hashing", 1980). So few entries lie on few pages, in
/// however large a table, and no packet pays for a table that grows.
#[derive(Debug)]
pub(crate) struct Index {
    /// Hash in the upper half, index + 1 in the lower; 0 is free.
    slots: Vec<u64>,
    mask: usize,
    /// Slots to which hashes lead; of the others only those are used that follow full ones.
    homes: usize,
    /// The power of two that is not below `homes`, less one.
    homes_mask: usize,
    len: usize,
}

/// Homes of an empty table: a page.
const HOMES_MIN: usize = 4096 / size_of::<u64>();
/// Homes for each entry, while there can be more. Homes that are not divided yet have the load of a full table.
const HOMES_PER_ENTRY: usize = 4;

impl Index {
    /// A table for `entries_max` entries, at most 2^30. The memory is reserved here, and touched only as far as it is
    /// used.
    pub(crate) fn new(entries_max: usize) -> Index {
        let len = (entries_max * 2).next_power_of_two().max(8);
        let homes = len.min(HOMES_MIN);
        Index {
            slots: vec![0; len],
            mask: len - 1,
            homes,
            homes_mask: homes - 1,
            len: 0,
        }
    }

    /// The entry with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if slot >> 32 == tag {
                let index = (slot as u32) - 1;
                if is_it(index) {
                    return Some(index);
                }
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Returns the index that a look-up will compare first: the index in the first slot with this hash, [`NONE`] if
    /// there is none next to its home. The result is only a hint; the function touches the slot and not the entry, so
    /// that the cache misses of many look-ups overlap.
    #[inline]
    pub(crate) fn likely(&self, hash: u64) -> u32 {
        let tag = tag(hash);
        let home = self.home(tag);
        let next = (home + 1) & self.mask;
        let hit = |slot: u64| slot != 0 && slot >> 32 == tag;
        match (self.slots[home], self.slots[next]) {
            (first, _) if hit(first) => first as u32 - 1,
            (_, second) if hit(second) => second as u32 - 1,
            _ => NONE,
        }
    }

    /// Adds an entry. The caller holds at most the promised number of entries, none twice.
    pub(crate) fn insert(&mut self, hash: u64, index: u32) {
        for _ in 0..HOMES_PER_ENTRY {
            if self.homes < self.slots.len() && self.homes <= self.len * HOMES_PER_ENTRY {
                self.divide();
            }
        }
        self.put(tag(hash) << 32 | (u64::from(index) + 1));
        self.len += 1;
    }

    /// Puts a slot's word into the first free slot from its home on.
    fn put(&mut self, slot: u64) {
        let mut at = self.home(slot >> 32);
        while self.slots[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = slot;
    }

    /// Makes one more slot a home: entries that belong there are at another one, or behind it.
    fn divide(&mut self) {
        let new = self.homes;
        let mut at = self.home(new as u64);
        self.homes += 1;
        self.homes_mask = self.homes.next_power_of_two() - 1;
        // If the places before it lead to it, an item that belongs there is found from it on.
        while self.slots[at] != 0 && at != new {
            let slot = self.slots[at];
            if self.home(slot >> 32) == new {
                self.close(at);
                self.put(slot);
            } else {
                at = (at + 1) & self.mask;
            }
        }
    }

    /// Removes an entry that was inserted with this hash.
    pub(crate) fn remove(&mut self, hash: u64, index: u32) {
        let wanted = tag(hash) << 32 | (u64::from(index) + 1);
        let mut hole = self.home(tag(hash));
        while self.slots[hole] != wanted {
            if self.slots[hole] == 0 {
                return;
            }
            hole = (hole + 1) & self.mask;
        }
        self.close(hole);
        self.len -= 1;
    }

    /// Frees a slot, and moves back what follows it.
    fn close(&mut self, mut hole: usize) {
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            // A follower may fill the hole unless that would put it before its home.
            let from_home = at.wrapping_sub(self.home(slot >> 32)) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
    }

    #[inline]
    fn home(&self, tag: u64) -> usize {
        let at = tag as usize & self.homes_mask;
        if at < self.homes {
            at
        } else {
            at & (self.homes_mask >> 1)
        }
    }
}

#[inline]
fn tag(hash: u64) -> u64 {
    hash & 0xffff_ffff
}

/// At most a fixed number of entries. All memory is reserved at once, so that no packet ever pays
/// for moving a grown table; it is touched only as far as it was ever used.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    vacant: Vec<u32>,
    max: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new(max: usize) -> Slab<T> {
        Slab {
            entries: Vec::with_capacity(max),
            vacant: Vec::with_capacity(max),
            max,
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Returns the number behind the largest index ever used: the range to sweep.
    pub(crate) fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Adds an entry; `None` when full.
    pub(crate) fn insert(&mut self, entry: T) -> Option<u32> {
        if let Some(index) = self.vacant.pop() {
            self.entries[index as usize] = Some(entry);
            return Some(index);
        }
        if self.entries.len() >= self.max {
            return None;
        }
        self.entries.push(Some(entry));
        Some(self.entries.len() as u32 - 1)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.vacant.push(index);
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + Clone {
        let numbered = (0u32..).zip(&self.entries);
        numbered.filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_wire::HashSeed;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    proptest! {
        /// Few distinct hashes, so that probes collide, wrap around and close holes.
        #[test]
        fn an_index_behaves_like_a_map(
            steps in proptest::collection::vec((0u32..24, any::<bool>()), 0..300),
        ) {
            let hash = |key: u32| u64::from(key % 5) + 29;
            let mut index = Index::new(24);
            let mut model = HashMap::new();
            for (key, add) in steps {
                if add && !model.contains_key(&key) {
                    index.insert(hash(key), key);
                    model.insert(key, ());
                } else if !add {
                    model.remove(&key);
                    index.remove(hash(key), key);
                }
                for key in 0..24 {
                    let found = index.find(hash(key), |i| i == key);
                    prop_assert_eq!(found.is_some(), model.contains_key(&key));
                    let likely = index.likely(hash(key));
                    prop_assert!(likely == NONE || model.contains_key(&likely));
                    prop_assert!(likely == NONE || hash(likely) == hash(key));
                }
            }
        }
    }

    /// So that it grows to its size, and is full in the end.
    const ENTRIES: u32 = 1000;

    proptest! {
        #[test]
        fn an_index_that_grows_behaves_like_a_map(
            seed in any::<u64>(),
            steps in proptest::collection::vec((0..ENTRIES, 0u8..4), 0..4000),
        ) {
            let seed = HashSeed::new(seed);
            // Half of them share their lower bits with others.
            let hash = |key: u32| seed.hash_u64(u64::from(key)) & !(u64::from(key % 2) * 0xf3f);
            let mut index = Index::new(ENTRIES as usize);
            let mut there = HashSet::new();
            for (key, what) in steps {
                if what > 0 && there.insert(key) {
                    index.insert(hash(key), key);
                } else if what == 0 && there.remove(&key) {
                    index.remove(hash(key), key);
                }
                prop_assert_eq!(index.find(hash(key), |i| i == key).is_some(), there.contains(&key));
            }
            for key in 0..ENTRIES {
                prop_assert_eq!(index.find(hash(key), |i| i == key).is_some(), there.contains(&key));
            }
        }
    }

    #[test]
    fn few_entries_lie_on_few_pages_of_a_large_table_and_a_full_one_finds_all() {
        let seed = HashSeed::new(7);
        let hash = |key: u32| seed.hash_u64(u64::from(key));
        let mut index = Index::new(65_536);
        let pages = |index: &Index| {
            let pages = index.slots.chunks(4096 / size_of::<u64>());
            let touched = pages.filter(|page| page.iter().any(|slot| *slot != 0));
            touched.count()
        };
        for key in 0..1000 {
            index.insert(hash(key), key);
        }
        assert!(pages(&index) <= 9, "{}", pages(&index));
        for key in 1000..65_536 {
            index.insert(hash(key), key);
        }
        assert_eq!(pages(&index), 256);
        assert!((0..65_536).all(|key| index.find(hash(key), |i| i == key).is_some()));
    }

    #[test]
    fn a_slab_is_bounded_and_reuses_indices() {
        let mut slab = Slab::new(2);
        assert_eq!((slab.insert('a'), slab.insert('b')), (Some(0), Some(1)));
        assert_eq!(slab.insert('c'), None);
        assert_eq!(slab.remove(0), Some('a'));
        assert_eq!(slab.remove(0), None);
        assert_eq!(slab.insert('d'), Some(0));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'d'), (1, &'b')]);
    }
}
