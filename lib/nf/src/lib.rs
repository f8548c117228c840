//! The network functions of nfluid, one folder each.
//!
//! A network function takes a typed configuration and batches of frames. The NF sees no thread, clock or socket: time
//! and frames are handed to it, so the same code runs in a process, in a guest without a kernel and as wasm.
#![cfg_attr(not(any(test, feature = "testing")), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod ageing;
#[cfg(feature = "port")]
pub mod attached;
pub mod bridge;
mod bucket;
#[cfg(test)]
mod captures;
pub mod catalogue;
pub mod config;
pub mod counter;
pub mod firewall;
mod fragmentation;
pub mod function;
mod icmp_error;
mod ipv4_options;
pub mod limiter;
pub mod mirror;
pub mod nat;
mod prefix;
pub mod router;
mod seed;
pub mod signature;
pub mod stateful;
#[cfg(test)]
mod super_frames;
mod table;
mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traffic;
pub mod vlan;

pub use function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
