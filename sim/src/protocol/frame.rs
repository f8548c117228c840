//! `bpf/switch/frame.h`: the header of a frame, read once, and descriptors of TX slots.

use super::deliver::Slot;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN};

const MAC_MASK: u64 = 0xffff_ffff_ffff;
/// The first of the IEEE 802.1D reserved addresses.
pub(super) const MAC_RESERVED: u64 = 0x00c2_8001;
pub(super) const MAC_RESERVED_MASK: u64 = 0xf0ff_ffff_ffff;
/// Bytes up to the end of the first tag.
pub(super) const TAG_END: usize = 18;
/// Bytes of a frame that are read once and checked.
pub(super) const HEADER: usize = 16;

/// The checked bytes of a frame.
#[derive(Clone, Copy)]
pub(super) struct Header {
    w0: u64,
    w1: u64,
}

impl Header {
    pub(super) async fn read(slot: &Slot) -> Self {
        let bytes = slot.read(HEADER).await;
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (w0, w1) = (word(0), word(8));
        Header { w0, w1 }
    }

    /// Puts the checked bytes over the first `len` of a frame, at most as many as there are.
    pub(super) async fn write(self, slot: &Slot, len: usize) {
        let mut bytes = [0; HEADER];
        self.over(&mut bytes);
        slot.write(&bytes[..len]).await;
    }

    pub(super) fn over(self, frame: &mut [u8]) {
        let bytes = [self.w0.to_le_bytes(), self.w1.to_le_bytes()].concat();
        let len = frame.len().min(HEADER);
        frame[..len].copy_from_slice(&bytes[..len]);
    }

    pub(super) fn dst(self) -> u64 {
        self.w0 & MAC_MASK
    }

    pub(super) fn src(self) -> u64 {
        self.w0 >> 48 | (self.w1 & 0xffff_ffff) << 16
    }

    pub(super) fn is_tagged(self) -> bool {
        matches!(self.w1 >> 32 & 0xffff, 0x0081 | 0xa888)
    }

    pub(super) fn vlan(self) -> u64 {
        let tci = (self.w1 >> 48) as u16;
        if self.is_tagged() {
            u64::from(tci.swap_bytes() & 0xfff)
        } else {
            0
        }
    }

    pub(super) fn dst_address(self) -> u64 {
        self.dst() | self.vlan() << 48
    }

    pub(super) fn src_address(self) -> u64 {
        self.src() | self.vlan() << 48
    }
}

/// Is this the length of a frame in one slot?
pub(super) fn length_ok(len: usize) -> bool {
    (FRAME_MIN..=FRAME_MAX).contains(&len)
}

/// The bits of a TX descriptor that [`length_ok`] takes for a length of a plain frame in one slot alone.
pub(super) fn plain_bits(descriptor: u64) -> usize {
    (descriptor & 0x1_ffff) as usize
}

/// Is the frame long, or does it have metadata?
pub(super) fn is_special(descriptor: u64) -> bool {
    plain_bits(descriptor) > FRAME_MAX
}

pub(super) fn len_of(descriptor: u64) -> usize {
    usize::from(descriptor as u16)
}

pub(super) fn slot_of(descriptor: u64) -> u32 {
    (descriptor >> 32) as u32
}
