//! Remembers which rule matched the last packet that looked the same, for lists so long that a
//! look-up costs more than a cache line.
//!
//! The key holds everything that rules can ask about an IPv4 packet, so an answer is exact and
//! needs no expiry; a new rule list gets a new cache. Traffic of more flows than fit is not slower
//! by more than the look at one cache line per packet.

use super::packet::{Addresses, Packet, Transport};
use super::space;
use alloc::vec;
use alloc::vec::Vec;
use nfluid_wire::HashSeed;

/// Fewest sets of two entries, a cache line each: 128 KiB in all.
const SETS_MIN: usize = 2048;
/// Most sets: 1 MiB, for lists whose tables are larger than that anyway.
const SETS_MAX: usize = 16_384;
/// Stands for "no rule matches".
const NO_RULE: u32 = u32::MAX;

/// All that rules can ask about an IPv4 packet, in 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    addresses: u64,
    rest: u64,
}

impl Key {
    /// The key of a packet; `None` for IPv6 and for what needs more bits.
    #[inline]
    pub fn of(packet: &Packet) -> Option<Key> {
        let Addresses::V4 { src, dst } = packet.addresses else {
            return None;
        };
        // Protocol and fragment determine whether there are ports, flags or an ICMP type.
        let (src_port, service, flags) = match packet.transport {
            Transport::Tcp { src, dst, flags } => (src, dst, flags),
            Transport::Udp { src, dst } => (src, dst, 0),
            Transport::Icmp { kind, code, .. } => (0, u16::from_be_bytes([kind, code]), 0),
            Transport::Opaque => (0, 0, 0),
        };
        // 12 bits, of which the highest, the IP version, is 0.
        let kind = u64::from(space::kind(packet));
        let vlan = packet
            .vlan
            .map_or(0, |vlan| u64::from(vlan & 0xfff) | 0x1000);
        Some(Key {
            addresses: u64::from(src) << 32 | u64::from(dst),
            rest: u64::from(src_port) << 48
                | u64::from(service) << 32
                | vlan << 19
                | u64::from(flags) << 11
                | kind,
        })
    }

    #[inline]
    fn hash(self, seed: HashSeed) -> u64 {
        seed.hash_u64(self.addresses ^ self.rest.rotate_left(32)) ^ self.rest
    }
}

/// A set; the entry used last comes first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set {
    keys: [Key; 2],
    /// 0: the entry is empty.
    rules: [u32; 2],
}

/// The cache.
#[derive(Debug)]
pub struct FlowCache {
    sets: Vec<Set>,
    seed: HashSeed,
}

impl FlowCache {
    /// An empty cache for a list of so many rules.
    pub fn new(seed: u64, rules: usize) -> Self {
        let empty = Set {
            keys: [Key::default(); 2],
            rules: [0; 2],
        };
        let sets = rules.clamp(SETS_MIN, SETS_MAX).next_power_of_two();
        FlowCache {
            sets: vec![empty; sets],
            seed: HashSeed::new(seed),
        }
    }

    #[inline]
    fn set_of(&mut self, key: Key) -> &mut Set {
        let mask = self.sets.len() - 1;
        &mut self.sets[key.hash(self.seed) as usize & mask]
    }

    /// Returns the remembered result for `key`: the first rule that matches, or that none does.
    #[inline]
    pub fn get(&mut self, key: Key) -> Option<Option<usize>> {
        let set = self.set_of(key);
        if set.rules[0] != 0 && set.keys[0] == key {
            return Some(rule(set.rules[0]));
        }
        if set.rules[1] != 0 && set.keys[1] == key {
            set.keys.swap(0, 1);
            set.rules.swap(0, 1);
            return Some(rule(set.rules[0]));
        }
        None
    }

    /// Stores an answer in the place of the least recently used one.
    #[inline]
    pub fn put(&mut self, key: Key, found: Option<usize>) {
        let set = self.set_of(key);
        set.keys = [key, set.keys[0]];
        set.rules = [
            found.map_or(NO_RULE, |index| index as u32 + 1),
            set.rules[0],
        ];
    }
}

