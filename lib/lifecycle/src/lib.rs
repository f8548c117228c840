//! The life of instances, for every kind of isolation.

#![forbid(unsafe_code)]

pub mod arrival;
pub mod cores;
pub mod creation;
pub mod departure;
pub mod errors;
pub mod limits;
pub mod machine;
pub mod pausing;
pub mod placing;
pub mod record;
pub mod running;
pub mod runtime;
pub mod scaling;
pub mod services;
pub mod state;
pub mod succession;
pub mod supervision;
pub mod table;
pub mod upgrade;
pub mod workload;
