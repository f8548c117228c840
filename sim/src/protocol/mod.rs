//! A model of the switch's protocol, in which a seed decides who takes the next step (docs/internals/model.md).
//!
//! Senders, receivers, an I/O thread and the daemon are actors: async functions in which each access to memory that
//! others write is a point at which any other actor may run. The rings and the instances' use of them are the real
//! code (`nfluid_ring`); the switch's program and the daemon's side are written down here as they are in `bpf/switch`
//! and `lib/switch`, function by function, so that both can be read side by side. `tests/tests/guest_model.rs`
//! compares the program's side with the real one.
//!
//! - [`schedule`]: who takes the next step. [`memory`]: what they share.
//! - [`deliver`], [`fdb`], [`transmit`], `long`, `pass`: the program. [`daemon`]: the platform's side of it.
//! - [`instance`], [`storm`]: the actors' work in a run. [`audit`]: the conditions that must hold whatever they do.
//! - [`mutation`]: defects that a run can be given, to see that it finds them.
//!
//! Accesses are sequentially consistent: what weaker orders allow is loom's subject (`lib/ring/tests`). Not modelled are
//! doorbells, queues, ageing, congestion signals, captures and uplinks.

pub mod audit;
pub mod daemon;
pub mod deliver;
mod drop;
pub mod fdb;
mod flood;
mod frame;
pub mod instance;
mod long;
pub mod memory;
pub mod mutation;
mod offload;
mod pass;
pub mod schedule;
pub mod storm;
pub mod transmit;
