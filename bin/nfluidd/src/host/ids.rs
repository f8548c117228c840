//! Numbers that are in use: ports, pools, kernel users.

use std::collections::BTreeSet;

/// Hands out the lowest free number.
#[derive(Debug)]
pub struct Ids {
    first: u32,
    end: u32,
    used: BTreeSet<u32>,
}

impl Ids {
    /// Numbers from `first` up to, but without, `end`.
    pub fn new(first: u32, end: u32) -> Self {
        Ids {
            first,
            end,
            used: BTreeSet::new(),
        }
    }

    /// `count` free numbers, one after the other; the first of them.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let mut start = self.first;
        for used in &self.used {
            if used - start >= count {
                break;
            }
            start = used + 1;
        }
        if start.checked_add(count)? > self.end {
            return None;
        }
        self.used.extend(start..start + count);
        Some(start)
    }

    /// Marks a number that somebody has already.
    pub fn mark(&mut self, id: u32) {
        self.used.insert(id);
    }

    /// Gives a number back.
    pub fn free(&mut self, id: u32) {
        self.used.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn the_lowest_gap_that_is_wide_enough_is_taken() {
        let mut ids = Ids::new(1, 10);
        assert_eq!(ids.take(2), Some(1));
        assert_eq!(ids.take(3), Some(3));
        ids.free(2);
        assert_eq!(ids.take(2), Some(6));
        assert_eq!(ids.take(1), Some(2));
        assert_eq!(ids.take(3), None);
        ids.mark(8);
        assert_eq!(ids.take(1), Some(9));
    }
}
