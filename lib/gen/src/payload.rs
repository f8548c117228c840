//! The stream header: the first 18 bytes of a stamped frame's UDP or TCP payload.
//!
//! ```text
//!  0       2           5                   10              14              18
//!  | magic |  stream   |   tx time (ns)    |   sequence    |     check     |  body ..
//!  |  16   |    24     |        40         |      32       |      32       |
//! ```
//! All fields are big-endian. 18 bytes are what a 60-byte frame (64 with FCS, the smallest of
//! Ethernet) has room for behind Ethernet, IPv4 and UDP, so that IMIX works with every check on.
//!
//! The time is `CLOCK_MONOTONIC` modulo 2^40 ns (18 minutes), which is longer than any latency. The check mixes
//! stream, time and sequence with the XXH3 hash of the body by one folded multiplication (as in wyhash; hashing these
//! few bytes properly took half of a frame's time): a change anywhere behind the transport header shows, and network
//! functions that rewrite addresses, ports or TTL do not disturb it. The magic distinguishes probes of a ping from
//! their reflections; the magic is left out of the check, so that a reflector only changes these two bytes.

use xxhash_rust::xxh3::xxh3_64;

use crate::io::FRAME_MAX;
use crate::memory::SplitMix;

/// Bytes of the stream header.
pub const HEADER_LEN: usize = 18;
/// Stream numbers are below this.
pub const STREAMS_MAX: u32 = 1 << 24;
/// Times are counted modulo this many nanoseconds.
pub const TIME_MODULUS_NS: u64 = 1 << 40;

/// Arbitrary odd numbers with as many ones as zeros.
const MIX: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The purpose of a stamped frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Load, one way.
    Data,
    /// A question of the ping side.
    Probe,
    /// A probe on its way back.
    Reply,
}

impl Kind {
    /// The magic in the first two bytes.
    pub const fn magic(self) -> u16 {
        match self {
            Kind::Data => u16::from_be_bytes(*b"nf"),
            Kind::Probe => u16::from_be_bytes(*b"nP"),
            Kind::Reply => u16::from_be_bytes(*b"nR"),
        }
    }

    fn from_magic(magic: u16) -> Option<Self> {
        [Kind::Data, Kind::Probe, Kind::Reply]
            .into_iter()
            .find(|kind| kind.magic() == magic)
    }
}

/// The stream header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// The purpose of the frame.
    pub kind: Kind,
    /// Which stream it belongs to, below [`STREAMS_MAX`].
    pub stream: u32,
    /// Sending time, in nanoseconds modulo [`TIME_MODULUS_NS`].
    pub tx_time_ns: u64,
    /// The frame's place in the stream, modulo 2^32.
    pub sequence: u32,
}

/// The 18 bytes of a stream header, in registers: to pass them through memory on their way into the
/// frame, in pieces of another size, would stall every frame by several nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    magic: u16,
    /// Stream and time.
    place: u64,
    /// Sequence and check.
    end: u64,
}

impl Stamp {
    /// Writes the header to the first [`HEADER_LEN`] bytes of `payload`, which must have as many.
    #[inline]
    pub fn write(&self, payload: &mut [u8]) {
        payload[..2].copy_from_slice(&self.magic.to_be_bytes());
        payload[2..10].copy_from_slice(&self.place.to_be_bytes());
        payload[10..HEADER_LEN].copy_from_slice(&self.end.to_be_bytes());
    }

    /// Ones' complement sum of the header, not folded, below 2^35; congruent to that of its 16-bit words (RFC 1071
    /// section 2).
    #[inline]
    pub fn sum(&self) -> u64 {
        let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
        u64::from(self.magic) + halves(self.place) + halves(self.end)
    }
}

/// The reason why a payload has no valid stream header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Too short, or another magic: not ours.
    #[error("no stream header")]
    Foreign,
    /// Ours, but header or body changed on the way.
    #[error("stream header or body corrupted")]
    Corrupt,
}

impl StreamHeader {
    /// The header in the form in which it is written. `body_digest` is that of what follows, see
    /// [`digest`].
    #[inline]
    pub fn stamp(&self, body_digest: u64) -> Stamp {
        let place = u64::from(self.stream & (STREAMS_MAX - 1)) << 40
            | self.tx_time_ns & (TIME_MODULUS_NS - 1);
        let check = check(place, self.sequence, body_digest);
        let end = u64::from(self.sequence) << 32 | u64::from(check);
        Stamp {
            magic: self.kind.magic(),
            place,
            end,
        }
    }

