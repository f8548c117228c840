//! Single instances that are added to a deployment or removed from it: checked only against the objects that they
//! refer to, however many others exist.
//!
//! If this is not enough for a decision, the check of the whole decides. [`addition::Addition::of`] and
//! [`removal::Removal::of`] then return `None`, which means neither valid nor invalid.

pub mod addition;
pub mod index;
pub mod proposal;
mod reach;
pub mod removal;
pub mod step;