#[inline]
fn rule(stored: u32) -> Option<usize> {
    (stored != NO_RULE).then(|| stored as usize - 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::arbitrary;
    use super::*;
    use nfluid_wire::flow::Fragment;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Returns a packet without the fields that no rule uses.
    fn asked_about(packet: &Packet) -> Packet {
        let mut packet = *packet;
        if let Transport::Icmp { id, .. } = &mut packet.transport {
            *id = 0;
        }
        packet
    }

    proptest! {
        #[test]
        fn equal_keys_are_of_equal_packets(packets in proptest::collection::vec(arbitrary::packet(), 2..80)) {
            for (i, a) in packets.iter().enumerate() {
                for b in &packets[i..] {
                    if let (Some(x), Some(y)) = (Key::of(a), Key::of(b)) {
                        prop_assert_eq!(x == y, asked_about(a) == asked_about(b), "{:?} {:?}", a, b);
                    }
                }
            }
        }

        #[test]
        fn every_part_of_a_packet_is_in_the_key(a in arbitrary::packet(), change in 0..6, by in 1..=u16::MAX) {
            let mut b = a;
            match change {
                0 => b.in_port ^= 1,
                1 => b.vlan = Some(b.vlan.unwrap_or(0) ^ (1 + by % 0xfff)),
                2 => b.vlan = b.vlan.map_or(Some(0), |_| None),
                3 => b.fragment = if a.fragment == Fragment::None { Fragment::First } else { Fragment::None },
                4 => if let Addresses::V4 { src, dst } = a.addresses {
                    b.addresses = Addresses::V4 { src: dst, dst: src ^ u32::from(by) };
                },
                _ => match &mut b.transport {
                    Transport::Tcp { flags, .. } => *flags ^= (by as u8) | 1,
                    Transport::Udp { dst, .. } => *dst ^= by,
                    Transport::Icmp { code, .. } => *code ^= (by as u8) | 1,
                    Transport::Opaque => b.protocol ^= by as u8 | 1,
                },
            }
            if let (Some(x), Some(y)) = (Key::of(&a), Key::of(&b)) {
                prop_assert_eq!(x == y, a == b);
            }
        }

        #[test]
        fn it_answers_what_it_was_told_last_or_nothing(
            steps in proptest::collection::vec((0..40_u64, proptest::option::of(0..99_usize), any::<bool>()), 0..400),
        ) {
            let mut cache = FlowCache::new(3, 0);
            let mut model = HashMap::new();
            for (key, found, put) in steps {
                let key = Key { addresses: key, rest: 0 };
                if put {
                    cache.put(key, found);
                    model.insert(key.addresses, found);
                } else if let Some(answer) = cache.get(key) {
                    prop_assert_eq!(Some(&answer), model.get(&key.addresses));
                }
            }
        }
    }

    #[test]
    fn two_flows_of_one_set_stay_and_a_third_replaces_the_older() {
        let mut cache = FlowCache::new(0, 0);
        let mut same_set: HashMap<usize, Vec<Key>> = HashMap::new();
        let keys = (0..).map(|addresses| Key { addresses, rest: 5 });
        let [a, b, c] = keys
            .map(|key| {
                let set = same_set
                    .entry(key.hash(cache.seed) as usize % SETS_MIN)
                    .or_default();
                set.push(key);
                set.clone()
            })
            .find_map(|set| <[Key; 3]>::try_from(set).ok())
            .expect("a set gets three keys sooner or later");
        cache.put(a, Some(1));
        cache.put(b, None);
        assert_eq!((cache.get(a), cache.get(b)), (Some(Some(1)), Some(None)));
        assert_eq!(cache.get(a), Some(Some(1)));
        cache.put(c, Some(0));
        assert_eq!((cache.get(a), cache.get(b)), (Some(Some(1)), None));
        assert_eq!(cache.get(c), Some(Some(0)));
    }
}
