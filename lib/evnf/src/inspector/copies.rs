//! Copies of packets, from the fast path's ring.

use crate::handed::Ring;
use crate::load::LoadError;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Bytes of `struct dpi_copy`.
const HEAD_BYTES: usize = 24;

/// A copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Arrival time of the packet, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// Length of the packet, from its Ethernet header on.
    pub length: u32,
    /// True if the packet has been counted under its flow.
    pub counted: bool,
    /// The first bytes of the packet, 2048 at most.
    pub bytes: &'a [u8],
}

impl<'a> Copied<'a> {
    /// Parses a record of the ring; `None` if the record is invalid.
    fn read(record: &'a [u8]) -> Option<Self> {
        let (head, bytes) = record.split_at_checked(HEAD_BYTES)?;
        let word = |at: usize| {
            let word = head.get(at..at + 4).and_then(|word| word.try_into().ok());
            word.map_or(0, u32::from_ne_bytes)
        };
        let time = head.first_chunk().map(|time| u64::from_ne_bytes(*time))?;
        Some(Copied {
            time_ns: time,
            length: word(8),
            counted: word(16) != 0,
            bytes: bytes.get(..word(12) as usize)?,
        })
    }
}

/// Hands out copies in the order in which packets came.
pub struct Copies<'a>(Ring<'a>);

impl std::fmt::Debug for Copies<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Copies")
    }
}

impl<'a> Copies<'a> {
    /// `take` is called with each copy; false: no more of them for now.
    pub(super) fn new(
        ring: BorrowedFd<'_>,
        mut take: impl FnMut(Copied<'_>) -> bool + Send + 'a,
    ) -> Result<Self, LoadError> {
        let call = move |record: &[u8]| Copied::read(record).is_none_or(&mut take);
        Ring::new(ring, call).map(Copies)
    }

    /// Waits for copies and hands them out, until there are no more copies, or a stop is requested. The result does
    /// not show how the wait has ended: an interrupted wait is a wait that found nothing.
    pub fn wait(&self, patience: Duration) {
        if self.0.poll(patience) == 0 {
            // Takes copies that are there without a notification.
            let _how_many = self.0.consume();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Copied, HEAD_BYTES};

    #[test]
    fn a_record_is_read_and_a_short_one_is_not() {
        let mut record = vec![0; HEAD_BYTES + 8];
        record[0] = 5;
        record[8..12].copy_from_slice(&100u32.to_ne_bytes());
        record[12..16].copy_from_slice(&3u32.to_ne_bytes());
        record[16] = 1;
        record[HEAD_BYTES..HEAD_BYTES + 3].copy_from_slice(b"abc");
        let expected = Copied {
            time_ns: 5,
            length: 100,
            counted: true,
            bytes: b"abc",
        };
        assert_eq!(Copied::read(&record), Some(expected));
        assert_eq!(Copied::read(&record[..HEAD_BYTES - 1]), None);
        assert_eq!(Copied::read(&record[..HEAD_BYTES + 2]), None);
    }
}
