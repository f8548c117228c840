//! A task driver for Nomad: its tasks are instances of nfluid.
//!
//! The agent starts this program and speaks gRPC with it over a UNIX socket ([`serve`]). The program speaks nfluid's API with the daemon.
//! It keeps nothing on disk: what it has to know again after a restart is in the handles that Nomad keeps (`tasks.rs`).
#![forbid(unsafe_code)]

mod config;
mod driver;
mod ends;
mod files;
mod fingerprint;
mod follow;
mod hcl;
mod links;
mod logs;
mod plugin;
pub mod protocol;
pub mod serve;
mod stats;
mod tasks;
