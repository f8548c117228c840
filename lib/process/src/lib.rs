//! Processes that the daemon starts beside instances, and that outlive the daemon: `nfluidd uplink`, `nfluidd io`.
//!
//! | module | what it is |
//! |---|---|
//! | [`service`] | what such a process is for, and its life |
//! | [`handle`] | the daemon's side: starts a process, or finds the one of an earlier daemon |
//! | [`protocol`] | what the two say to each other |
//! | [`uplink`] | the process of an uplink |
//! | [`io`] | the process of the I/O threads |
//!
//! The work of these processes must go on while the daemon is down, so each process is in a session of its own. A
//! process is given a [`Job`] on its standard input, and answers on its standard output. From then on the process
//! listens to its socket alone, where the same daemon or a later one finds it. See
//! `docs/adr/0007-a-process-per-uplink.md`.

pub mod handle;
pub mod io;
mod journal;
mod privileges;
pub mod protocol;
mod serve;
pub mod service;
pub mod uplink;

pub use handle::{Process, end_if_alive};
pub use protocol::{End, Job, PROTOCOL};
pub use service::{RESTART, Service, run};
