//! `bpf/switch/offload.h`. The check itself is that of `nfluid_ring`, which the program mirrors.

use super::memory::{Memory, PORT_CHECKSUMS, PORT_SUPER};
use super::mutation::Mutation;
use nfluid_ring::offload::{Level, OFFLOAD_BYTES, Offload};

/// Where the number of segments is in the words.
const SEGMENTS_AT: usize = 10;

/// Metadata that was read beside a frame and checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    offload: Offload,
    /// The words for the receiver.
    pub(super) words: [u8; OFFLOAD_BYTES],
}

impl Checked {
    pub(super) const NONE: Checked = Checked {
        offload: Offload::NONE,
        words: [0; OFFLOAD_BYTES],
    };

    /// `offload_check`.
    pub(super) fn of(m: &Memory, read: [u8; OFFLOAD_BYTES], len: usize) -> Option<Self> {
        let offload = Offload::check(read, len).ok()?;
        let mut words = offload.words(len);
        if m.has(Mutation::SegmentsBelieved) && !offload.is_none() {
            words[SEGMENTS_AT..][..2].copy_from_slice(&read[SEGMENTS_AT..][..2]);
        }
        Some(Checked { offload, words })
    }

    pub(super) fn is_none(&self) -> bool {
        self.offload.is_none()
    }

    /// The flags that the port of a receiver must have for such a frame.
    pub(super) fn needs(&self) -> u32 {
        match self.offload.level() {
            Level::Plain => 0,
            Level::Checksums => PORT_CHECKSUMS,
            Level::Super => PORT_SUPER,
        }
    }

    /// Segments beyond the first.
    pub(super) fn more_segments(&self) -> u64 {
        let segments = u16::from_le_bytes([self.words[SEGMENTS_AT], self.words[SEGMENTS_AT + 1]]);
        u64::from(segments.saturating_sub(1))
    }

    /// Bytes of the headers of these.
    pub(super) fn more_bytes(&self) -> u64 {
        let headers = self.offload.segmentation().map_or(0, |cut| cut.header_len);
        self.more_segments() * headers as u64
    }
}
