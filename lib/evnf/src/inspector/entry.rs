//! A flow of the table, as the program has it.

use crate::load::address_bytes;
use std::net::{IpAddr, SocketAddr};

/// Bytes of `union evnf_key`.
const KEY_BYTES: usize = 40;
/// Bytes of `struct dpi_flow`.
const ENTRY_BYTES: usize = 16;
const HAS_PORTS: u8 = 1;
const FLAG_COPY: u8 = 1;
const FLAG_MARK: u8 = 2;

/// Treatment of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// The packets go to the kernel.
    Pass = 0,
    /// The packets are sent straight out where the kernel would send them, past its rules and its connection
    /// tracking, as by nftables' flowtables; a packet that cannot be sent so (no route, no neighbour, too long) goes
    /// to the kernel.
    Forward = 1,
    /// The packets are dropped.
    Drop = 2,
}

/// A flow that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which counters are its own, below [`Sizes::flows`](super::Sizes::flows).
    pub slot: u32,
    /// The treatment of the flow's packets.
    pub action: Action,
    /// The DSCP that they get, below 64.
    pub dscp: Option<u8>,
    /// True: also sends copies to the classifier, marked as already counted.
    pub copy: bool,
    /// A note about the flow, for the process that enters the flow, or its successor.
    pub note: u64,
}

impl Entry {
    /// Returns the program's representation.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut value = [0; ENTRY_BYTES];
        value[..4].copy_from_slice(&self.slot.to_ne_bytes());
        value[4] = self.action as u8;
        value[5] = if self.copy { FLAG_COPY } else { 0 };
        if let Some(dscp) = self.dscp {
            value[5] |= FLAG_MARK;
            value[6] = dscp & 0x3f;
        }
        value[8..].copy_from_slice(&self.note.to_ne_bytes());
        value
    }

    /// Reads the bytes that [`Entry::to_bytes`] has written. `None`: the bytes have another writer.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let value: &[u8; ENTRY_BYTES] = value.try_into().ok()?;
        let action = match value[4] {
            0 => Action::Pass,
            1 => Action::Forward,
            2 => Action::Drop,
            _ => return None,
        };
        Some(Entry {
            slot: u32::from_ne_bytes(*value.first_chunk()?),
            action,
            dscp: (value[5] & FLAG_MARK != 0).then_some(value[6]),
            copy: value[5] & FLAG_COPY != 0,
            note: u64::from_ne_bytes(*value.last_chunk()?),
        })
    }
}

/// Both ways of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey([u8; KEY_BYTES]);

impl FlowKey {
    /// Between two ends of the same IP version, in any order. Only TCP and UDP have ports.
    pub fn new(one: SocketAddr, other: SocketAddr, protocol: u8) -> Self {
        let ports = matches!(protocol, 6 | 17);
        let end = |at: SocketAddr| {
            let (address, family) = address_bytes(at.ip());
            (address, if ports { at.port() } else { 0 }, family)
        };
        let (mut low, mut high) = (end(one), end(other));
        if (words(&low.0), low.1) > (words(&high.0), high.1) {
            std::mem::swap(&mut low, &mut high);
        }
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&low.0);
        key[16..32].copy_from_slice(&high.0);
        key[32..34].copy_from_slice(&low.1.to_ne_bytes());
        key[34..36].copy_from_slice(&high.1.to_ne_bytes());
        key[36] = low.2;
        key[37] = protocol;
        key[38] = if ports { HAS_PORTS } else { 0 };
        FlowKey(key)
    }

    /// Returns the program's representation.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Parses a key of the table; `None` if the key is invalid.
    pub(super) fn read(key: &[u8]) -> Option<Self> {
        let key = FlowKey(key.try_into().ok()?);
        key.ends().map(|_| key)
    }

    /// Returns the ends of the flow and its IP protocol. `None`: the key has no IP version.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr, u8)> {
        let end = |at: usize, port: usize| {
            let address: [u8; 16] = *self.0.get(at..)?.first_chunk()?;
            let ip = match self.0[36] {
                4 => IpAddr::from(*address.first_chunk::<4>()?),
                6 => IpAddr::from(address),
                _ => return None,
            };
            let port = u16::from_ne_bytes(*self.0.get(port..)?.first_chunk()?);
            Some(SocketAddr::new(ip, port))
        };
        Some((end(0, 32)?, end(16, 34)?, self.0[37]))
    }
}

/// An address as the fast path compares it: word by word, as they are in memory.
fn words(address: &[u8; 16]) -> [u32; 4] {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| address[at * 4 + byte]));
    [word(0), word(1), word(2), word(3)]
}

#[cfg(test)]
mod tests {
    use super::{Action, Entry, FlowKey};

    #[test]
    fn what_is_entered_is_what_a_successor_reads() {
        let entry = Entry {
            slot: 7,
            action: Action::Drop,
            dscp: Some(46),
            copy: true,
            note: 0x1234_5678_9abc_def0,
        };
        assert_eq!(Entry::read(&entry.to_bytes()), Some(entry));
        assert_eq!(Entry::read(&[3; 16]), None, "there is no such action");
        assert_eq!(Entry::read(&[0; 8]), None);
        for ends in [
            ("10.0.0.1:80", "10.0.0.2:9"),
            ("[2001:db8::1]:5", "[2001:db8::1]:4"),
        ] {
            let (one, other) = (ends.0.parse().expect("one"), ends.1.parse().expect("other"));
            let key = FlowKey::new(one, other, 17);
            let read = FlowKey::read(key.bytes()).expect("it is one");
            let (low, high, protocol) = read.ends().expect("of an IP version");
            assert_eq!(FlowKey::new(high, low, protocol), key);
            assert!([low, high].contains(&one) && [low, high].contains(&other));
        }
        assert_eq!(FlowKey::read(&[0; 40]), None);
    }
}
