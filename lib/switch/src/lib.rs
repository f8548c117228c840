//! User half of nfluid's eBPF switch: loads it, owns its maps, makes and connects ports.
//!
//! - [`program`]: loading, the two loop forms, attaching, pinning.
//! - [`instance`]: the memory, sockets and doorbells of one instance, and its port table.
//! - `object`: the compiled programs; `maps`: making, pinning and opening maps.
//! - `registry`: entering instances into the tables, removing them; `tables`: changing tables of maps.
//! - `service`: settings of ports in service, taking them out of service.
//! - `grace`: threads that wait for the kernel.
//! - `quiet`: waiting until no call is under way that has seen the switch as it was.
//! - `gaps`: positions of a ring that are reserved and will never be published.
//! - [`numbers`]: free numbers of ports, pools and others.
//! - `destination`: the destination of a port's frames, as a word of the port's state.
//! - [`group`]: pools that several instances share, and the owner of each slot.
//! - [`ports`]: connecting ports, counters, reclaiming.
//! - [`fdb`]: pinned and learned addresses.
//! - [`classifier`], `queues`: which port takes a frame that an interface has received.
//! - `uplink`: the switch's part of a port that is backed by an interface.
//! - [`serve`]: the switch run by I/O threads.
//! - [`signal`]: congestion signals and refusals.
//! - [`spread`]: ports behind which are several instances.
//! - [`abi`]: the trusted state, shared with the program.

pub mod abi;
pub mod capture;
pub mod classifier;
pub mod client;
mod deposit;
mod destination;
mod error;
pub mod fdb;
mod gaps;
mod grace;
pub mod group;
pub mod handover;
pub mod instance;
pub mod interface;
mod maps;
pub mod numbers;
mod object;
pub mod ports;
pub mod program;
mod queues;
mod quiet;
mod registry;
pub mod serve;
mod service;
pub mod signal;
pub mod spread;
mod states;
mod tables;
mod uplink;

pub use abi::DropReason;
pub use deposit::Inlet;
pub use error::SwitchError;
pub use gaps::Gaps;
pub use group::Group;
pub use handover::{Handover, Maps};
pub use instance::{InstanceMemory, LongSlots, PortSpec, Wake};
pub use interface::Interface;
pub use ports::{Destination, PortCounters, RingSample, WatchedRing};
pub use program::{Form, Options, Switch};
pub use queues::{QUEUES_MAX, Queues};
pub use signal::PortSignal;
pub use uplink::{PortAccount, UplinkHook};
