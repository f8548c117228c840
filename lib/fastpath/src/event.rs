//! What happens to fast paths, for the daemon's log of events.

use nfluid_api::types::EventKind;

/// An event of a fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What sort of event.
    pub kind: EventKind,
    /// The instance.
    pub instance: String,
    /// What has happened, for the operator.
    pub message: String,
}
