//! Keys for hash tables and random ports where the host gives none.

use crate::function::PortInfo;
use alloc::boxed::Box;

/// What a stranger cannot know without being told: the ports' addresses and, where memory is laid
/// out at random, where an allocation lies. No more than that: a host with a source of randomness
/// sets an NF's `seed`.
pub(crate) fn from_surroundings(ports: &[PortInfo]) -> u64 {
    let anywhere = Box::new(0u8);
    let address = core::ptr::from_ref::<u8>(&anywhere).addr() as u64;
    ports.iter().fold(address.rotate_left(32), |seed, port| {
        seed.rotate_left(16) ^ port.mac.to_bits()
    })
}
