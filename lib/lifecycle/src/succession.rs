//! How a successor gets the ports and the state of a running instance.

use nfluid_protocol::answer::HandedOver;

/// A successor that was started beside a running instance. Which of the two has the ports, they settle by themselves
/// (`docs/adr/0013-state-of-nfs.md`): should this daemon die in between, the next one finds exactly one of them.
pub trait Succession: Send {
    /// Waits until the successor is ready, and has the predecessor hand over. Called without the lock of the host.
    ///
    /// # Errors
    /// The predecessor has the ports still.
    fn hand_over(&self) -> anyhow::Result<HandedOver>;

    /// Doorbells that the successor was given, by port.
    fn doorbells(&self) -> &[Option<String>];
}
