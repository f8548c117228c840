//! Offload metadata: what is still to be done to a frame before it can be on a wire.
//!
//! A kernel hands frames over in which the transport checksum is not computed yet (a *partial checksum*), or which are
//! to become several packets (a *super-frame*: one header and the payload of up to some thousand segments). What is
//! missing is described beside the frame, in the form of Linux's `struct virtio_net_hdr`. The switch checks the words
//! of a sender before a receiver sees them (`bpf/switch/offload.h`); [`Offload::check`] is the same check.
//!
//! In a partial checksum the checksum field holds the folded sum of the pseudo-header, not complemented; the pseudo-header
//! has the length of the whole frame's transport message. Whoever changes an address corrects that sum, and whoever
//! changes anything else in the transport message leaves the field alone.

use crate::layout::{FRAME_MIN, LONG_MAX};
use nfluid_wire::{tcp, udp};

pub use nfluid_wire::segment::{PartialChecksum, SegmentKind, Segmentation};

/// Bytes of the metadata beside a frame: those of `struct virtio_net_hdr`, the number of segments, and zeros.
pub const OFFLOAD_BYTES: usize = 16;
/// Bytes of `struct virtio_net_hdr`.
pub const VNET_BYTES: usize = 10;
/// Longest headers of a super-frame in bytes, Ethernet header included.
pub const HEADERS_MAX: usize = 256;
/// Shortest payload of a TCP segment in bytes: the kernel's least MSS (`TCP_MIN_SND_MSS`, net/tcp.h).
pub const TCP_SEGMENT_MIN: usize = 48;
/// Most datagrams of a super-frame (`UDP_MAX_SEGMENTS`, linux/udp.h).
pub const UDP_SEGMENTS_MAX: usize = 128;

/// virtio_net.h: VIRTIO_NET_HDR_F_NEEDS_CSUM.
const NEEDS_CHECKSUM: u8 = 1;
/// virtio_net.h: VIRTIO_NET_HDR_F_DATA_VALID. The receiver's kernel has verified the checksum: nothing is missing.
const CHECKSUM_VALID: u8 = 2;
/// virtio_net.h: VIRTIO_NET_HDR_GSO_TCPV4, _TCPV6, _UDP_L4, and _ECN, which is or-ed to the TCP ones.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;
const TCP_CHECKSUM: u16 = tcp::CHECKSUM_OFFSET as u16;
const UDP_CHECKSUM: u16 = udp::CHECKSUM_OFFSET as u16;
const TCP_HEADER_MIN: u16 = tcp::HEADER_LEN as u16;
const UDP_HEADER: u16 = udp::HEADER_LEN as u16;

/// What a port's owner can take. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Level {
    /// Frames as they are on a wire.
    #[default]
    Plain,
    /// Also frames with a partial checksum.
    Checksums,
    /// Also super-frames.
    Super,
}

impl Level {
    /// The level's name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Plain => "plain",
            Level::Checksums => "checksums",
            Level::Super => "super",
        }
    }

    /// The level with this number, `level as u8`, from 0 on; with a higher one, the highest level.
    #[must_use]
    pub const fn numbered(number: u8) -> Self {
        match number {
            0 => Level::Plain,
            1 => Level::Checksums,
            _ => Level::Super,
        }
    }
}

/// Metadata that no frame can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOffload;

