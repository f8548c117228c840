//! The handover of ports and state from a running instance to a successor.

use nfluid_protocol::answer::HandedOver;

/// A successor that was started beside a running instance. The two processes settle which of them has the ports
/// (`docs/adr/0013-state-of-nfs.md`): if this daemon dies in between, the next daemon finds exactly one owner.
pub trait Succession: Send {
    /// Waits until the successor is ready, and makes the predecessor hand over. Called without the lock of the host.
    ///
    /// # Errors
    /// The predecessor still has the ports.
    fn hand_over(&self) -> anyhow::Result<HandedOver>;

    /// Returns the doorbells that the successor was given, by port.
    fn doorbells(&self) -> &[Option<String>];
}
