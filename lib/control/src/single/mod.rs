//! Instances that are added to a deployment, or taken out of it, one by one: checked against what they refer to, however
//! many others there are.
//!
//! What cannot be told from that alone is left to the check of the whole: [`addition::Addition::of`] and
//! [`removal::Removal::of`] then find nothing, which says neither that it is right nor that it is wrong.

pub mod addition;
pub mod index;
pub mod proposal;
pub mod removal;
pub mod step;
