//! On which core an instance runs, among those that it may run on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Who decides on which core an instance runs, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The kernel, from moment to moment.
    #[default]
    Free,
    /// On one core, chosen when it starts by what is promised there, for as long as it runs.
    Pinned,
    /// On one core at a time: the daemon balances the measured load.
    Spread,
    /// On one core at a time: on as few as can carry the measured load, so that the others rest.
    Packed,
}

impl Placement {
    /// Every placement, by the word that a document has for it.
    pub const WORDS: [(&str, Placement); 4] = [
        ("free", Placement::Free),
        ("pinned", Placement::Pinned),
        ("spread", Placement::Spread),
        ("packed", Placement::Packed),
    ];

    /// Whether the daemon moves such an instance while it runs.
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
