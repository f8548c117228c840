//! The change of one object.

/// A change of the object `name`: made if there is no old one, removed if there is no new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff<T> {
    /// Name of the object.
    pub name: String,
    /// The object as it is; absent: there is none.
    pub old: Option<T>,
    /// The object as it shall be; absent: there shall be none.
    pub new: Option<T>,
}

impl<T> Diff<T> {
    /// Returns the creation of an object.
    pub fn create(name: impl Into<String>, new: T) -> Self {
        Diff {
            name: name.into(),
            old: None,
            new: Some(new),
        }
    }

    /// Returns the removal of an object.
    pub fn remove(name: impl Into<String>, old: T) -> Self {
        Diff {
            name: name.into(),
            old: Some(old),
            new: None,
        }
    }

    /// Returns the change of an object.
    pub fn change(name: impl Into<String>, old: T, new: T) -> Self {
        Diff {
            name: name.into(),
            old: Some(old),
            new: Some(new),
        }
    }

    /// Returns the change that undoes this change.
    #[must_use]
    pub fn inverse(self) -> Self {
        Diff {
            name: self.name,
            old: self.new,
            new: self.old,
        }
    }

    /// Returns the verb of this change. `change` is the verb for an object that exists before and after.
    pub fn verb(&self, change: &'static str) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "create",
            (Some(_), Some(_)) => change,
            (Some(_), None) => "remove",
        }
    }
}
