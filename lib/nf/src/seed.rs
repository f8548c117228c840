//! Keys for hash tables and random ports where the host gives none.

use crate::function::PortInfo;
use alloc::boxed::Box;

/// Returns a seed from values that an outsider does not know: the ports' addresses and, where memory is laid out at
/// random, the address of an allocation. The seed is no stronger than that: a host with a source of randomness sets
/// an NF's `seed`.
pub(crate) fn from_surroundings(ports: &[PortInfo]) -> u64 {
    let anywhere = Box::new(0u8);
    let address = core::ptr::from_ref::<u8>(&anywhere).addr() as u64;
    ports.iter().fold(address.rotate_left(32), |seed, port| {
        seed.rotate_left(16) ^ port.mac.to_bits()
    })
}
