//! The host: its programs, namespaces and clocks, for experiments that compare with what else it has.

pub mod cpu;
pub mod distance;
pub mod flood;
pub mod idle;
pub mod interrupt;
pub mod memory;
pub mod namespace;
pub mod platform;
pub mod program;
pub mod requests;
pub mod said;
pub mod service;
pub mod shares;
pub mod workshop;
