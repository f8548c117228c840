//! Numbers in the tables of the switch, and others that are handed out: which are free.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hands out the lowest free number. Clones share their numbers.
#[derive(Clone, Debug)]
pub struct Ids {
    /// Ranges of free numbers, first and end, none next to another.
    free: Arc<Mutex<BTreeMap<u32, u32>>>,
}

impl Ids {
    /// Numbers from `first` up to, but without, `end`.
    pub fn new(first: u32, end: u32) -> Self {
        Ids {
            free: Arc::new(Mutex::new(BTreeMap::from([(first, end)]))),
        }
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `count` free numbers, one after the other; the first of them.
    pub fn take(&self, count: u32) -> Option<u32> {
        let mut free = self.ranges();
        let wide_enough = |(first, end): &(&u32, &u32)| *end - *first >= count;
        let (first, end) = free
            .iter()
            .find(wide_enough)
            .map(|(first, end)| (*first, *end))?;
        free.remove(&first);
        if first + count < end {
            free.insert(first + count, end);
        }
        Some(first)
    }

    /// Marks a number that is in use already.
    pub fn mark(&self, id: u32) {
        let mut free = self.ranges();
        let Some((first, end)) = range_before(&free, id).filter(|(_, end)| id < *end) else {
            return;
        };
        free.remove(&first);
        if first < id {
            free.insert(first, id);
        }
        if id + 1 < end {
            free.insert(id + 1, end);
        }
    }

    /// Gives a number back.
    pub fn free(&self, id: u32) {
        let mut free = self.ranges();
        let before = range_before(&free, id);
        if before.is_some_and(|(_, end)| id < end) {
            return;
        }
        let first = before
            .filter(|(_, end)| *end == id)
            .map_or(id, |(first, _)| first);
        let end = free.remove(&(id + 1)).unwrap_or(id + 1);
        free.insert(first, end);
    }
}

/// The last range that begins at or before `id`.
fn range_before(free: &BTreeMap<u32, u32>, id: u32) -> Option<(u32, u32)> {
    free.range(..=id)
        .next_back()
        .map(|(first, end)| (*first, *end))
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn the_lowest_gap_that_is_wide_enough_is_taken() {
        let ids = Ids::new(1, 10);
        assert_eq!(ids.take(2), Some(1));
        assert_eq!(ids.take(3), Some(3));
        ids.free(2);
        assert_eq!(ids.take(2), Some(6));
        assert_eq!(ids.take(1), Some(2));
        assert_eq!(ids.take(3), None);
        ids.mark(8);
        assert_eq!(ids.take(1), Some(9));
    }

    #[test]
    fn what_is_given_back_in_any_order_is_whole_again() {
        let ids = Ids::new(0, 6);
        for order in [[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [2, 3, 0, 5, 4, 1]] {
            assert_eq!(ids.take(6), Some(0));
            for id in order {
                ids.free(id);
                ids.free(id);
            }
        }
        ids.mark(3);
        ids.mark(3);
        assert_eq!(ids.take(4), None);
        assert_eq!(ids.take(3), Some(0));
        assert_eq!(ids.take(2), Some(4));
        assert_eq!(ids.take(1), None);
    }
}