    /// Reads the header at the start of `payload` and checks it and everything behind it.
    ///
    /// # Errors
    /// See [`PayloadError`].
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<Self, PayloadError> {
        let (magic, rest) = payload
            .split_first_chunk::<2>()
            .ok_or(PayloadError::Foreign)?;
        let (place, rest) = rest.split_first_chunk::<8>().ok_or(PayloadError::Foreign)?;
        let (end, body) = rest.split_first_chunk::<8>().ok_or(PayloadError::Foreign)?;
        let kind = Kind::from_magic(u16::from_be_bytes(*magic)).ok_or(PayloadError::Foreign)?;
        let (place, end) = (u64::from_be_bytes(*place), u64::from_be_bytes(*end));
        let sequence = (end >> 32) as u32;
        if check(place, sequence, digest(body)) != end as u32 {
            return Err(PayloadError::Corrupt);
        }
        Ok(StreamHeader {
            kind,
            stream: (place >> 40) as u32,
            tx_time_ns: place & (TIME_MODULUS_NS - 1),
            sequence,
        })
    }

    /// Time from sending to `now_ns`, in nanoseconds. `None` when the frame comes from the future:
    /// the clocks of the two sides are not the same.
    #[inline]
    pub fn latency_ns(&self, now_ns: u64) -> Option<u64> {
        let latency_ns = now_ns.wrapping_sub(self.tx_time_ns) % TIME_MODULUS_NS;
        (latency_ns < TIME_MODULUS_NS / 2).then_some(latency_ns)
    }
}

/// The check over everything but the magic; `place` is stream and time.
#[inline]
fn check(place: u64, sequence: u32, body_digest: u64) -> u32 {
    let left = place ^ body_digest ^ MIX[0];
    let right = u64::from(sequence) << 32 ^ MIX[1];
    let product = u128::from(left) * u128::from(right);
    let folded = (product >> 64) as u64 ^ product as u64;
    (folded >> 32) as u32 ^ folded as u32
}

/// Digest of the body behind a stream header.
#[inline]
pub fn digest(body: &[u8]) -> u64 {
    xxh3_64(body)
}

/// The bytes that bodies are cut from: no two alike within reach of a mix-up.
pub fn pattern() -> Box<[u8; FRAME_MAX]> {
    let mut bytes = Box::new([0; FRAME_MAX]);
    let mut random = SplitMix(0);
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(header: StreamHeader, body: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0; HEADER_LEN], body].concat();
        header.stamp(digest(body)).write(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn fields_survive(stream in 0..STREAMS_MAX, time in 0..TIME_MODULUS_NS, sequence: u32,
            kind in prop::sample::select(vec![Kind::Data, Kind::Probe, Kind::Reply]),
            body in prop::collection::vec(any::<u8>(), 0..100)) {
            let header = StreamHeader { kind, stream, tx_time_ns: time, sequence };
            prop_assert_eq!(StreamHeader::parse(&frame(header, &body)).unwrap(), header);
        }

        #[test]
        fn every_flipped_bit_shows(bit in 0usize..8 * 60, sequence: u32) {
            let header = StreamHeader { kind: Kind::Data, stream: 7, tx_time_ns: 1, sequence };
            let mut bytes = frame(header, &pattern()[..42]);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(StreamHeader::parse(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = StreamHeader::parse(&bytes);
        }
    }

    #[test]
    fn latency_wraps_with_the_clock() {
        let header = StreamHeader {
            kind: Kind::Data,
            stream: 0,
            tx_time_ns: TIME_MODULUS_NS - 10,
            sequence: 0,
        };
        assert_eq!(header.latency_ns(7 * TIME_MODULUS_NS + 5), Some(15));
        assert_eq!(header.latency_ns(TIME_MODULUS_NS - 11), None);
    }

    #[test]
    fn the_kind_is_not_part_of_the_check() {
        let header = StreamHeader {
            kind: Kind::Probe,
            stream: 1,
            tx_time_ns: 2,
            sequence: 3,
        };
        let mut bytes = frame(header, b"body");
        bytes[..2].copy_from_slice(&Kind::Reply.magic().to_be_bytes());
        assert_eq!(StreamHeader::parse(&bytes).unwrap().kind, Kind::Reply);
    }
}
