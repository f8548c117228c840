//! Named values in the order in which the user wrote them.

use indexmap::IndexMap;
use serde::Serialize;

/// A map from names to values that keeps its order. Two tables are equal if names, values *and order* are equal. A
/// port's index and a chain's precedence are their positions.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Table<T>(IndexMap<String, T>);

impl<T> Table<T> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Table(IndexMap::new())
    }

    /// Returns the value of `name`.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }

    /// Returns the value of `name` for changes.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.0.get_mut(name)
    }

    /// Returns true if the table has a value of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Inserts a value at the end, or replaces the value of the same name, which is returned.
    pub fn insert(&mut self, name: impl Into<String>, value: T) -> Option<T> {
        self.0.insert(name.into(), value)
    }

    /// Removes a value; the order of the others stays.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.0.shift_remove(name)
    }

    /// Removes a value; the last value takes its place. Unlike [`Table::remove`], `take` does not move the other
    /// values.
    pub fn take(&mut self, name: &str) -> Option<T> {
        self.0.swap_remove(name)
    }

    /// Returns names and values in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &T)> + ExactSizeIterator {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.keys().map(String::as_str)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the table is empty.
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
