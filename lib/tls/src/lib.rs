//! What a TLS terminator is told ([`config`]) and who it is ([`identity`]): for the daemon, which checks both before it starts
//! one, and for the terminator itself.
//!
//! Keys are in memory that is overwritten when it is given up ([`key::Key`]).
#![forbid(unsafe_code)]

pub mod config;
pub mod identity;
pub mod key;
pub mod listening;
#[cfg(feature = "testing")]
pub mod testing;
