//! The destination addresses of recent frames: their senders expect these addresses behind this instance. When the
//! instance moves to another host, that host announces the addresses to the network.
//!
//! The NF's host records a single frame of each batch. Recording costs little: the NF reads these few bytes in any case.

use nfluid_nf::Nanos;

/// Addresses that are kept for a port.
const KEPT: usize = 16;
/// How long an address counts: as long as bridges remember one (IEEE 802.1D, ageing time).
const AGEING_NS: u64 = 300_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Address {
    mac: [u8; 6],
    seen: Nanos,
}

/// The addresses of all ports.
#[derive(Debug, Default)]
pub struct Recent {
    ports: Vec<[Address; KEPT]>,
}

impl Recent {
    /// Creates the record for this number of ports.
    pub fn of(ports: usize) -> Self {
        Recent {
            ports: vec![[Address::default(); KEPT]; ports],
        }
    }

    /// Records the destination of a frame that came by a port.
    #[inline]
    pub fn note(&mut self, now: Nanos, port: usize, frame: &[u8]) {
        let (Some(kept), Some(mac)) = (self.ports.get_mut(port), frame.first_chunk::<6>()) else {
            return;
        };
        // A group address has no place.
        if mac[0] & 1 == 0 {
            let at = usize::from(mac[3] ^ mac[4] ^ mac[5]) % KEPT;
            kept[at] = Address {
                mac: *mac,
                seen: now,
            };
        }
    }

    /// Returns port and address of all entries that are still valid.
    pub fn all(&self, now: Nanos) -> Vec<(u8, [u8; 6])> {
        let ports = (0..=u8::MAX).zip(&self.ports);
        ports
            .flat_map(|(port, kept)| kept.iter().map(move |address| (port, address)))
            .filter(|(_, it)| it.seen.0 != 0 && now.since(it.seen).0 < AGEING_NS)
            .map(|(port, it)| (port, it.mac))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 5.35
    #[test]
    fn single_addresses_are_kept_for_a_while() {
        let mut recent = Recent::of(2);
        let one = [2, 0, 0, 0, 0, 1];
        recent.note(Nanos(5), 1, &one);
        recent.note(Nanos(5), 0, &[0xff; 60]);
        recent.note(Nanos(5), 7, &one);
        recent.note(Nanos(5), 0, &one[..5]);
        assert_eq!(recent.all(Nanos(6)), [(1, one)]);
        assert_eq!(recent.all(Nanos(5 + AGEING_NS)), []);
        for last in 0..=255 {
            recent.note(Nanos(9), 0, &[2, 0, 0, 0, 0, last]);
        }
        assert_eq!(recent.all(Nanos(9)).len(), KEPT + 1);
    }
}
