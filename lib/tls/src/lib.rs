//! Configuration ([`config`]) and identity ([`identity`]) of a TLS terminator: for the daemon, which checks both before
//! it starts a terminator, and for the terminator itself.
//!
//! Also mutual TLS ([`mutual`]) between daemons and with clients of the API, and its callers before they are known
//! ([`strangers`]).
//!
//! Keys are in memory that is overwritten when dropped ([`key::Key`]).
#![forbid(unsafe_code)]

pub mod config;
pub mod identity;
pub mod key;
pub mod listening;
#[cfg(feature = "mutual")]
pub mod mutual;
#[cfg(feature = "mutual")]
pub mod strangers;
#[cfg(feature = "testing")]
pub mod testing;
