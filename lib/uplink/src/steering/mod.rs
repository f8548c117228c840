//! Classification by the NIC: flow rules (`ethtool -N`) send frames that match a rule of the classifier to a receive
//! queue of the receiver's own, and the uplink's XDP program hands all frames of that queue to that receiver without
//! looking at them.
//!
//! Steering is the classifier's answer, found earlier: rules that a NIC cannot have, for which it has no queue or no
//! room are left to the classifier, which classifies every frame of all other queues. Steering is set up in an order
//! in which no frame goes astray: other frames are spread elsewhere, rules are added, the frames that are still in
//! the queues run out, and only then is a queue its owner's. Steering is undone in the opposite order.

mod choice;
#[cfg(test)]
mod fake;
mod flow;
mod hold;

pub use choice::{Choice, STEERED_MAX};

pub(crate) use hold::{give_back, take};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time in which frames that a queue got before its rules leave the queue.
pub(crate) const DRAIN: Duration = Duration::from_millis(20);

/// Changes at a NIC by which it steers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The queues that belong to a port: every rule that leads there is ours.
    pub queues: Vec<u32>,
    /// The former distribution of frames; empty: unchanged.
    pub spread: Vec<u32>,
    /// `rx-ntuple-filter` was off.
    pub switched_on: bool,
}

/// The work that a NIC does for an uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steered {
    /// Receive queues, each with the port that owns it.
    pub queues: Vec<(u32, u32)>,
    /// Rules that it obeys.
    pub rules: u32,
    /// The entries of its table that they have become.
    pub flows: u32,
    /// Rules that are left to the classifier.
    pub left: u32,
    /// The reason for the first of them; empty: there is none.
    pub why: String,
}

impl Steered {
    /// Leaves this number of further rules to the classifier.
    pub fn leave(&mut self, rules: u32, why: &str) {
        self.left += rules;
        if rules > 0 && self.why.is_empty() {
            why.clone_into(&mut self.why);
        }
    }
}
