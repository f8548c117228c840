//! Places where packets wait: a core with network functions, and a link, are both a [`Station`] that spends time on
//! packets. The cost of a packet at a core is CPU time; at a link, its length over the rate.
//!
//! - [`station`]: rings, and turns in which a batch is served.
//! - [`service`]: whose turn it is.
//! - [`congestion`]: signals on entry, by the data plane's own law (`lib/marking`).

pub mod congestion;
pub mod service;
pub mod station;

pub use congestion::{Congestion, Marking};
pub use service::Service;
pub use station::{Class, Entry, Station};

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The owner: an index into all subflows.
    pub subflow: u32,
    /// The hop of its route that it is at.
    pub hop: u32,
    /// Number of the transmission.
    pub number: u64,
    /// Which packet of the stream it carries.
    pub sequence: u64,
    /// True if the packet can be marked instead of dropped (ECT, RFC 3168).
    pub can_be_marked: bool,
    /// True if the packet has been marked (CE).
    pub marked: bool,
}
