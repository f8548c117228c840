//! Ring layout, frame batches and the port library of nfluid.
//!
//! - [`layout`]: the memory that an instance shares with the switch (one definition, in
//!   `bpf/include/nfluid_abi.h`; the sizes are asserted on both sides).
//! - [`batch`]: what a network function sees: frames in place, one decision per frame.
//! - [`attach`]: the table by which an instance finds its ports, and attaching to them.
//! - [`port`]: receive in place, send, forward without a copy.
//! - [`engine`]: the loop body of a network function.
//! - [`doorbell`]: block until a frame arrives.
//!
//! Without the `port` feature the crate is `no_std` and does no system call.
#![cfg_attr(not(any(test, feature = "port")), no_std)]

#[cfg(feature = "port")]
pub mod attach;
pub mod batch;
#[cfg(feature = "port")]
pub mod doorbell;
#[cfg(feature = "port")]
pub mod engine;
pub mod layout;
#[cfg(feature = "port")]
pub mod memory;
#[cfg(feature = "port")]
pub mod port;

pub use batch::{Action, Batch, Frame, Outbox};
