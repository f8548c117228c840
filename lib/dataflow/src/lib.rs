//! Dataflow: graphs of small tasks that are composed, scheduled and executed once per transmission interval.
//!
//! A base station in software computes, each millisecond and for each *slice* (the baseband processing of one user or
//! application), a graph of hundreds of tasks of microseconds. The model is a Kahn process network: tasks share nothing,
//! and read what their predecessors wrote. The components (Superfluidity D5.2, section 7):
//!
//! - [`graph`]: a graph, checked and immutable; [`levels`]; [`schedule`]: static schedulers.
//! - [`plan`]: a graph as it is executed, small tasks gathered into units.
//! - [`queue`], [`message`]: 64-bit messages between components, a cache line per message in flight.
//! - [`manager`]: the core manager, without clock and threads; [`replay`] drives it in virtual time.
//! - [`costs`]: what tasks take, measured.
//! - `engine`: slices, processing elements (PEs) and the core manager on threads.
//!
//! Outputs are bit-identical for any number of PEs, policy and gathering: a task can read nothing but its inputs. The crate
//! does no I/O. Decisions: `docs/adr/0050-dataflow.md`.

#![cfg_attr(not(feature = "threads"), no_std)]

extern crate alloc;

pub mod costs;
#[cfg(feature = "threads")]
pub mod engine;
pub mod graph;
pub mod levels;
pub mod manager;
pub mod message;
pub mod plan;
pub mod queue;
pub mod replay;
pub mod schedule;

#[cfg(test)]
mod tests;
