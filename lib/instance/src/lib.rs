//! Instances of tier `process`: creation, adoption and removal.
//!
//! | module | what it is |
//! |---|---|
//! | [`making`] | an instance that is being created; shells: processes that wait for their assignment |
//! | [`pool`] | shells that are kept ready |
//! | [`runtime`] | what the life of instances has them made by |
//! | [`maker`] | what instances are made with |
//! | [`programs`] | their programs, open, and the system call filters of these |
//! | [`launch`] | starts a program in its sandbox, with what it inherits |
//! | [`terminator`] | what a TLS terminator inherits besides |
//! | [`process`] | an instance that runs, for its life (`nfluid_lifecycle`); taking one over; what is left of one |
//! | [`paths`] | where files, pipes, sockets and pins are |
//! | [`numbers`] | numbers of ports, pools and kernel users |
//! | [`trust`] | instances that share buffers |
//! | [`cgroups`], [`limits`], [`tenants`] | what instances and groups of tenants may use |
//! | [`seed`] | the seed of the hash tables of NFs |
//! | [`port_specs`] | its ports, for the switch |
//! | [`doorbell`] | the pipes that wake instances |
//! | [`exits`], [`cleaner`] | processes that have ended, and what is left of them |
//! | [`logs`], [`log_room`], [`reserve`] | logs, and the room that is kept for records |
//! | [`functions`] | programs that run once, for an answer |
//!
//! This crate knows no plan, no API server and no other instance: the daemon names the instances to be created, and
//! the doorbells that each one gets.

mod access;
pub mod cgroups;
pub mod cleaner;
mod companion;
pub mod descriptors;
pub mod doorbell;
pub mod exits;
pub mod functions;
pub mod launch;
pub mod limits;
mod linux;
pub mod log_room;
pub mod logs;
mod machine;
pub mod maker;
pub mod making;
mod netmap;
pub mod numbers;
pub mod paths;
pub mod pool;
pub mod port_specs;
pub mod process;
pub mod programs;
pub mod reserve;
pub mod runtime;
pub mod seed;
mod server;
pub mod tenants;
pub mod terminator;
pub mod trust;

pub use server::outer::OuterEnds;
