//! Next due time of a table that is swept piece by piece.
//!
//! Look-ups check the time themselves, so a late sweep has no effect on them; but a sleeping host must know how long it
//! may sleep. Nothing is noted while frames are handled: once only time changes the table, the sweep makes one more
//! round and finds the entry that expires first.

use crate::function::Nanos;

/// Entries that end within this time are swept together.
pub(crate) const TOGETHER: Nanos = Nanos::from_secs(1);

/// Findings of the hand since anything but time has changed the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ageing {
    /// Places that it has passed.
    passed: usize,
    /// Earliest expiry of their entries.
    first: Nanos,
}

impl Default for Ageing {
    fn default() -> Self {
        Ageing {
            passed: 0,
            first: Nanos(u64::MAX),
        }
    }
}

impl Ageing {
    /// Forgets the findings of the hand: entries have come, or end at another time.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        *self = Ageing::default();
    }

    /// Prepares a sweep of a table with so many places. The entries that the sweep removes were seen as the first to
    /// end.
    pub(crate) fn sweep(&mut self, places: usize, now: Nanos) {
        if self.passed >= places && self.first <= now {
            self.begin_again();
        }
    }

    /// The hand passes a place whose entry, if it has one that time ends, ends then.
    pub(crate) fn pass(&mut self, ends: Option<Nanos>) {
        self.passed = self.passed.saturating_add(1);
        if let Some(ends) = ends {
            self.first = self.first.min(ends);
        }
    }

    /// Returns the next sweep of a table with `places` places: at once, until the sweep has visited all places.
    pub(crate) fn next(&self, places: usize) -> Nanos {
        if self.passed < places {
            return Nanos(0);
        }
        Nanos(self.first.0.saturating_add(TOGETHER.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_is_known_after_a_whole_round_in_which_nothing_changed() {
        let mut ageing = Ageing::default();
        let s = Nanos::from_secs;
        assert_eq!(ageing.next(0), Nanos(u64::MAX), "an empty table");
        ageing.pass(Some(s(50)));
        assert_eq!(ageing.next(2), Nanos(0));
        ageing.begin_again();
        ageing.pass(None);
        ageing.pass(Some(s(40)));
        assert_eq!(ageing.next(2), s(41));
        ageing.sweep(2, s(39));
        assert_eq!(ageing.next(2), s(41), "nothing is due: it is still known");
        ageing.sweep(2, s(40));
        assert_eq!(
            ageing.next(2),
            Nanos(0),
            "another round, without what has ended"
        );
    }
}
