//! Cost of packets, and receivers of signals: from CPU times, frames and occupancies to the words by which the switch
//! marks.
//!
//! - [`Meter`]: the CPU time that a packet takes in an instance, by the kernel's accounting over the switch's counters.
//! - [`Controller`]: per core, how likely frames for each ring are marked (`nfluid-marking` has the law).
//! - [`Direction`]: one direction of a chain: the refusal of frames at its entry, and its bottleneck.
//! - [`thread`]: the thread that reads counters and rings, asks these three, and writes the signals to the switch.
//!
//! The first three know no clock, no kernel and no switch: the thread hands in its readings. A value that an instance can
//! write (how far it has read its ring) is worth at most a ring of frames here. The reasons:
//! `docs/adr/0010-congestion-signals.md`.

#![forbid(unsafe_code)]

mod chain;
mod controller;
mod cost;
pub mod thread;

pub use chain::Direction;
pub use controller::{Controller, PortSample, Settings, Word};
pub use cost::{Meter, PortUse};

#[cfg(test)]
mod tests;
