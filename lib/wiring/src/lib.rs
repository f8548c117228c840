//! The wiring: what each port of the data plane is joined to.
//!
//! `nfluid_control::wiring` turns a deployment's links, chains and templates into one destination for each port. [`Wires`] turns
//! a change of a destination into operations on numbered ports, and knows what the deployment does not say: which instances
//! frames are led past because they are paused, and which sender rings a receiver's doorbell.
//!
//! | module | what it is |
//! |---|---|
//! | [`operation`] | what the data plane is told |
//! | [`ports`] | what the wiring has to know of instances and switches |
//! | [`wires`] | the destinations of all ports |
//! | `bypass` | instances that frames are led past |
//! | `doorbells` | receivers that the switch wakes, and receivers that their senders wake |
//! | [`templates`] | the numbers of templates, whose clients have an instance each |
//!
//! This crate contains no switch, file, process or clock: the daemon executes the operations. So every re-wiring is a
//! table in `tests/`, without root.

#![forbid(unsafe_code)]

mod bypass;
mod doorbells;
pub mod operation;
pub mod ports;
pub mod templates;
pub mod wires;

pub use bypass::BypassError;
pub use operation::{ClientEntry, Entry, Join, Operation};
pub use ports::Ports;
pub use wires::{Change, Wires, WiringError};
