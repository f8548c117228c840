//! The destination of a port's frames, with the number of its changes: the mirror of `bpf/switch/way.h`.

use crate::ports::Destination;
use crate::program::Switch;
use std::sync::atomic::Ordering::{Acquire, Release};

const KIND_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = 40;
const OWNER_GENERATION_SHIFT: u32 = 32;
const NONE: u64 = 0;
const LINK: u64 = 1;
const SWITCH: u64 = 2;
const CLASSIFIER: u64 = 3;

/// The word `PortState::way`: kind and number of the destination, and the generation. All of it changes by one store,
/// so that no call sees half of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DestinationWord(u64);

impl DestinationWord {
    pub(crate) fn destination(self) -> Destination {
        let to = self.0 as u32;
        match self.0 >> KIND_SHIFT & 0xff {
            LINK => Destination::Link(to),
            SWITCH => Destination::Switch(to),
            CLASSIFIER => Destination::Classifier,
            _ => Destination::None,
        }
    }

    /// Returns the word of the next destination. Its generation invalidates the addresses that were learned about the
    /// port. The generation wraps after 2^24 changes; addresses that were learned so long ago have aged.
    fn next(self, to: Destination) -> Self {
        let (kind, to) = match to {
            Destination::None => (NONE, 0),
            Destination::Link(port) => (LINK, port),
            Destination::Switch(switch) => (SWITCH, switch),
            Destination::Classifier => (CLASSIFIER, 0),
        };
        let generation = (self.0 >> GENERATION_SHIFT).wrapping_add(1);
        DestinationWord(generation << GENERATION_SHIFT | kind << KIND_SHIFT | u64::from(to))
    }

    /// Returns the owner of an address that is learned on `port` with the present destination.
    pub(crate) fn owner(self, port: u32) -> u64 {
        self.0 >> GENERATION_SHIFT << OWNER_GENERATION_SHIFT | u64::from(port)
    }
}

impl Switch {
    pub(crate) fn destination_word(&self, port: u32) -> DestinationWord {
        DestinationWord(self.state(port).way.load(Acquire))
    }

    /// Sets the destination of the port's frames. Only the daemon changes destinations, one after the other.
    pub(crate) fn set_destination(&self, port: u32, to: Destination) {
        let DestinationWord(next) = self.destination_word(port).next(to);
        self.state(port).way.store(next, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 1.37
    #[test]
    fn a_word_has_the_destination_that_was_set_and_each_change_has_an_owner_of_its_own() {
        let mut word = DestinationWord(0);
        let all = [
            Destination::Link(32_767),
            Destination::Switch(1023),
            Destination::Classifier,
            Destination::None,
        ];
        let mut owners = std::collections::BTreeSet::new();
        for to in all.into_iter().cycle().take(1000) {
            word = word.next(to);
            assert_eq!(word.destination(), to);
            assert_eq!(word.owner(7) as u32, 7);
            assert!(owners.insert(word.owner(7)), "{word:?}");
        }
    }

    #[test]
    fn the_last_generation_is_followed_by_the_first_and_is_not_taken_for_a_pinned_address() {
        let last = DestinationWord(u64::MAX);
        assert_eq!(last.owner(7) >> 56, 0);
        assert_eq!(last.next(Destination::None), DestinationWord(0));
    }
}
