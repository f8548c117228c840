//! Objects that belong to an engine, or to another program that makes them.

use super::{Instance, Switch, Uplink};

/// An object that can have an owner. Only documents that name the same owner change it, and those that do not name it leave
/// it.
pub trait Owned {
    /// The owner, in the words of whoever made the object.
    fn owner(&self) -> Option<&str>;
}

impl Owned for Instance {
    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }
}

impl Owned for Switch {
    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }
}

impl Owned for Uplink {
    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }
}
