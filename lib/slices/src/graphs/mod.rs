//! The graphs of slices, a file each.

pub mod hash_tree;
pub mod lte_uplink;
pub mod spectrum;
