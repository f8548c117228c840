//! Settings of a guard, and their form in the fast path.

use std::net::SocketAddr;

/// Most packets in a second that a limit allows: beyond that the time between two is too few whole nanoseconds.
pub const PACKETS_MAX: u32 = 10_000_000;
/// Most protected ends (`EVNF_ENDS_MAX`).
pub const ENDS_MAX: usize = 1024;
/// Buckets that a line of a table has (`EVNF_BUCKET_WAYS`).
const BUCKET_WAYS: u32 = 4;
/// Bytes of the headers of TCP over IPv4 in a packet of MTU size.
const HEADERS: u16 = 40;
const SECOND_NS: u64 = 1_000_000_000;

/// Bytes of the program's constants.
pub(super) const CONSTANTS_BYTES: usize = 120;

/// A rate limit of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In a second, 1 to [`PACKETS_MAX`]; the time between two is rounded to whole nanoseconds.
    pub packets: u32,
    /// At once, after a pause; 1 at least.
    pub burst: u32,
}

/// Sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Sources, and as many destinations, whose buckets are not full at one time: rounded up to a power of two.
    pub sources: u32,
    /// Connections to protected ends, and as many sources that are known.
    pub connections: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            sources: 65_536,
            connections: 65_536,
        }
    }
}

/// Limits of the packets that a guard lets pass. Without any limit, and without ends, a guard passes every packet
/// that is long enough for its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Limit of each source.
    pub source: Option<Limit>,
    /// Limit of each destination, without the packets of connections to protected destinations.
    pub destination: Option<Limit>,
    /// Limit of all sources together that have not acknowledged a cookie, to unprotected destinations.
    pub unknown: Option<Limit>,
    /// Limit of all packets together that the guard cannot parse: fragments, VLAN tags, IP options, extension headers.
    pub unreadable: Option<Limit>,
    /// Length of the prefix that distinguishes sources: of IPv4 (32 at most) and of IPv6 (128 at most).
    pub prefixes: (u8, u8),
    /// Protected addresses of this host, at most [`ENDS_MAX`].
    pub ends: Vec<SocketAddr>,
    /// SYNs to each of them that the kernel gets, and as many again of known sources; those beyond are answered by
    /// cookies.
    pub syns: Limit,
    /// Longest packets that the protected ends take.
    pub mtu: u16,
    /// Sizes of the tables.
    pub sizes: Sizes,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            source: None,
            destination: None,
            unknown: None,
            unreadable: None,
            prefixes: (32, 64),
            ends: Vec::new(),
            syns: Limit {
                packets: 100,
                burst: 100,
            },
            mtu: 1500,
            sizes: Sizes::default(),
        }
    }
}

impl Limit {
    /// Time between two tokens, and that of all that a bucket holds but one, in nanoseconds (`struct evnf_limit`).
    fn times(self) -> [u64; 2] {
        let packets = u64::from(self.packets.clamp(1, PACKETS_MAX));
        let gap = (SECOND_NS + packets / 2) / packets;
        [gap, u64::from(self.burst.max(1) - 1) * gap]
    }
}

impl Sizes {
    /// Lines of a table of buckets: a power of two.
    pub(super) fn sets(self) -> u32 {
        let sets = self.sources.div_ceil(BUCKET_WAYS).max(1);
        sets.checked_next_power_of_two().unwrap_or(1 << 31)
    }
}

impl Settings {
    /// Returns the constants that the program is loaded with. `seed` is secret.
    pub(super) fn constants(&self, seed: u64) -> [u8; CONSTANTS_BYTES] {
        let limits = [
            self.source,
            self.destination,
            self.unknown,
            self.unreadable,
            Some(self.syns),
        ];
        let mut words = vec![seed];
        words.extend(
            limits
                .into_iter()
                .flat_map(|limit| limit.map_or([0, 0], Limit::times)),
        );
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let (bits4, bits6) = (self.prefixes.0.min(32), self.prefixes.1.min(128));
        let mask6 = u128::MAX.checked_shl(128 - u32::from(bits6)).unwrap_or(0);
        let mask4 = u32::MAX.checked_shl(32 - u32::from(bits4)).unwrap_or(0);
        bytes.extend(mask6.to_be_bytes());
        bytes.extend(mask4.to_be_bytes());
        bytes.extend(u32::from(self.mtu.saturating_sub(HEADERS)).to_ne_bytes());
        bytes.extend(self.sizes.sets().to_ne_bytes());
        bytes.extend((self.ends.len() as u32).to_ne_bytes());
        let mut constants = [0; CONSTANTS_BYTES];
        constants.copy_from_slice(&bytes);
        constants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 15.31
    #[test]
    fn a_limit_is_a_time_between_tokens_and_one_of_a_full_bucket() {
        let limit = |packets, burst| Limit { packets, burst }.times();
        assert_eq!(limit(1000, 1), [1_000_000, 0]);
        assert_eq!(limit(3, 5), [333_333_333, 4 * 333_333_333]);
        assert_eq!(limit(PACKETS_MAX, u32::MAX)[0], 100);
        assert_eq!(limit(0, 0), [SECOND_NS, 0], "never none at all");
    }

    #[test]
    fn constants_lie_where_the_program_reads_them() {
        let settings = Settings {
            source: Some(Limit {
                packets: 1_000_000,
                burst: 2,
            }),
            prefixes: (24, 0),
            sizes: Sizes {
                sources: 9,
                connections: 1,
            },
            ends: vec!["192.0.2.1:80".parse().expect("one")],
            ..Settings::default()
        };
        let constants = settings.constants(7);
        let word = |at: usize| constants.get(at..at + 8).expect("it is there").to_vec();
        assert_eq!(word(0), 7u64.to_ne_bytes());
        assert_eq!(word(8), 1000u64.to_ne_bytes());
        assert_eq!(word(16), 1000u64.to_ne_bytes());
        assert_eq!(word(24), [0; 8], "no limit");
        assert_eq!(word(88), [0; 8], "all of IPv6 is one source");
        assert_eq!(&constants[104..108], [255, 255, 255, 0]);
        assert_eq!(&constants[108..112], 1460u32.to_ne_bytes());
        assert_eq!(&constants[112..116], 4u32.to_ne_bytes());
        assert_eq!(&constants[116..], 1u32.to_ne_bytes());
    }
}
