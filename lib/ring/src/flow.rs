//! Which flows go together: the buckets into which the switch sorts them by their IP addresses.
//!
//! A mirror of `bpf/switch/flow.h`. Both directions of a flow are in one bucket. Ports do not count, so that fragments stay with
//! their flow; an ICMP error is in the bucket of the flow that it quotes.

use core::net::IpAddr;

/// Number of buckets, `NFL_BUCKETS`.
pub const BUCKETS: usize = 256;

const WORDS: usize = BUCKETS / 64;

/// The bucket of the flows between two addresses.
pub fn bucket_of(one: IpAddr, other: IpAddr) -> u8 {
    let sum = address_sum(one).wrapping_add(address_sum(other));
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// As the switch adds up the words of an address: in its own byte order, every second shifted.
fn address_sum(address: IpAddr) -> u64 {
    let word = |bytes: &[u8]| {
        let word: [u8; 4] = bytes.try_into().unwrap_or_default();
        u64::from(u32::from_le_bytes(word))
    };
    match address {
        IpAddr::V4(address) => word(&address.octets()),
        IpAddr::V6(address) => {
            let octets = address.octets();
            let words = octets.chunks_exact(4).map(word);
            words.zip([0, 4, 0, 4]).map(|(word, by)| word << by).sum()
        }
    }
}

/// A set of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets(pub [u64; WORDS]);

impl Buckets {
    /// All of them.
    pub const ALL: Buckets = Buckets([u64::MAX; WORDS]);

    /// Returns true if the flows between two addresses are in this set.
    pub fn have(&self, one: IpAddr, other: IpAddr) -> bool {
        self.contains(bucket_of(one, other))
    }

    /// Returns true if a bucket is in this set.
    pub fn contains(&self, bucket: u8) -> bool {
        self.0[usize::from(bucket) / 64] >> (bucket % 64) & 1 == 1
    }

    /// Puts a bucket into it.
    pub fn insert(&mut self, bucket: u8) {
        self.0[usize::from(bucket) / 64] |= 1 << (bucket % 64);
    }

    /// Returns the buckets that are also in `other`.
    #[must_use]
    pub fn within(&self, other: &Buckets) -> Buckets {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word &= other;
        }
        Buckets(words)
    }

    /// Returns the buckets that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Buckets) -> Buckets {
        self.within(&Buckets(other.0.map(|word| !word)))
    }

    /// Returns the number of buckets.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns true if the set has no bucket.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
}

/// Which member has each bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares([u8; BUCKETS]);

impl Shares {
    /// The first member has all.
    pub const ONE: Shares = Shares([0; BUCKETS]);

    /// Shares as they are: the member of each bucket.
    pub fn of(members: [u8; BUCKETS]) -> Self {
        Shares(members)
    }

    /// Returns the table for another number of members, with as few changed buckets as possible: if members are
    /// added, only the new members gain buckets; if members go, only those members lose buckets. No member has two
    /// buckets more than another member. For 0 members the table stays as it is.
    #[must_use]
    pub fn among(&self, members: u8) -> Self {
        let mut shares = *self;
        if members == 0 {
            return shares;
        }
        let is_there = |member: u8| member < members;
        for bucket in 0..BUCKETS {
            if !is_there(shares.0[bucket]) {
                shares.0[bucket] = shares.extreme(members).0;
            }
        }
        loop {
            let (poorest, richest) = shares.extreme(members);
            if shares.count(richest) <= shares.count(poorest) + 1 {
                return shares;
            }
            if let Some(given) = shares.0.iter_mut().rfind(|member| **member == richest) {
                *given = poorest;
            }
        }
    }

    /// The first member that has least, and the first that has most.
    fn extreme(&self, members: u8) -> (u8, u8) {
        let least = (0..members).min_by_key(|member| self.count(*member));
        let most = (0..members).rev().max_by_key(|member| self.count(*member));
        (least.unwrap_or(0), most.unwrap_or(0))
    }

    fn count(&self, member: u8) -> usize {
        self.0.iter().filter(|it| **it == member).count()
    }

    /// The members, by bucket.
    pub fn members(&self) -> &[u8; BUCKETS] {
        &self.0
    }

    /// Returns the buckets of a member.
    pub fn buckets_of(&self, member: u8) -> Buckets {
        let mut buckets = Buckets::default();
        for (bucket, owner) in (0..=u8::MAX).zip(&self.0) {
            if *owner == member {
                buckets.insert(bucket);
            }
        }
        buckets
    }

    /// Members up to the last that has something.
    pub fn span(&self) -> u8 {
        self.0.iter().max().map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn parts(shares: &Shares, members: u8) -> Vec<usize> {
        let parts = (0..members).map(|member| shares.buckets_of(member).len());
        parts.collect()
    }

    #[test]
    fn both_directions_of_a_flow_are_in_one_bucket_and_flows_are_spread() {
        let mut hit = Buckets::default();
        for host in 0..2000u32 {
            let client = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + host));
            let server = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
            let bucket = bucket_of(client, server);
            assert_eq!(bucket, bucket_of(server, client));
            hit.insert(bucket);
            let client = IpAddr::V6(Ipv6Addr::from(u128::from(host) << 70 | 0xfe80));
            let server = IpAddr::V6(Ipv6Addr::LOCALHOST);
            assert_eq!(bucket_of(client, server), bucket_of(server, client));
        }
        assert!(hit.len() > BUCKETS * 9 / 10, "{}", hit.len());
    }

    // promise: 7.39
    #[test]
    fn more_members_take_from_all_and_fewer_give_to_all() {
        let mut shares = Shares::ONE;
        for members in [2, 3, 4, 7, 16, 5, 3, 1] {
            let before = shares;
            shares = before.among(members);
            let parts = parts(&shares, members);
            assert_eq!(parts.iter().sum::<usize>(), BUCKETS);
            let (least, most) = (parts.iter().min(), parts.iter().max());
            assert!(most <= least.map(|least| least + 1).as_ref(), "{parts:?}");
            for (old, new) in before.members().iter().zip(shares.members()) {
                let grows = before.span() < members;
                let came = *new >= before.span();
                let went = *old >= members;
                assert!(old == new || if grows { came } else { went });
            }
            assert_eq!(shares.span(), members);
        }
        assert_eq!(shares, Shares::ONE);
        assert_eq!(shares.among(0), shares);
    }

    #[test]
    fn what_members_have_is_all_there_is() {
        let shares = Shares::ONE.among(3);
        let mut all = Buckets::default();
        for member in 0..3 {
            for bucket in 0..=u8::MAX {
                if shares.buckets_of(member).contains(bucket) {
                    assert!(!all.contains(bucket));
                    all.insert(bucket);
                }
            }
        }
        assert_eq!(all, Buckets::ALL);
        assert!(Buckets::default().is_empty() && !all.is_empty());
    }
}
