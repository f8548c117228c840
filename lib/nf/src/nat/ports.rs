//! External ports of one pool address: which are taken, and which to take next.

use alloc::boxed::Box;
use alloc::vec;
use core::ops::RangeInclusive;

const WORDS: usize = 65_536 / 64;
/// Bits of the even ports in a word.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Properties that the external port should share with the inside port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The inside port.
    pub(super) port: u16,
    /// Take the same port if it is free.
    pub(super) preserve: bool,
    /// Take an even port for an even one, an odd for an odd (RFC 4787 section 4.2.2).
    pub(super) parity: bool,
}

/// The external ports of dynamic mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) range: RangeInclusive<u16>,
    /// An inside port below 1024 gets an external one below 1024, as long as there are some (RFC 4787 REQ-3a): some IKE and
    /// DNS servers insist on it.
    pub(super) well_known: bool,
}

const WELL_KNOWN: RangeInclusive<u16> = 1..=1023;

impl Ports {
    pub(super) fn contains(&self, port: u16) -> bool {
        self.range.contains(&port) || self.well_known && WELL_KNOWN.contains(&port)
    }
}

/// A bitmap of the taken ports: 8 KiB. A free port is found in at most 1060 steps, whatever the
/// occupancy, and there is none only if all are taken.
#[derive(Debug)]
pub(super) struct PortSpace {
    taken: Box<[u64]>,
    ports: Ports,
    count: u32,
}

impl PortSpace {
    pub(super) fn new(ports: Ports) -> PortSpace {
        PortSpace {
            taken: vec![0; WORDS].into_boxed_slice(),
            ports,
            count: 0,
        }
    }

    /// Ports taken.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes this very port, also outside of the range (a static forward); `false` if it is taken.
    pub(super) fn take(&mut self, port: u16) -> bool {
        let (word, bit) = place(port);
        let free = self.taken[word] & bit == 0;
        if free {
            self.taken[word] |= bit;
            self.count += 1;
        }
        free
    }

    /// Gives a port back.
    pub(super) fn release(&mut self, port: u16) {
        let (word, bit) = place(port);
        if self.taken[word] & bit != 0 {
            self.taken[word] &= !bit;
            self.count -= 1;
        }
    }

    /// Takes a port of the range: the wished one, else the first free one from a random place on
    /// (RFC 6056 section 3.3.1). `None`: all are taken, or all of the wished parity.
    pub(super) fn allocate(&mut self, wish: Wish, random: u64) -> Option<u16> {
        if wish.preserve && self.ports.contains(wish.port) && self.take(wish.port) {
            return Some(wish.port);
        }
        if self.ports.well_known && WELL_KNOWN.contains(&wish.port) {
            let port = self.allocate_of(WELL_KNOWN, wish, random);
            if port.is_some() {
                return port;
            }
        }
        self.allocate_of(self.ports.range.clone(), wish, random)
    }

    fn allocate_of(&mut self, range: RangeInclusive<u16>, wish: Wish, random: u64) -> Option<u16> {
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        let start = first + (random % u64::from(last - first + 1)) as u32;
        let allowed = match (wish.parity, wish.port % 2) {
            (false, _) => u64::MAX,
            (true, 0) => EVEN,
            (true, _) => !EVEN,
        };
        let port = self
            .first_free(start, last, allowed)
            .or_else(|| self.first_free(first, start, allowed))?;
        self.take(port).then_some(port)
    }

    /// The first free port in `from..=to` whose bit is allowed.
    fn first_free(&self, from: u32, to: u32, allowed: u64) -> Option<u16> {
        let (first_word, last_word) = (from as usize / 64, to as usize / 64);
        for word in first_word..=last_word {
            let mut free = !self.taken[word] & allowed;
            if word == first_word {
                free &= u64::MAX << (from % 64);
            }
            if word == last_word {
                free &= u64::MAX >> (63 - to % 64);
            }
            if free != 0 {
                return Some((word * 64) as u16 + free.trailing_zeros() as u16);
            }
        }
        None
    }
}

fn place(port: u16) -> (usize, u64) {
    (usize::from(port / 64), 1 << (port % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn space(range: RangeInclusive<u16>) -> PortSpace {
        PortSpace::new(Ports {
            range,
            well_known: false,
        })
    }

    fn any(port: u16) -> Wish {
        Wish {
            port,
            preserve: false,
            parity: false,
        }
    }

    proptest! {
        #[test]
        fn every_port_of_the_range_is_given_out_once(
            first in 1u16..65_535, span in 0u16..300, seed: u64,
        ) {
            let last = first.saturating_add(span);
            let mut space = self::space(first..=last);
            let mut given = HashSet::new();
            for i in 0..=u64::from(last - first) {
                let port = space.allocate(any(0), seed.wrapping_mul(i)).expect("one is free");
                prop_assert!((first..=last).contains(&port));
                prop_assert!(given.insert(port));
            }
            prop_assert_eq!(space.allocate(any(0), seed), None);
            space.release(first);
            prop_assert_eq!(space.allocate(any(0), seed), Some(first));
        }

        #[test]
        fn parity_is_kept_or_refused(seed: u64, port in 1024u16..2000) {
            let mut space = self::space(1024..=1053);
            let wish = Wish { port, preserve: false, parity: true };
            for i in 0..15 {
                let given = space.allocate(wish, seed.wrapping_mul(i)).expect("one is free");
                prop_assert_eq!(given % 2, port % 2);
            }
            prop_assert_eq!(space.allocate(wish, seed), None);
        }
    }

    #[test]
    fn a_free_port_is_preserved_and_a_taken_one_is_not() {
        let mut space = self::space(1024..=65_535);
        let wish = Wish {
            preserve: true,
            ..any(5000)
        };
        assert_eq!(space.allocate(wish, 7), Some(5000));
        assert_eq!(space.allocate(wish, 7), Some(1031));
        let below_range = Wish { port: 80, ..wish };
        assert_ne!(space.allocate(below_range, 7), Some(80));
        assert_eq!(space.count(), 3);
    }

    /// Catches: a well-known port becomes another kind of port while there are some.
    #[test]
    fn a_well_known_port_becomes_one_as_long_as_there_are_some() {
        let mut space = PortSpace::new(Ports {
            range: 1024..=65_535,
            well_known: true,
        });
        let given: HashSet<u16> = (0..1023)
            .map(|seed| space.allocate(any(500), seed).expect("one is free"))
            .collect();
        assert_eq!(given, (1..=1023).collect());
        assert!(space.allocate(any(500), 1).is_some_and(|port| port >= 1024));
        assert!(
            space
                .allocate(any(5000), 1)
                .is_some_and(|port| port >= 1024)
        );
    }
}
