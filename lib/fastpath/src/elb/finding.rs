//! What the threads that look after a balancer's servers have found, on its way to the balancer.

use super::load::Reading;
use crate::function::Waker;
use std::sync::mpsc::Sender;

/// What a thread has found.
pub(super) enum Finding {
    /// A server is down, and why; or it is up.
    Server { key: String, down: Option<String> },
    /// What a server's agent has said of its load, or why it has said nothing.
    Load {
        key: String,
        said: Result<Reading, String>,
    },
}

/// Where a thread reports what it has found. A balancer that is gone hears nothing.
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
