//! Policies for the choice of an instance's core among its allowed cores.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The policy by which the core of an instance is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The kernel chooses at any time.
    #[default]
    Free,
    /// The instance stays on a single core, chosen at its start by the promised shares.
    Pinned,
    /// The instance runs on a single core at a time, and the daemon balances the measured load.
    Spread,
    /// The instance runs on a single core at a time. The daemon uses as few cores as can carry the measured load, so that
    /// the others idle.
    Packed,
}

impl Placement {
    /// All placements, by their words in documents.
    pub const WORDS: [(&str, Placement); 4] = [
        ("free", Placement::Free),
        ("pinned", Placement::Pinned),
        ("spread", Placement::Spread),
        ("packed", Placement::Packed),
    ];

    /// Returns true if the daemon moves such an instance while the instance runs.
    pub fn is_moved(self) -> bool {
        matches!(self, Placement::Spread | Placement::Packed)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, placement)| placement == self);
        f.pad(word.map_or("free", |(word, _)| word))
    }
}
