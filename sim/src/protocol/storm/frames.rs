//! Frames of a storm. The stamp in a frame's first slot names the sender, the frame's number, its length and its metadata;
//! a stamp in each other slot names the frame. So a receiver sees that a frame is whole.

use crate::protocol::daemon::Content;
use crate::protocol::memory::Pool;
use nfluid_ring::layout::{FRAME_MAX, LONG_MAX, SLOT_SIZE, room_slots};
use nfluid_ring::offload::{
    OFFLOAD_BYTES, Offload, PartialChecksum, SegmentKind, Segmentation, UDP_SEGMENTS_MAX,
};

/// Behind the addresses and the type.
const STAMP_AT: usize = 14;
/// The shortest frame of a storm.
pub(super) const STAMPED_LEN: usize = STAMP_AT + 15;
/// The shortest one that may be a super-frame.
const SUPER_MIN: usize = 100;
/// Start of a frame's part in each slot but the first.
const PIECE: usize = 16;

type Words = [u8; OFFLOAD_BYTES];

/// Metadata beside a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    Checksum,
    Super,
    /// Changes while the frame is on its way.
    Doubtful,
    /// Metadata that no frame can have, or a frame in a place where none may lie: the frame must not arrive.
    Wrong,
}

const ALL: [Beside; 5] = [
    Beside::Nothing,
    Beside::Checksum,
    Beside::Super,
    Beside::Doubtful,
    Beside::Wrong,
];

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamped {
    pub(super) dst: [u8; 6],
    pub(super) src: [u8; 6],
    pub(super) sender: u32,
    /// Numbers grow with each frame of the storm.
    pub(super) number: u64,
    pub(super) len: usize,
    pub(super) beside: Beside,
}

/// Returns the metadata of a frame of this length, with a checksum alone or as a super-frame.
fn offload(beside: Beside, len: usize, number: u64) -> Offload {
    let start = STAMP_AT + number as usize % 4;
    let udp = PartialChecksum { start, offset: 6 };
    if beside == Beside::Checksum || len < SUPER_MIN {
        return Offload::partial_checksum(udp);
    }
    let (kind, header_len) = match number % 3 {
        0 => (SegmentKind::TcpV4, start + 20),
        1 => (SegmentKind::TcpV6, start + 32),
        _ => (SegmentKind::Udp, start + 8),
    };
    let least = if kind == SegmentKind::Udp {
        len.div_ceil(UDP_SEGMENTS_MAX)
    } else {
        48
    };
    let cut = Segmentation {
        kind,
        header_len,
        payload_len: least + number as usize % 1400,
        is_ecn: kind != SegmentKind::Udp && number & 8 != 0,
    };
    Offload::segmented(start, cut)
}

/// Writes a wrong number of segments into the words: the sender's number does not count.
fn claimed(mut words: Words, number: u64) -> Words {
    words[10..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[2..]);
    words
}

/// Returns metadata that no frame can have.
fn lie(len: usize, number: u64) -> Words {
    let mut words = offload(Beside::Super, len.max(SUPER_MIN), number).words(len);
    match number % 6 {
        0 => words[0] = 3,
        1 => words[1] = 2,
        2 => words[3] = 2,
        3 => words[6] = 13,
        4 => words[8] = 7,
        _ => (words[1], words[4], words[5]) = (1, 47, 0),
    }
    words
}

/// Returns words for a frame whose metadata changes: metadata that the frame can have, none, or a lie.
pub(super) fn doubtful(len: usize, number: u64) -> Words {
    match number % 4 {
        0 => [0; OFFLOAD_BYTES],
        1 => lie(len, number / 4),
        2 => claimed(offload(Beside::Checksum, len, number).words(len), number),
        _ => claimed(offload(Beside::Super, len, number).words(len), number),
    }
}

impl Stamped {
    /// Returns the metadata that the sender writes.
    pub(super) fn words(&self) -> Option<Words> {
        let Stamped { len, number, .. } = *self;
        match self.beside {
            Beside::Nothing => None,
            Beside::Checksum | Beside::Super => Some(claimed(
                offload(self.beside, len, number).words(len),
                number,
            )),
            Beside::Doubtful => Some(doubtful(len, number)),
            Beside::Wrong => Some(lie(len, number)),
        }
    }

    fn first(&self) -> [u8; STAMPED_LEN] {
        let mut bytes = [0; STAMPED_LEN];
        bytes[..6].copy_from_slice(&self.dst);
        bytes[6..12].copy_from_slice(&self.src);
        bytes[12] = 8;
        let stamp = &mut bytes[STAMP_AT..];
        stamp[..4].copy_from_slice(&self.sender.to_le_bytes());
        stamp[4..12].copy_from_slice(&self.number.to_le_bytes());
        stamp[12] = self.beside as u8;
        stamp[13..].copy_from_slice(&(self.len as u16).to_le_bytes());
        bytes
    }

