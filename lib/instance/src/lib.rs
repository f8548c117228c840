//! Instances of tier `process`: creation, adoption and removal.
//!
//! | module | what it is |
//! |---|---|
//! | [`making`] | an instance that is being created; shells: processes that wait for their assignment |
//! | [`pool`] | shells that are kept ready |
//! | [`runtime`] | the interface by which the life of instances creates them |
//! | [`launch`] | starts a program in its sandbox, with the descriptors that it inherits |
//! | [`terminator`] | the additional descriptors of a TLS terminator |
//! | [`process`] | a running instance, for its life (`nfluid_lifecycle`); adoption; removal of leftovers |
//! | [`paths`] | where files, pipes, sockets and pins are |
//! | [`numbers`] | numbers of ports, pools and kernel users |
//! | [`trust`] | instances that share buffers |
//! | [`cgroups`], [`limits`], [`tenants`] | what instances and groups of tenants may use |
//! | [`port_specs`] | its ports, for the switch |
//! | [`doorbell`] | the pipes that wake instances |
//! | [`exits`], [`cleaner`] | processes that have ended, and what is left of them |
//! | [`logs`], [`log_room`], [`reserve`] | logs, and the room that is kept for records |
//! | [`functions`] | programs that run once, for an answer |
//!
//! This crate knows no plan, no API server and no other instance: the daemon names the instances to be created, and
//! the doorbells that each one gets.

pub mod cgroups;
pub mod cleaner;
pub mod descriptors;
pub mod doorbell;
pub mod exits;
pub mod functions;
pub mod launch;
pub mod limits;
pub mod log_room;
pub mod logs;
pub mod making;
pub mod numbers;
pub mod paths;
pub mod pool;
pub mod port_specs;
pub mod process;
pub mod reserve;
pub mod runtime;
pub mod tenants;
pub mod terminator;
pub mod trust;
