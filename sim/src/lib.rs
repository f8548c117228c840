//! A packet-level simulator of TCP senders through network functions that share a CPU
//! (docs/simulation.md).
//!
//! - [`events`], [`random`]: what happens next, and chance; nothing else decides a run.
//! - [`tcp`]: senders and receivers.
//! - [`network`]: cores and links, whose signals are those of the data plane (`lib/marking`).
//! - [`plan`], [`simulation`], [`outcome`]: what is simulated, how, and what came of it.
//! - [`optimum`]: what should come of it, by equations.
//! - [`experiments`], [`report`]: those of the literature, and more, and what they hand in.
//!
//! The simulator has no clock and does no I/O: the same plan gives the same outcome, bit by bit.

pub mod events;
pub mod experiments;
pub mod network;
pub mod optimum;
pub mod outcome;
pub mod plan;
pub mod protocol;
pub mod random;
pub mod report;
pub mod simulation;
pub mod tcp;
