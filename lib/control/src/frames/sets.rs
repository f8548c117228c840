//! Disjoint sets of keys.

use std::collections::HashMap;
use std::hash::Hash;

/// Sets that are joined, and never divided. A key that nobody named is a set of its own.
#[derive(Clone, Debug)]
pub struct Sets<K> {
    numbers: HashMap<K, usize>,
    parents: Vec<usize>,
}

impl<K> Default for Sets<K> {
    fn default() -> Self {
        Sets {
            numbers: HashMap::new(),
            parents: Vec::new(),
        }
    }
}

impl<K: Hash + Eq> Sets<K> {
    /// Returns the number of the set that has this key. Sets that are joined later may get other numbers.
    pub fn set_of(&mut self, key: K) -> usize {
        let fresh = self.parents.len();
        let number = *self.numbers.entry(key).or_insert(fresh);
        if number == fresh {
            self.parents.push(fresh);
        }
        self.root(number)
    }

    /// Returns the number of the set that has this key, if the key was ever named.
    pub fn find(&self, key: &K) -> Option<usize> {
        let mut number = *self.numbers.get(key)?;
        while let Some(parent) = self.parents.get(number).filter(|it| **it != number) {
            number = *parent;
        }
        Some(number)
    }

    /// Joins the sets of two keys. Returns the number of the result, and of the set that is a part of it now.
    pub fn join(&mut self, one: K, other: K) -> (usize, usize) {
        let (one, other) = (self.set_of(one), self.set_of(other));
        let (least, most) = (one.min(other), one.max(other));
        if let Some(parent) = self.parents.get_mut(most) {
            *parent = least;
        }
        (least, most)
    }

    fn root(&mut self, mut number: usize) -> usize {
        while let Some(parent) = self.parents.get(number).copied().filter(|it| *it != number) {
            let above = self.parents.get(parent).copied().unwrap_or(parent);
            if let Some(own) = self.parents.get_mut(number) {
                *own = above;
            }
            number = above;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::Sets;

    #[test]
    fn keys_are_together_that_were_joined_over_any_way() {
        let mut sets = Sets::default();
        for (one, other) in [(1, 2), (3, 4), (9, 9), (4, 2), (7, 8)] {
            sets.join(one, other);
        }
        for key in [2, 3, 4] {
            assert_eq!(sets.set_of(1), sets.set_of(key));
        }
        assert_eq!(sets.set_of(7), sets.set_of(8));
        for key in [9, 7, 5] {
            assert_ne!(sets.set_of(1), sets.set_of(key));
        }
        assert_eq!(sets.find(&6), None);
    }
}
