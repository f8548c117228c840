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
//! The time is `CLOCK_MONOTONIC` modulo 2^40 ns (18 minutes), which is longer than any latency. The
//! check is the lower half of the XXH3 hash of stream, time and sequence, seeded with the XXH3 hash
//! of the body: a change anywhere behind the transport header shows, and network functions that
//! rewrite addresses, ports or TTL do not disturb it. The magic tells probes of a ping from their
//! reflections; it is left out of the check, so that a reflector only changes these two bytes.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::io::FRAME_MAX;
use crate::memory::SplitMix;

/// Bytes of the stream header.
pub const HEADER_LEN: usize = 18;
/// Stream numbers are below this.
pub const STREAMS_MAX: u32 = 1 << 24;
/// Times are counted modulo this many nanoseconds.
pub const TIME_MODULUS_NS: u64 = 1 << 40;

const CHECKED: std::ops::Range<usize> = 2..14;

/// What a stamped frame is for.
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
    /// What the frame is for.
    pub kind: Kind,
    /// Which stream it belongs to, below [`STREAMS_MAX`].
    pub stream: u32,
    /// When it was sent, in nanoseconds modulo [`TIME_MODULUS_NS`].
    pub tx_time_ns: u64,
    /// Its place in the stream, modulo 2^32.
    pub sequence: u32,
}

/// Why a payload has no stream header to be believed.
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
    /// The header as it stands in the frame. `body_digest` is that of what follows, see [`digest`].
    #[inline]
    pub fn to_bytes(&self, body_digest: u64) -> [u8; HEADER_LEN] {
        let fields = u128::from(self.kind.magic()) << 96
            | u128::from(self.stream & (STREAMS_MAX - 1)) << 72
            | u128::from(self.tx_time_ns % TIME_MODULUS_NS) << 32
            | u128::from(self.sequence);
        let mut bytes = [0; HEADER_LEN];
        bytes[..14].copy_from_slice(&fields.to_be_bytes()[2..]);
        let check = xxh3_64_with_seed(&bytes[CHECKED], body_digest) as u32;
        bytes[14..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// Reads the header at the start of `payload` and checks it and everything behind it.
    ///
    /// # Errors
    /// See [`PayloadError`].
    #[inline]
    pub fn parse(payload: &[u8]) -> Result<Self, PayloadError> {
        let (bytes, body) = payload
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(PayloadError::Foreign)?;
        let magic = u16::from_be_bytes([bytes[0], bytes[1]]);
        let kind = Kind::from_magic(magic).ok_or(PayloadError::Foreign)?;
        let check = u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]);
        if xxh3_64_with_seed(&bytes[CHECKED], digest(body)) as u32 != check {
            return Err(PayloadError::Corrupt);
        }
        let mut wide = [0; 16];
        wide[2..].copy_from_slice(&bytes[..14]);
        let fields = u128::from_be_bytes(wide);
        Ok(StreamHeader {
            kind,
            stream: (fields >> 72) as u32 & (STREAMS_MAX - 1),
            tx_time_ns: (fields >> 32) as u64 % TIME_MODULUS_NS,
            sequence: fields as u32,
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
        [&header.to_bytes(digest(body))[..], body].concat()
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
