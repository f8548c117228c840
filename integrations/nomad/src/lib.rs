//! A task driver for Nomad: its tasks are instances of nfluid.
//!
//! The agent starts this program and speaks gRPC with it over a UNIX socket ([`serve`]). The program speaks nfluid's API with the daemon.
//! The program keeps nothing on disk: Nomad keeps a handle for each task, from which a new driver knows the task again (`tasks.rs`).
#![forbid(unsafe_code)]

mod config;
mod driver;
mod ends;
mod files;
mod fingerprint;
mod follow;
mod hcl;
mod instances;
mod links;
mod logs;
mod plugin;
pub mod protocol;
pub mod serve;
mod stats;
mod succession;
mod tasks;
