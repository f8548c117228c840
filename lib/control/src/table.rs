//! Named things in the order in which the user wrote them.

use indexmap::IndexMap;
use serde::Serialize;

/// A map from names to values that keeps its order; two tables are equal when names, values *and
/// order* are. A port's index and a chain's precedence are their positions.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Table<T>(IndexMap<String, T>);

impl<T> Table<T> {
    /// An empty table.
    pub fn new() -> Self {
        Table(IndexMap::new())
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }

    /// The value of `name`, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.0.get_mut(name)
    }

    /// Whether there is a value of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Puts a value at the end, or in the place of the one with the same name, which is returned.
    pub fn insert(&mut self, name: impl Into<String>, value: T) -> Option<T> {
        self.0.insert(name.into(), value)
    }

    /// Takes a value out; the order of the others stays.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.0.shift_remove(name)
    }

    /// Takes a value out; the last one takes its place. Unlike [`Table::remove`] it does not look at the others.
    pub fn take(&mut self, name: &str) -> Option<T> {
        self.0.swap_remove(name)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &T)> + ExactSizeIterator {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Names in order.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.keys().map(String::as_str)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table::new()
    }
}

impl<T: PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice() == other.0.as_slice()
    }
}

impl<T: Eq> Eq for Table<T> {}

impl<T> FromIterator<(String, T)> for Table<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(items: I) -> Self {
        Table(items.into_iter().collect())
    }
}
