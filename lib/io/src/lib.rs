//! I/O threads: the I/O models `split`, `merge` and `mix`, in which the switch is not run by the
//! sender itself (`docs/adr/0008-io-models.md`).
//!
//! - [`duty`]: a port that a thread serves, as the thread sees it.
//! - [`worker`]: the loop: look at the rings, run the switch for those that have frames, ring doorbells, sleep.
//! - [`placement`]: on which core a thread runs.
//! - [`thread`]: a worker on a thread of its own, to which ports are given and from which they are taken.
//!
//! The words that a thread reads in a ring are an instance's: they decide when the thread looks, and never what the
//! switch does.

pub mod duty;
pub mod placement;
pub mod thread;
pub mod worker;

pub use duty::{Doorbells, Duty};
pub use placement::Placement;
pub use thread::IoThread;
pub use worker::{Idle, Worker, WorkerStats};
