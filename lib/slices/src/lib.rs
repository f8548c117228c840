//! Slices as a network function: samples come in frames, a graph of small tasks computes, results leave in frames.
//!
//! An instance with `nf: dataflow` is an engine (`nfluid-dataflow`): PEs, a core manager, and one or more slices. The instance's
//! sandbox, share and memory are the engine's: a slice that crashes or hangs harms no slice of another instance. Within an
//! instance, slices share PEs, or have PEs, or windows of the interval, of their own; with `back_end: processes`, their kernels
//! run in processes, and one that crashes, hangs or writes nonsense harms no other slice of the instance either.
//!
//! - [`application`]: what a slice is; [`catalogue`]: those that exist, by name, each a file in `graphs`.
//! - [`radio`]: samples as numbers. [`message`]: samples and results in UDP, framed as eCPRI does; [`assembly`]: pieces become an interval's input.
//! - [`function`]: the network function. It stands in the path of a flow: messages for a slice end here, its results go on
//!   with the same addresses, and everything else passes.

#![forbid(unsafe_code)]

pub mod application;
pub mod assembly;
pub mod catalogue;
mod config;
mod confine;
mod counters;
pub mod function;
mod graphs;
pub mod message;
pub mod radio;
mod slice;

pub use function::{ENTRY, built_in, started};

#[cfg(test)]
mod tests;
