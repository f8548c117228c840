//! What packets cost, and who is told of congestion: a thread beside the others, with a lock of its own.
//!
//! It reads the switch's counters, which are mapped, and the kernel's accounting of instances that are at work; those
//! that idle are not asked. Nothing waits for it: if it ends, nobody is marked any more.

pub mod figures;
mod following;
mod metered;
pub mod orders;
mod roll;
pub mod subject;
pub mod thread;
