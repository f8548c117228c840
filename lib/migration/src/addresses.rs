//! The addresses behind an instance that arrives, which the network has to learn.

use crate::site::Instances;
use nfluid_formats::frames::frames_in;
use nfluid_formats::message::{ADDRESSES_MAX, Address};
use std::collections::BTreeSet;

/// The addresses that were announced.
#[derive(Default)]
pub struct Addresses {
    announced: BTreeSet<Address>,
}

impl Addresses {
    /// Returns the addresses of an instance's ports and `recent` ones, and those among them that can be announced.
    pub fn of(
        instances: &impl Instances,
        name: &str,
        recent: Vec<Address>,
    ) -> (Self, Vec<Address>) {
        let mut addresses = Addresses::default();
        let mut first = addresses.add(instances.addresses_of(name));
        first.extend(addresses.add(recent));
        (addresses, first)
    }

    /// Adds the destinations of frames. Returns those that are new.
    pub fn add_of_frames(&mut self, bytes: &[u8]) -> Vec<Address> {
        let frames = frames_in(bytes).unwrap_or_default();
        let found = frames.iter();
        self.add(found.filter_map(|(port, frame)| Some((*port, *frame.first_chunk::<6>()?))))
    }

    /// Adds addresses, up to [`ADDRESSES_MAX`]. Returns those that are new. A group address has no place in the network, and
    /// is left out.
    pub fn add(&mut self, found: impl IntoIterator<Item = Address>) -> Vec<Address> {
        let mut new = Vec::new();
        for address in found.into_iter().filter(|(_, mac)| mac[0] & 1 == 0) {
            if self.announced.len() < ADDRESSES_MAX && self.announced.insert(address) {
                new.push(address);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES_MAX, Addresses};

    #[test]
    fn an_address_is_new_once_and_a_group_never() {
        let mut addresses = Addresses::default();
        let (host, group) = ([2, 0, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]);
        assert_eq!(addresses.add([(0, host), (0, group)]), [(0, host)]);
        assert_eq!(addresses.add([(0, host), (1, host)]), [(1, host)]);
        let many = (0..2 * ADDRESSES_MAX).map(|at| (0, [6, 0, 0, 0, (at >> 8) as u8, at as u8]));
        assert_eq!(addresses.add(many).len(), ADDRESSES_MAX - 2);
    }
}
