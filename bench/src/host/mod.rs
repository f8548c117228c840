//! The host: its programs, namespaces and clocks, for experiments that compare with what else it has.

pub mod cpu;
pub mod distance;
pub mod interrupt;
pub mod namespace;
pub mod platform;
pub mod program;
pub mod workshop;
