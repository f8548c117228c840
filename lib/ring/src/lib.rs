//! Ring layout, frame batches and the port library of nfluid.
//!
//! - [`layout`]: the memory that an instance shares with the switch (one definition, in
//!   `bpf/include/nfluid_abi.h`; the sizes are asserted on both sides).
//! - [`flow`]: which flows go together when several instances share a port's.
//! - [`offload`]: checksums and segments that are still to be made of a frame.
//! - [`batch`]: the view of a network function: frames in place, one decision per frame; from frames to packets.
//! - [`table`]: the table by which an instance finds its ports. [`attach`]: attaching to them.
//! - [`assignment`]: the message that assigns a network function to a process that waits in a prepared instance.
//! - [`port`]: receive in place, send, forward without a copy.
//! - [`engine`]: the loop body of a network function.
//! - [`doorbell`]: block until a frame arrives. [`named_pipe`]: the pipes by which peers ring.
//! - [`bells`]: the same for threads with event loops of their own. [`patience`]: the turns before a sleep.
//! - [`mod@slice`]: how long a thread runs at a time beside others.
//! - [`clock`]: the time that all of them share.
//! - [`mpsc`]: one ring of very many producers that trust each other.
//!
//! Without the `port` feature the crate is `no_std` and does no system call.
#![cfg_attr(not(any(test, feature = "port")), no_std)]

#[cfg(feature = "port")]
pub mod assignment;
#[cfg(feature = "port")]
pub mod attach;
pub mod batch;
#[cfg(feature = "port")]
pub mod bells;
#[cfg(feature = "port")]
pub mod clock;
#[cfg(feature = "port")]
pub mod doorbell;
#[cfg(feature = "port")]
pub mod engine;
#[cfg(feature = "port")]
pub mod error;
pub mod flow;
pub mod layout;
#[cfg(feature = "port")]
mod lending;
#[cfg(feature = "port")]
mod long;
#[cfg(feature = "port")]
pub mod memory;
pub mod mpsc;
#[cfg(feature = "port")]
pub mod named_pipe;
pub mod offload;
mod packets;
#[cfg(feature = "port")]
pub mod patience;
#[cfg(feature = "port")]
pub mod port;
#[cfg(feature = "port")]
pub mod slice;
#[cfg(feature = "port")]
pub mod table;
#[cfg(feature = "port")]
mod turn;
#[cfg(feature = "port")]
mod wake_sources;

pub use batch::{Action, Batch, Frame, Outbox, frame_at};
pub use offload::{Level, Offload};
