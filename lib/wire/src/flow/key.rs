//! 5-tuples and their hashes.
//!
//! The hashes are folded multiplications (as in wyhash): two or three 64-bit multiplications per key. The hashes are
//! keyed, so that a sender that does not know the seed cannot aim at one bucket, but they are no cryptographic
//! hashes: keep a bound on every table that uses them.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::IpProtocol;

/// Key of the flow hashes, prepared once from 64 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed {
    a: u64,
    b: u64,
}

impl HashSeed {
    /// Spreads `seed` over two words (SplitMix64). Use a random seed wherever untrusted hosts choose the addresses
    /// and ports.
    #[inline]
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let next = seed.wrapping_add(GOLDEN);
        Self {
            a: split_mix(next),
            b: split_mix(next.wrapping_add(GOLDEN)),
        }
    }

    /// Hashes one 64-bit word, for tables keyed by something smaller than a flow.
    #[inline]
    #[must_use]
    pub const fn hash_u64(self, word: u64) -> u64 {
        self.hash_pair(word, 0)
    }

    #[inline]
    const fn hash_pair(self, x: u64, y: u64) -> u64 {
        let mixed = fold_mul(x ^ self.a, y ^ self.b);
        fold_mul(mixed ^ self.b, self.a)
    }
}

#[inline]
const fn split_mix(state: u64) -> u64 {
    let x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[inline]
const fn fold_mul(x: u64, y: u64) -> u64 {
    let product = (x as u128) * (y as u128);
    product as u64 ^ (product >> 64) as u64
}

/// The smaller and the larger of two words.
#[inline]
const fn sorted(x: u64, y: u64) -> (u64, u64) {
    if x <= y { (x, y) } else { (y, x) }
}

/// IPv4 5-tuple, addresses and ports in host order. For an ICMP query both ports are its
/// identifier; where there are no ports they are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKeyV4 {
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Protocol.
    pub protocol: IpProtocol,
}

impl FlowKeyV4 {
    /// Returns the flow seen from the other side.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            protocol: self.protocol,
        }
    }

    /// Source address.
    #[inline]
    #[must_use]
    pub const fn src_addr(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.src)
    }

    /// Destination address.
    #[inline]
    #[must_use]
    pub const fn dst_addr(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.dst)
    }

    /// Returns a hash that differs for the two directions.
    #[inline]
    #[must_use]
    pub const fn flow_hash(self, seed: HashSeed) -> u64 {
        let addresses = (self.src as u64) << 32 | self.dst as u64;
        let ports = (self.src_port as u64) << 16 | self.dst_port as u64;
        seed.hash_pair(addresses, (self.protocol.0 as u64) << 32 | ports)
    }

    /// Hash equal for both directions.
    #[inline]
    #[must_use]
    pub const fn symmetric_hash(self, seed: HashSeed) -> u64 {
        let src = (self.src as u64) << 16 | self.src_port as u64;
        let dst = (self.dst as u64) << 16 | self.dst_port as u64;
        let (low, high) = sorted(src, dst);
        seed.hash_pair(low, (self.protocol.0 as u64) << 48 | high)
    }
}

/// IPv6 5-tuple, addresses and ports in host order; ports as in [`FlowKeyV4`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKeyV6 {
    /// Source address.
    pub src: u128,
    /// Destination address.
    pub dst: u128,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Upper-layer protocol.
    pub protocol: IpProtocol,
}

impl FlowKeyV6 {
    /// Returns the flow seen from the other side.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            protocol: self.protocol,
        }
    }

    /// Source address.
    #[inline]
    #[must_use]
    pub const fn src_addr(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.src)
    }

    /// Destination address.
    #[inline]
    #[must_use]
    pub const fn dst_addr(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.dst)
    }

    /// Returns a hash that differs for the two directions.
    #[inline]
    #[must_use]
    pub const fn flow_hash(self, seed: HashSeed) -> u64 {
        let (src, dst) = self.endpoint_hashes(seed);
        seed.hash_pair(src, dst ^ self.protocol.0 as u64)
    }

    /// Hash equal for both directions.
    #[inline]
    #[must_use]
    pub const fn symmetric_hash(self, seed: HashSeed) -> u64 {
        let (src, dst) = self.endpoint_hashes(seed);
        let (low, high) = sorted(src, dst);
        seed.hash_pair(low, high ^ self.protocol.0 as u64)
    }

    #[inline]
    const fn endpoint_hashes(self, seed: HashSeed) -> (u64, u64) {
        (
            endpoint_hash(self.src, self.src_port, seed),
            endpoint_hash(self.dst, self.dst_port, seed),
        )
    }
}

#[inline]
const fn endpoint_hash(address: u128, port: u16, seed: HashSeed) -> u64 {
    let high = (address >> 64) as u64;
    let low = address as u64;
    fold_mul(high ^ seed.a, low ^ seed.b) ^ (port as u64).wrapping_mul(seed.a | 1)
}

/// 5-tuple of either IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowKey {
    /// IPv4.
    V4(FlowKeyV4),
    /// IPv6.
    V6(FlowKeyV6),
}

