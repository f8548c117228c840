//! Messages between components: 64-bit words, `kind 8 | flags 8 | slot 16 | index 32`.
//!
//! A peer may send anything: [`Message::decode`] refuses what is no message, and whoever receives one checks slot and
//! index against what it has itself.

use crate::queue::Word;

/// Index of a graph in the core manager's table.
pub type GraphSlot = u16;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Core manager to PE: the graph in this slot is a new one. To a process: the cache line of its memory in which it begins.
    Graph(GraphSlot, u32),
    /// Core manager to PE: run this unit; its inputs are there.
    Run(GraphSlot, u32),
    /// PE to core manager: the unit has run. Start and duration are in the unit's record.
    Done(GraphSlot, u32),
    /// PE to core manager: the unit has failed.
    Failed(GraphSlot, u32),
    /// Core manager to PE: leave.
    Stop,
}

impl Message {
    /// Returns the message as a word.
    #[inline]
    pub fn encode(self) -> Word {
        let (kind, slot, index) = match self {
            Self::Graph(slot, line) => (1, slot, line),
            Self::Run(slot, unit) => (2, slot, unit),
            Self::Done(slot, unit) => (3, slot, unit),
            Self::Failed(slot, unit) => (4, slot, unit),
            Self::Stop => (5, 0, 0),
        };
        let word = kind << 56 | u64::from(slot) << 32 | u64::from(index);
        // No kind is zero.
        Word::new(word).unwrap_or(Word::MIN)
    }

    /// Returns the message of a word, or `None` if the word is none.
    #[inline]
    pub fn decode(word: Word) -> Option<Self> {
        let word = word.get();
        let (slot, index) = ((word >> 32) as u16, word as u32);
        let message = match word >> 56 {
            1 => Self::Graph(slot, index),
            2 => Self::Run(slot, index),
            3 => Self::Done(slot, index),
            4 => Self::Failed(slot, index),
            5 => Self::Stop,
            _ => return None,
        };
        (message.encode().get() == word).then_some(message)
    }
}
