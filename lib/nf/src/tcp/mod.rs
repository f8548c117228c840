//! TCP connections as a middlebox between the two ends sees them: for the firewall and the NAT.
//!
//! `segment`: the content of one segment. `connection`: which segments belong to a connection, and its state.
//! `half_open`: the connections whose handshake is not over, in the order in which they began.

mod connection;
mod half_open;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use connection::{Connection, Effect, End, OutOfWindow, Policy, Stage, Summary};
pub(crate) use half_open::HalfOpen;
pub(crate) use segment::Segment;
