//! `struct nfl_offload`: what is still to be done to a frame, in the form of `struct virtio_net_hdr`.

use crate::errors::{Errno, INVALID, count, status};
use nfluid_ring::Offload;
use nfluid_ring::layout::{FRAME_MIN, LONG_MAX};
use nfluid_ring::offload::{OFFLOAD_BYTES, VNET_BYTES};
use std::ffi::c_int;

/// No frame can have this metadata.
pub(crate) const BAD_OFFLOAD: Errno = Errno(libc::EBADMSG);
/// Not the length of a frame.
pub(crate) const BAD_LENGTH: Errno = Errno(libc::EMSGSIZE);
/// The frame or the port is of another kind than the function asks for.
pub(crate) const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

/// `struct nfl_offload`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NflOffload {
    /// 0, or `NFL_NEEDS_CSUM`.
    pub flags: u8,
    /// Kind of the segments, `NFL_GSO_..`.
    pub gso_type: u8,
    /// Bytes of the headers that each segment has.
    pub hdr_len: u16,
    /// Bytes of payload of each segment but the last.
    pub gso_size: u16,
    /// Start of the transport header.
    pub csum_start: u16,
    /// Where its checksum is, from `csum_start`.
    pub csum_offset: u16,
}

// The size in `nfluid.h`; lib/ring/tests/header.c asserts it on the other side.
const _: () = assert!(size_of::<NflOffload>() == VNET_BYTES);

impl NflOffload {
    pub(crate) fn of(offload: Offload) -> Self {
        let header = offload.to_kernel();
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        NflOffload {
            flags: header[0],
            gso_type: header[1],
            hdr_len: half(2),
            gso_size: half(4),
            csum_start: half(6),
            csum_offset: half(8),
        }
    }

    /// Checks what a program says of a frame of `len` bytes.
    pub(crate) fn check(self, len: usize) -> Result<Offload, Errno> {
        let mut words = [0; OFFLOAD_BYTES];
        (words[0], words[1]) = (self.flags, self.gso_type);
        let halves = [
            self.hdr_len,
            self.gso_size,
            self.csum_start,
            self.csum_offset,
        ];
        for (bytes, half) in words[2..].chunks_exact_mut(2).zip(halves) {
            bytes.copy_from_slice(&half.to_le_bytes());
        }
        Offload::check(words, len).map_err(|_| BAD_OFFLOAD)
    }
}

/// Returns what `read` says of a frame of `len` bytes with this metadata.
///
/// # Safety
/// `offload` is null or can be read.
unsafe fn about(
    offload: *const NflOffload,
    len: usize,
    read: impl FnOnce(Offload) -> usize,
) -> c_int {
    status(|| {
        // SAFETY: null or readable, as this function's caller promises.
        let offload = *unsafe { offload.as_ref() }.ok_or(INVALID)?;
        if !(FRAME_MIN..=LONG_MAX).contains(&len) {
            return Err(BAD_LENGTH);
        }
        offload.check(len).map(|offload| count(read(offload)))
    })
}

/// The number of packets that a frame becomes on a wire.
///
/// # Safety
/// `offload` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_offload_segments(offload: *const NflOffload, len: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(offload, len, |offload| offload.segments(len)) }
}

/// The bytes of all these packets together.
///
/// # Safety
/// `offload` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_offload_wire_len(offload: *const NflOffload, len: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(offload, len, |offload| offload.wire_len(len)) }
}

/// The bytes of the longest of these packets.
///
/// # Safety
/// `offload` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_offload_packet_len(offload: *const NflOffload, len: usize) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(offload, len, |offload| offload.packet_len(len)) }
}
