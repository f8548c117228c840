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

#[cfg(test)]
mod tests {
    use super::*;

    const SUPER: NflOffload = NflOffload {
        flags: 1,
        gso_type: 1,
        hdr_len: 54,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
    };

    /// A name, and a change of the metadata.
    type Lie = (&'static str, fn(&mut NflOffload));

    #[test]
    fn metadata_is_read_back_as_it_was_given() {
        let alone = NflOffload {
            flags: 1,
            csum_start: 42,
            csum_offset: 6,
            ..NflOffload::default()
        };
        let with_cwr = NflOffload {
            gso_type: 0x81,
            ..SUPER
        };
        for given in [NflOffload::default(), alone, SUPER, with_cwr] {
            let checked = given.check(LONG_MAX).unwrap();
            assert_eq!(NflOffload::of(checked), given);
        }
    }

    #[test]
    fn a_lie_in_any_field_is_refused() {
        let lies: [Lie; 12] = [
            ("unknown flag", |o| o.flags = 3),
            ("packets without a checksum", |o| o.flags = 0),
            ("unknown kind", |o| o.gso_type = 2),
            ("UDP with CWR", |o| {
                (o.gso_type, o.hdr_len, o.csum_offset) = (0x85, 42, 6);
            }),
            ("headers that end too early", |o| o.hdr_len = 53),
            ("headers too long", |o| o.hdr_len = 257),
            ("no payload", |o| o.gso_size = 0),
            ("too little payload", |o| o.gso_size = 47),
            ("start within the Ethernet header", |o| o.csum_start = 13),
            ("start behind the headers", |o| o.csum_start = 257),
            ("checksum of UDP", |o| o.csum_offset = 6),
            ("checksum elsewhere", |o| o.csum_offset = 0x110),
        ];
        for (what, lie) in lies {
            let mut offload = SUPER;
            lie(&mut offload);
            assert_eq!(offload.check(LONG_MAX), Err(BAD_OFFLOAD), "{what}");
        }
        assert_eq!(SUPER.check(54), Err(BAD_OFFLOAD), "headers alone");
    }

    #[test]
    fn what_a_frame_becomes_is_counted() {
        let given = SUPER;
        let offload = &raw const given;
        let len = 54 + 2 * 1448 + 1;
        // SAFETY: the pointer is to a value that lives.
        let counted = unsafe {
            [
                nfl_offload_segments(offload, len),
                nfl_offload_wire_len(offload, len),
                nfl_offload_packet_len(offload, len),
                nfl_offload_segments(offload, LONG_MAX + 1),
                nfl_offload_segments(std::ptr::null(), len),
            ]
        };
        let wire_len = count(len + 2 * 54);
        let refused = [-libc::EMSGSIZE, -libc::EINVAL];
        assert_eq!(counted, [3, wire_len, 54 + 1448, refused[0], refused[1]]);
    }
}