/// What is still to be done to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    /// Nothing: the frame is as on a wire.
    pub const NONE: Offload = Offload {
        flags: 0,
        gso_type: 0,
        header_len: 0,
        gso_size: 0,
        checksum_start: 0,
        checksum_offset: 0,
    };

    /// A checksum that is missing, `offset` bytes (TCP 16, UDP 6) behind the transport header's start.
    #[must_use]
    pub const fn partial_checksum(checksum: PartialChecksum) -> Self {
        Offload {
            flags: NEEDS_CHECKSUM,
            checksum_start: checksum.start as u16,
            checksum_offset: checksum.offset as u16,
            ..Offload::NONE
        }
    }

    /// A super-frame with a transport header at `start`.
    #[must_use]
    pub const fn segmented(start: usize, cut: Segmentation) -> Self {
        let (gso_type, offset) = match cut.kind {
            SegmentKind::TcpV4 => (TCP_V4, TCP_CHECKSUM),
            SegmentKind::TcpV6 => (TCP_V6, TCP_CHECKSUM),
            SegmentKind::Udp => (UDP, UDP_CHECKSUM),
        };
        Offload {
            flags: NEEDS_CHECKSUM,
            gso_type: gso_type | if cut.is_ecn { ECN } else { 0 },
            header_len: cut.header_len as u16,
            gso_size: cut.payload_len as u16,
            checksum_start: start as u16,
            checksum_offset: offset,
        }
    }

    /// Checks the words beside a frame of `len` bytes, of which a `struct virtio_net_hdr` is the start.
    ///
    /// # Errors
    /// [`BadOffload`] if the words contradict each other or the length.
    #[inline]
    pub fn check(words: [u8; OFFLOAD_BYTES], len: usize) -> Result<Self, BadOffload> {
        let half = |at: usize| u16::from_le_bytes([words[at], words[at + 1]]);
        let offload = Offload {
            flags: words[0],
            gso_type: words[1],
            header_len: half(2),
            gso_size: half(4),
            checksum_start: half(6),
            checksum_offset: half(8),
        };
        if offload.flags == 0 && offload.gso_type == 0 {
            return Ok(Offload::NONE);
        }
        if offload.flags != NEEDS_CHECKSUM || !offload.fits(len) {
            return Err(BadOffload);
        }
        if offload.gso_type == 0 {
            let (header_len, gso_size) = (0, 0);
            return Ok(Offload {
                header_len,
                gso_size,
                ..offload
            });
        }
        Ok(offload)
    }

    /// As [`Offload::check`], of the header with which the kernel hands `frame` to a tap. Its `hdr_len` is only a hint,
    /// often without the tags (virtio 1.2, section 5.1.6.4.1): the length of the headers is read from the frame.
    ///
    /// # Errors
    /// As for [`Offload::check`].
    pub fn from_kernel(header: [u8; VNET_BYTES], frame: &[u8]) -> Result<Self, BadOffload> {
        let mut words = [0; OFFLOAD_BYTES];
        words[..VNET_BYTES].copy_from_slice(&header);
        words[0] &= !CHECKSUM_VALID;
        let start = u16::from_le_bytes([header[6], header[7]]);
        let transport = match header[1] & !ECN {
            UDP => UDP_HEADER,
            _ => frame
                .get(usize::from(start) + 12)
                .map_or(0, |doff| u16::from(doff >> 4) * 4),
        };
        words[2..4].copy_from_slice(&start.saturating_add(transport).to_le_bytes());
        Self::check(words, frame.len())
    }

    fn fits(&self, len: usize) -> bool {
        let (start, offset) = (self.checksum_start, self.checksum_offset);
        let is_known = offset == TCP_CHECKSUM || offset == UDP_CHECKSUM;
        let start_max = HEADERS_MAX as u16;
        if !is_known || start > start_max || usize::from(start) < FRAME_MIN {
            return false;
        }
        if self.gso_type == 0 {
            return usize::from(start + offset) + 2 <= len;
        }
        let (headers, size) = (usize::from(self.header_len), usize::from(self.gso_size));
        if headers > HEADERS_MAX || headers >= len || size == 0 {
            return false;
        }
        match self.gso_type & !ECN {
            TCP_V4 | TCP_V6 => {
                offset == TCP_CHECKSUM
                    && self.header_len >= start + TCP_HEADER_MIN
                    && size >= TCP_SEGMENT_MIN
            }
            UDP => {
                self.gso_type & ECN == 0
                    && offset == UDP_CHECKSUM
                    && self.header_len == start + UDP_HEADER
                    && len - headers <= size * UDP_SEGMENTS_MAX
            }
            _ => false,
        }
    }

    /// The words beside a frame of `len` bytes.
    #[inline]
    #[must_use]
    pub fn words(&self, len: usize) -> [u8; OFFLOAD_BYTES] {
        let mut words = [0; OFFLOAD_BYTES];
        words[..VNET_BYTES].copy_from_slice(&self.to_kernel());
        let segments = if self.is_none() {
            0
        } else {
            self.segments(len) as u16
        };
        words[VNET_BYTES..][..2].copy_from_slice(&segments.to_le_bytes());
        words
    }

    /// The header with which a tap or a packet socket takes the frame.
    #[inline]
    #[must_use]
    pub fn to_kernel(&self) -> [u8; VNET_BYTES] {
        let mut header = [0; VNET_BYTES];
        (header[0], header[1]) = (self.flags, self.gso_type);
        let halves = [
            self.header_len,
            self.gso_size,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (bytes, half) in header[2..].chunks_exact_mut(2).zip(halves) {
            bytes.copy_from_slice(&half.to_le_bytes());
        }
        header
    }

    /// Returns true if nothing is missing.
    #[inline]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.flags == 0
    }

    /// The level that a receiver of the frame must have.
    #[inline]
    #[must_use]
    pub const fn level(&self) -> Level {
        match (self.flags, self.gso_type) {
            (0, _) => Level::Plain,
            (_, 0) => Level::Checksums,
            _ => Level::Super,
        }
    }

    /// The checksum that is missing.
    #[inline]
    #[must_use]
    pub const fn checksum(&self) -> Option<PartialChecksum> {
        if self.is_none() {
            return None;
        }
        Some(PartialChecksum {
            start: self.checksum_start as usize,
            offset: self.checksum_offset as usize,
        })
    }

    /// How the frame is to be cut; `None`: it is one packet.
    #[inline]
    #[must_use]
    pub const fn segmentation(&self) -> Option<Segmentation> {
        let kind = match self.gso_type & !ECN {
            TCP_V4 => SegmentKind::TcpV4,
            TCP_V6 => SegmentKind::TcpV6,
            UDP => SegmentKind::Udp,
            _ => return None,
        };
        Some(Segmentation {
            kind,
            header_len: self.header_len as usize,
            payload_len: self.gso_size as usize,
            is_ecn: self.gso_type & ECN != 0,
        })
    }

    /// The number of packets that the frame of `len` bytes will be.
    #[inline]
    #[must_use]
    pub const fn segments(&self, len: usize) -> usize {
        match self.gso_size as usize {
            0 => 1,
            size => len.saturating_sub(self.header_len as usize).div_ceil(size),
        }
    }

    /// The bytes of all these packets together.
    #[inline]
    #[must_use]
    pub const fn wire_len(&self, len: usize) -> usize {
        let segments = self.segments(len);
        len + segments.saturating_sub(1) * self.header_len as usize
    }

    /// The bytes of the longest of these packets.
    #[inline]
    #[must_use]
    pub const fn packet_len(&self, len: usize) -> usize {
        if self.gso_size == 0 {
            return len;
        }
        let full = self.header_len as usize + self.gso_size as usize;
        if len < full { len } else { full }
    }

    /// The same for a frame in which the headers have moved by `bytes` to the end of the frame (a tag was pushed;
    /// negative: a tag was pulled). `None`: the headers would be too long, or begin within the Ethernet header.
    #[inline]
    #[must_use]
    pub fn moved(self, bytes: isize) -> Option<Self> {
        if self.is_none() {
            return Some(self);
        }
        let step = |at: u16| usize::from(at).checked_add_signed(bytes);
        let start =
            step(self.checksum_start).filter(|at| (FRAME_MIN..=HEADERS_MAX).contains(at))?;
        let headers = match self.header_len {
            0 => 0,
            len => step(len).filter(|len| *len <= HEADERS_MAX)?,
        };
        Some(Offload {
            checksum_start: start as u16,
            header_len: headers as u16,
            ..self
        })
    }
}

