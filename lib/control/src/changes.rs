//! The recently changed instances. A thread that follows thousands of instances reads only these.

use std::collections::{BTreeSet, VecDeque};

/// Number of changes that are kept. A reader that is further behind reads all instances.
const REMEMBERED: usize = 1024;

/// The result of a query for changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// No instance has changed.
    Nothing,
    /// The changed instances, some of which may be gone, and the number of the newest change.
    Some(u64, BTreeSet<String>),
    /// Possibly all instances, and the number of the newest change.
    All(u64),
}

/// The newest changes.
#[derive(Default)]
pub struct Changes {
    newest: u64,
    /// The names of the last changes, the newest at the back. A reader that has seen none of them has missed some.
    names: VecDeque<String>,
}

impl Changes {
    /// Adds a change of this instance.
    pub fn note(&mut self, name: &str) {
        self.newest += 1;
        if self.names.len() >= REMEMBERED {
            self.names.pop_front();
        }
        self.names.push_back(name.to_owned());
    }

    /// Adds a change that may concern any instance.
    pub fn note_all(&mut self) {
        self.newest += 1;
        self.names.clear();
    }

    /// Returns the changes after number `seen`; `None`: the reader has seen none.
    pub fn since(&self, seen: Option<u64>) -> Changed {
        let missed = seen.map(|seen| self.newest.saturating_sub(seen));
        match missed.and_then(|missed| usize::try_from(missed).ok()) {
            Some(0) => Changed::Nothing,
            Some(missed) if missed <= self.names.len() => {
                let names = self.names.iter().rev().take(missed);
                Changed::Some(self.newest, names.cloned().collect())
            }
            _ => Changed::All(self.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, Changes, REMEMBERED};

    fn names(of: &[&str]) -> std::collections::BTreeSet<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_reader_gets_the_changes_that_it_has_not_seen() {
        let mut changes = Changes::default();
        assert_eq!(changes.since(None), Changed::All(0));
        assert_eq!(changes.since(Some(0)), Changed::Nothing);
        for name in ["a", "b", "a", "c"] {
            changes.note(name);
        }
        assert_eq!(changes.since(Some(4)), Changed::Nothing);
        assert_eq!(changes.since(Some(2)), Changed::Some(4, names(&["a", "c"])));
        assert_eq!(
            changes.since(Some(0)),
            Changed::Some(4, names(&["a", "b", "c"]))
        );
    }

    #[test]
    fn a_reader_that_has_missed_changes_reads_all_instances() {
        let mut changes = Changes::default();
        changes.note("a");
        changes.note_all();
        assert_eq!(changes.since(Some(1)), Changed::All(2));
        changes.note("b");
        assert_eq!(changes.since(Some(1)), Changed::All(3));
        assert_eq!(changes.since(Some(2)), Changed::Some(3, names(&["b"])));
        for _ in 0..2 * REMEMBERED {
            changes.note("c");
        }
        assert_eq!(
            changes.since(Some(3)),
            Changed::All(3 + 2 * REMEMBERED as u64)
        );
    }
}
