//! TCP servers as network functions: one port, addresses of their own, and no kernel.
//!
//! [`smoltcp`] is the network stack: ARP, neighbour discovery, ICMP echo, IPv4, IPv6 and TCP. A [`service::Service`] says what
//! clients are told: [`daytime`] or [`http`]. They are for guests of tier `microvm` (`lib/guest/src/bin`): the smallest
//! useful server that can be created for one client, as in "My VM is Lighter (and Safer) than your Container" (SOSP '17).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod connection;
pub mod daytime;
mod exchange;
pub mod http;
mod server;
pub mod service;
mod station;
#[cfg(test)]
mod tests;

pub use server::Surroundings;
