//! The tables by which the switch divides the flows of a port among the ports of several members.

use nfluid_control::apply::PlatformError;
use nfluid_ring::flow::BUCKETS;
use std::time::Duration;

/// For each bucket of flows, the number of the port that gets its frames.
pub type Table = [u32; BUCKETS];

/// The tables of all ports.
pub trait FlowTables: Send + Sync {
    /// Returns the table of a port. `None`: the port has no table, and gets all frames for it.
    ///
    /// # Errors
    /// The switch cannot be asked.
    fn get(&self, port: u32) -> Result<Option<Table>, PlatformError>;

    /// Gives a port a table by which the port itself gets all flows, unless it has one.
    ///
    /// # Errors
    /// No further table is free.
    fn begin(&self, port: u32) -> Result<(), PlatformError>;

    /// Changes the table of a port.
    ///
    /// # Errors
    /// The port has no table.
    fn set(&self, port: u32, table: &Table) -> Result<(), PlatformError>;

    /// Waits until no frame from `senders` for the port is under way by the table as it was before its last change.
    /// Returns false if `patience` passes first.
    ///
    /// # Errors
    /// The port has no table.
    /// The port has no table.
    fn await_change(
        &self,
        port: u32,
        senders: &[u32],
        patience: Duration,
    ) -> Result<bool, PlatformError>;

    /// Removes the table of a port, if it has one.
    ///
    /// # Errors
    /// The kernel refuses.
    fn end(&self, port: u32) -> Result<(), PlatformError>;

    /// Returns the position of a port's ring up to which senders have reserved room.
    fn reserved_to(&self, port: u32) -> u32;
}
