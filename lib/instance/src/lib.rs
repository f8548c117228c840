//! Instances of tier `process`: how one is made, found again, and taken down.
//!
//! | module | what it is |
//! |---|---|
//! | [`making`] | an instance in the making, with shells: processes that wait to be told what they are |
//! | [`pool`] | shells that are kept ready |
//! | [`launch`] | starts a program in its sandbox, with what it inherits |
//! | [`terminator`] | what a TLS terminator inherits besides |
//! | [`running`] | an instance that runs |
//! | [`record`] | what is written down of it, for a later daemon |
//! | [`paths`] | where files, pipes, sockets and pins are |
//! | [`numbers`] | numbers of ports, pools and kernel users |
//! | [`trust`] | instances that share buffers |
//! | [`cgroups`], [`cores`], [`machine`] | what an instance may use, and where |
//! | [`doorbell`] | the pipes that wake instances |
//! | [`exits`], [`cleaner`] | processes that have ended, and what is left of them |
//! | [`logs`], [`log_room`], [`reserve`] | logs, and the room that is kept for records |
//! | [`functions`] | programs that run once, for an answer |
//!
//! The room knows no plan, no API server and no other instance: the daemon says what is to be made, with whose doorbells.

pub mod cgroups;
pub mod cleaner;
pub mod cores;
pub mod descriptors;
pub mod doorbell;
pub mod exits;
pub mod functions;
pub mod launch;
pub mod log_room;
pub mod logs;
pub mod machine;
pub mod making;
pub mod numbers;
pub mod paths;
pub mod pool;
pub mod record;
pub mod reserve;
pub mod running;
pub mod terminator;
pub mod trust;