const _: () = assert!(LONG_MAX.div_ceil(TCP_SEGMENT_MIN) <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Segmentation = Segmentation {
        kind: SegmentKind::TcpV4,
        header_len: 66,
        payload_len: 1448,
        is_ecn: true,
    };

    #[test]
    fn what_a_super_frame_becomes_is_counted() {
        let offload = Offload::segmented(34, CUT);
        let len = 66 + 2 * 1448 + 1;
        assert_eq!(offload.segments(len), 3);
        assert_eq!(offload.wire_len(len), len + 2 * 66);
        assert_eq!(offload.packet_len(len), 1514);
        assert_eq!(offload.packet_len(100), 100);
        assert_eq!(offload.segmentation(), Some(CUT));
        assert_eq!(offload.level(), Level::Super);
        assert_eq!(
            (Offload::NONE.segments(60), Offload::NONE.wire_len(60)),
            (1, 60)
        );
    }

    /// A name, and a change of the words beside a frame.
    type Lie = (&'static str, fn(&mut [u8; OFFLOAD_BYTES]));

    // promise: 1.44
    #[test]
    fn words_are_read_back_and_those_that_lie_are_refused() {
        let len = 3000;
        let good = Offload::segmented(34, CUT).words(len);
        assert_eq!(Offload::check(good, len), Ok(Offload::segmented(34, CUT)));
        let lies: [Lie; 14] = [
            ("unknown flag", |w| w[0] |= 4),
            ("segments without a checksum", |w| w[0] = 0),
            ("unknown type", |w| w[1] = 2),
            ("headers before the transport's end", |w| w[2] = 53),
            ("no headers", |w| w[2] = 0),
            ("headers too long", |w| w[3] = 2),
            ("segments too short", |w| (w[4], w[5]) = (47, 0)),
            ("no segments", |w| (w[4], w[5]) = (0, 0)),
            ("start within the Ethernet header", |w| w[6] = 13),
            ("start far away", |w| w[7] = 2),
            ("checksum elsewhere", |w| w[8] = 17),
            ("checksum of UDP", |w| w[8] = 6),
            ("checksum far away", |w| w[9] = 1),
            ("UDP with the headers of TCP", |w| (w[1], w[8]) = (5, 6)),
        ];
        for (what, lie) in lies {
            let mut words = good;
            lie(&mut words);
            assert_eq!(Offload::check(words, len), Err(BadOffload), "{what}");
        }
        assert_eq!(Offload::check(good, 66), Err(BadOffload), "no payload");
        assert_eq!(Offload::check([0; 16], 60), Ok(Offload::NONE));
    }

    #[test]
    fn a_checksum_alone_forgets_what_is_said_of_segments() {
        let checksum = PartialChecksum {
            start: 34,
            offset: 6,
        };
        let mut words = Offload::partial_checksum(checksum).words(60);
        words[2..6].copy_from_slice(&[9, 9, 9, 9]);
        let read = Offload::check(words, 60).expect("a checksum");
        assert_eq!(read, Offload::partial_checksum(checksum));
        assert_eq!(Offload::check(words, 41), Err(BadOffload), "behind the end");
        assert!(Offload::check(words, 42).is_ok());
    }

    #[test]
    fn a_verified_checksum_is_a_complete_one() {
        let mut header = [0; VNET_BYTES];
        header[0] = CHECKSUM_VALID;
        assert_eq!(Offload::from_kernel(header, &[0; 60]), Ok(Offload::NONE));
    }

    #[test]
    fn the_length_of_the_headers_is_read_from_the_frame() {
        let mut frame = [0; 4000];
        frame[34 + 12] = 8 << 4;
        let good = Offload::segmented(34, CUT);
        for hint in [0, 42, 54, 4000] {
            let mut header = good.to_kernel();
            header[2..4].copy_from_slice(&u16::to_le_bytes(hint));
            assert_eq!(Offload::from_kernel(header, &frame), Ok(good), "{hint}");
        }
        frame[34 + 12] = 4 << 4;
        assert_eq!(
            Offload::from_kernel(good.to_kernel(), &frame),
            Err(BadOffload)
        );
        assert_eq!(
            Offload::from_kernel(good.to_kernel(), &frame[..40]),
            Err(BadOffload)
        );
        assert_eq!(
            Offload::from_kernel([0xff; VNET_BYTES], &frame),
            Err(BadOffload)
        );
    }

    #[test]
    fn headers_move_with_a_tag() {
        let offload = Offload::segmented(34, CUT);
        let moved = offload.moved(4).expect("there is room");
        assert_eq!(moved.checksum().expect("partial").start, 38);
        assert_eq!(moved.segmentation().expect("super").header_len, 70);
        assert_eq!(moved.moved(-4), Some(offload));
        assert_eq!(offload.moved(-21), None);
        assert_eq!(offload.moved(200), None);
        assert_eq!(Offload::NONE.moved(4), Some(Offload::NONE));
    }
}
