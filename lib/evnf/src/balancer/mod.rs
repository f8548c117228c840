//! eLB: connections to the address of a service go to one of its servers.

pub mod maglev;
pub mod program;

pub use program::{Balancer, Exit, Mode, Server, Service, State, Transport};
