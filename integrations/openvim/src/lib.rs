//! A server with the interface of OpenVIM (API 0.6), whose servers are instances of nfluid, on the hosts that it knows.
#![forbid(unsafe_code)]

mod attached;
mod creation;
pub mod fault;
pub mod hosts;
pub mod http;
mod networks;
pub mod objects;
mod render;
mod servers;
pub mod store;
mod turns;
pub mod vim;
