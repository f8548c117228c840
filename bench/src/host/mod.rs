//! Measurements of the host, and of platforms and programs on it.

pub mod compile;
pub mod cpu;
pub mod distance;
pub mod forwards;
pub mod idle;
pub mod machine;
pub mod memory;
pub mod platform;
pub mod tier;