impl FlowKey {
    /// Returns the flow seen from the other side.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4(key) => Self::V4(key.reversed()),
            Self::V6(key) => Self::V6(key.reversed()),
        }
    }

    /// The direction that compares smaller, and whether it is the other one: one table entry for
    /// both directions.
    #[inline]
    #[must_use]
    pub fn canonical(self) -> (Self, bool) {
        let reversed = self.reversed();
        if reversed < self {
            (reversed, true)
        } else {
            (self, false)
        }
    }

    /// Returns a hash that differs for the two directions.
    #[inline]
    #[must_use]
    pub const fn flow_hash(self, seed: HashSeed) -> u64 {
        match self {
            Self::V4(key) => key.flow_hash(seed),
            Self::V6(key) => key.flow_hash(seed),
        }
    }

    /// Hash equal for both directions.
    #[inline]
    #[must_use]
    pub const fn symmetric_hash(self, seed: HashSeed) -> u64 {
        match self {
            Self::V4(key) => key.symmetric_hash(seed),
            Self::V6(key) => key.symmetric_hash(seed),
        }
    }

    /// Source port.
    #[inline]
    #[must_use]
    pub const fn src_port(self) -> u16 {
        match self {
            Self::V4(key) => key.src_port,
            Self::V6(key) => key.src_port,
        }
    }

    /// Destination port.
    #[inline]
    #[must_use]
    pub const fn dst_port(self) -> u16 {
        match self {
            Self::V4(key) => key.dst_port,
            Self::V6(key) => key.dst_port,
        }
    }

    /// Protocol.
    #[inline]
    #[must_use]
    pub const fn protocol(self) -> IpProtocol {
        match self {
            Self::V4(key) => key.protocol,
            Self::V6(key) => key.protocol,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEED: HashSeed = HashSeed::new(0x5eed);

    fn key(src: u32, src_port: u16) -> FlowKeyV4 {
        FlowKeyV4 {
            src,
            dst: 0x0a00_0001,
            src_port,
            dst_port: 80,
            protocol: IpProtocol::TCP,
        }
    }

    /// The largest of 1,024 buckets after 65,536 keys: 64 on average. For a good hash the chance
    /// of 128 is about 1e-9; the counts here are the same in every run.
    fn fullest_bucket(hashes: impl Iterator<Item = u64>, shift: u32) -> u32 {
        let mut buckets = [0; 1024];
        for hash in hashes.take(65_536) {
            buckets[(hash >> shift) as usize % 1024] += 1;
        }
        buckets.into_iter().max().unwrap_or_default()
    }

    #[test]
    fn neighbouring_flows_spread_in_low_and_high_bits() {
        for shift in [0, 32, 54] {
            for hash in [FlowKeyV4::flow_hash, FlowKeyV4::symmetric_hash] {
                let hosts = (0..65_536).map(|i| hash(key(i, 1000), SEED));
                assert!(fullest_bucket(hosts, shift) < 128, "hosts, bit {shift}");
                let ports = (0..=u16::MAX).map(|port| hash(key(0x0a00_0002, port), SEED));
                assert!(fullest_bucket(ports, shift) < 128, "ports, bit {shift}");
            }
            for hash in [FlowKeyV6::flow_hash, FlowKeyV6::symmetric_hash] {
                let key = |i: u128| FlowKeyV6 {
                    src: 0x2001_0db8 << 96 | i,
                    dst: 0x2001_0db8 << 96 | 1,
                    src_port: 1000,
                    dst_port: 80,
                    protocol: IpProtocol::UDP,
                };
                let hosts = (0..65_536).map(|i| hash(key(i), SEED));
                assert!(
                    fullest_bucket(hosts, shift) < 128,
                    "IPv6 hosts, bit {shift}"
                );
                let nets = (0..65_536).map(|i| hash(key(i << 64), SEED));
                assert!(
                    fullest_bucket(nets, shift) < 128,
                    "IPv6 networks, bit {shift}"
                );
            }
        }
    }

    #[test]
    fn keys_that_share_a_bucket_under_one_seed_part_under_another() {
        let bucket = |i: u32, seed| key(i, 1000).flow_hash(seed) % 1024;
        let aimed = (0..1_000_000).filter(|&i| bucket(i, SEED) == 0).take(512);
        let other = HashSeed::new(0x5eee);
        let hits = aimed.filter(|&i| bucket(i, other) == 0).count();
        assert!(hits < 16, "{hits} of 512 aimed keys still share the bucket");
    }

    #[test]
    fn a_part_of_zero_does_not_hide_the_other_part() {
        let zero = FlowKeyV4 {
            src: 0,
            dst: 0,
            src_port: 0,
            dst_port: 0,
            protocol: IpProtocol(0),
        };
        let ports = (0..=u16::MAX).map(|dst_port| FlowKeyV4 { dst_port, ..zero });
        assert!(fullest_bucket(ports.map(|key| key.flow_hash(SEED)), 0) < 128);
        let hosts = (0..65_536).map(|dst| FlowKeyV4 { dst, ..zero });
        assert!(fullest_bucket(hosts.map(|key| key.flow_hash(SEED)), 0) < 128);
    }

    proptest! {
        #[test]
        fn directions(
            ends in any::<((u128, u16), (u128, u16))>(), protocol in any::<u8>(), seed in any::<u64>(),
        ) {
            let ((src, src_port), (dst, dst_port)) = ends;
            let protocol = IpProtocol(protocol);
            let seed = HashSeed::new(seed);
            let v6 = FlowKey::V6(FlowKeyV6 { src, dst, src_port, dst_port, protocol });
            let (src, dst) = (src as u32, dst as u32);
            let v4 = FlowKey::V4(FlowKeyV4 { src, dst, src_port, dst_port, protocol });
            for key in [v4, v6] {
                let back = key.reversed();
                prop_assert_eq!(back.reversed(), key);
                prop_assert_eq!(key.symmetric_hash(seed), back.symmetric_hash(seed));
                prop_assert_eq!(key.canonical().0, back.canonical().0);
                if key != back {
                    prop_assert_ne!(key.flow_hash(seed), back.flow_hash(seed));
                    prop_assert_ne!(key.canonical().1, back.canonical().1);
                }
            }
        }
    }
}
