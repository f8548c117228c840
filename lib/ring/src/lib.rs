//! Ring layout, frame batches and the port library of nfluid.
//!
//! - [`layout`]: the memory that an instance shares with the switch (one definition, in
//!   `bpf/include/nfluid_abi.h`; the sizes are asserted on both sides).
//! - [`batch`]: what a network function sees: frames in place, one decision per frame.
//!
//! Without the `port` feature the crate is `no_std` and does no system call.
#![cfg_attr(not(any(test, feature = "port")), no_std)]

pub mod batch;
pub mod layout;

pub use batch::{Action, Batch, Frame, Outbox};
