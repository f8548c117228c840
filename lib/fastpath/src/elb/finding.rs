//! Findings of the threads that monitor a balancer's servers, sent to the balancer.

use super::load::Reading;
use crate::function::Waker;
use std::sync::mpsc::Sender;

/// A finding of a thread.
pub(super) enum Finding {
    /// A server is down, with the reason; or it is up.
    Server { key: String, down: Option<String> },
    /// An agent's reading of its server's load, or the reason why there is none.
    Load {
        key: String,
        reading: Result<Reading, String>,
    },
}

/// Sender of a thread's findings. Findings for a balancer that is gone are discarded.
pub(super) struct Findings {
    pub(super) instance: String,
    pub(super) sender: Sender<Finding>,
    pub(super) waker: Waker,
}

impl Findings {
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    pub(super) fn report(&self, finding: Finding) {
        if self.sender.send(finding).is_ok() {
            self.waker.wake();
        }
    }
}