    /// The start of the frame's part in a slot.
    fn piece(&self, slot: u32) -> [u8; PIECE] {
        let mut bytes = [0; PIECE];
        bytes[..4].copy_from_slice(&self.sender.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..].copy_from_slice(&slot.to_le_bytes());
        bytes
    }

    /// The slots behind the first in which a part of the frame lies, and the bytes that are looked at there.
    fn pieces(&self) -> impl Iterator<Item = (u32, usize)> {
        let starts = (SLOT_SIZE..self.len).step_by(SLOT_SIZE);
        let len = self.len;
        (1..).zip(starts.map(move |start| PIECE.min(len - start)))
    }

    fn parse(bytes: [u8; STAMPED_LEN]) -> Option<Self> {
        let stamp = &bytes[STAMP_AT..];
        Some(Stamped {
            dst: bytes[..6].try_into().ok()?,
            src: bytes[6..12].try_into().ok()?,
            sender: u32::from_le_bytes(stamp[..4].try_into().ok()?),
            number: u64::from_le_bytes(stamp[4..12].try_into().ok()?),
            len: usize::from(u16::from_le_bytes(stamp[13..].try_into().ok()?)),
            beside: *ALL.get(usize::from(stamp[12]))?,
        })
    }

    /// Reads the frame of `len` bytes that has arrived in the pool, from `slot` on.
    ///
    /// # Errors
    /// No sender has sent these bytes.
    pub(super) fn arrived(pool: &Pool, slot: u32, len: usize) -> Result<Self, String> {
        let bytes: Result<[u8; STAMPED_LEN], _> = pool.read(slot, STAMPED_LEN).try_into();
        let frame = bytes.ok().and_then(Self::parse);
        let frame = frame.filter(|frame| frame.len == len);
        let frame = frame.ok_or_else(|| format!("no frame of {len} bytes lies in slot {slot}"))?;
        for (piece, seen) in frame.pieces() {
            let bytes = pool.read(slot + piece, seen);
            if bytes != frame.piece(piece)[..seen] {
                return Err(format!("slot {piece} of {frame:?} has {bytes:?}"));
            }
        }
        Ok(frame)
    }

    /// Checks the metadata that has arrived with the frame.
    ///
    /// # Errors
    /// The frame, or these words beside it, must not arrive.
    pub(super) fn check_words(&self, words: Option<Words>) -> Result<Offload, String> {
        let Stamped { len, number, .. } = *self;
        let checked = words.map(|words| Offload::check(words, len));
        let offload = checked.unwrap_or(Ok(Offload::NONE));
        let offload = offload.map_err(|_| format!("{self:?} has {words:?}"))?;
        let is_said = match self.beside {
            Beside::Nothing => offload.is_none(),
            Beside::Checksum | Beside::Super => offload == self::offload(self.beside, len, number),
            Beside::Doubtful => true,
            Beside::Wrong => false,
        };
        // A long frame has them always, a short one if something is to be done.
        let is_there = words.is_some() == (len > FRAME_MAX || !offload.is_none());
        let is_canonical = words.is_none_or(|words| words == offload.words(len));
        if is_said && is_there && is_canonical {
            return Ok(offload);
        }
        Err(format!("{self:?} has {words:?}"))
    }

    /// The last slot of the frame at its receiver, counted from the first.
    pub(super) fn last_slot(&self) -> u32 {
        room_slots(self.len) as u32 - 1
    }
}

impl Content for Stamped {
    fn bytes(&self) -> usize {
        self.len
    }

    fn write(&self, pool: &Pool, slot: u32) {
        pool.write(slot, &self.first());
        for (piece, seen) in self.pieces() {
            pool.write(slot + piece, &self.piece(piece)[..seen]);
        }
    }
}

/// Returns a length that a sender chooses. Most frames lie in one slot.
pub(super) fn length(choice: u32, exact: u32) -> usize {
    let long = FRAME_MAX + 1 + exact as usize % (2 * SLOT_SIZE);
    match choice % 32 {
        0..20 => STAMPED_LEN + exact as usize % 8,
        20..22 => SUPER_MIN + exact as usize % 8,
        22..28 => long,
        28..30 => 9014 + exact as usize % 16,
        30 => FRAME_MAX + 1 + exact as usize % (LONG_MAX - FRAME_MAX),
        _ => LONG_MAX - exact as usize % 3000 * (exact as usize & 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_are_lies_and_what_is_said_is_so() {
        for number in 0..10_000 {
            let len = length(number as u32, number as u32 * 7);
            assert!((STAMPED_LEN..=LONG_MAX).contains(&len), "{len}");
            assert!(Offload::check(lie(len, number), len).is_err(), "{len}");
            for beside in [Beside::Checksum, Beside::Super] {
                let offload = offload(beside, len, number);
                let claimed = claimed(offload.words(len), number);
                assert_eq!(Offload::check(claimed, len), Ok(offload), "{len}");
            }
        }
    }
}
