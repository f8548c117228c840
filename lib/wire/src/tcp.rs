//! TCP segments (RFC 9293): header, flags and the maximum segment size option.

use core::fmt;
use core::ops::{BitAnd, BitOr, Not, Range};

use crate::be;
use crate::checksum::{self, ChecksumState, Delta, TransportDelta};
use crate::view::view;
use crate::{ParseError, TlvOptions};

/// Bytes of a TCP header without options.
pub const HEADER_LEN: usize = 20;

/// Where the checksum is in the header, in bytes.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

mod field {
    use core::ops::Range;
    pub const SRC_PORT: Range<usize> = 0..2;
    pub const DST_PORT: Range<usize> = 2..4;
    pub const SEQUENCE: Range<usize> = 4..8;
    pub const ACKNOWLEDGMENT: Range<usize> = 8..12;
    pub const DATA_OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const WINDOW: Range<usize> = 14..16;
    pub const CHECKSUM: Range<usize> = 16..18;
    pub const URGENT: Range<usize> = 18..20;
}

/// Option kinds.
pub mod option_kind {
    /// Maximum segment size.
    pub const MSS: u8 = 2;
    /// Window scale.
    pub const WINDOW_SCALE: u8 = 3;
    /// Selective acknowledgment permitted.
    pub const SACK_PERMITTED: u8 = 4;
    /// Selective acknowledgment.
    pub const SACK: u8 = 5;
    /// Timestamps.
    pub const TIMESTAMPS: u8 = 8;
}

/// The eight control bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    const NAMES: [(Self, &'static str); 8] = [
        (Self::FIN, "fin"),
        (Self::SYN, "syn"),
        (Self::RST, "rst"),
        (Self::PSH, "psh"),
        (Self::ACK, "ack"),
        (Self::URG, "urg"),
        (Self::ECE, "ece"),
        (Self::CWR, "cwr"),
    ];

    /// All of `flags` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// At least one of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// The flag with this lower-case name (`syn`, `ack`, ...).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map(|&(flag, _)| flag)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for TcpFlags {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for TcpFlags {
    type Output = Self;
    #[inline]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (flag, name) in Self::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
        }
        if self.0 == 0 {
            f.write_str("none")
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

view! {
    /// View of a TCP segment; the buffer is the whole IP payload.
    TcpPacket
}

impl<T: AsRef<[u8]>> TcpPacket<T> {
    /// # Errors
    /// [`ParseError::TcpTruncated`] below 20 bytes; [`ParseError::TcpBadDataOffset`] if the data
    /// offset is below 20 or beyond the buffer.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let data = self.data();
        if data.len() < HEADER_LEN {
            return Err(ParseError::TcpTruncated);
        }
        if self.header_len() < HEADER_LEN || self.header_len() > data.len() {
            return Err(ParseError::TcpBadDataOffset);
        }
        Ok(())
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be::get_u16(self.data(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be::get_u16(self.data(), field::DST_PORT)
    }

    /// Sequence number.
    #[inline]
    pub fn seq(&self) -> u32 {
        be::get_u32(self.data(), field::SEQUENCE)
    }

    /// Acknowledgment number; significant with [`TcpFlags::ACK`].
    #[inline]
    pub fn ack(&self) -> u32 {
        be::get_u32(self.data(), field::ACKNOWLEDGMENT)
    }

    /// Header length in bytes, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.data()[field::DATA_OFFSET] >> 4) * 4
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.data()[field::FLAGS])
    }

    /// Window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be::get_u16(self.data(), field::WINDOW)
    }

    /// Checksum field as it stands in the segment.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be::get_u16(self.data(), field::CHECKSUM)
    }

    /// Urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        be::get_u16(self.data(), field::URGENT)
    }

    /// Iterates over the options; kinds are in [`option_kind`].
    #[inline]
    pub fn options(&self) -> TlvOptions<'_> {
        TlvOptions::new(&self.data()[HEADER_LEN..self.header_len()])
    }

    /// The maximum segment size option, if present and whole.
    #[inline]
    pub fn mss(&self) -> Option<u16> {
        self.mss_field()
            .map(|field| be::get_u16(self.data(), field))
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.data()[self.header_len()..]
    }

    /// Returns false if the checksum is wrong for this pseudo-header sum ([`checksum::pseudo_header_v4`] or `_v6`). A
    /// partial checksum is never wrong.
    #[inline]
    pub fn verify_checksum(&self, pseudo_header: u16, state: ChecksumState) -> bool {
        state == ChecksumState::Partial || self.sum(pseudo_header) == 0xffff
    }

    #[inline]
    fn sum(&self, pseudo_header: u16) -> u16 {
        checksum::combine(&[pseudo_header, checksum::sum(self.data())])
    }

    fn mss_field(&self) -> Option<Range<usize>> {
        let mss = self
            .options()
            .find(|option| option.kind == option_kind::MSS && option.data.len() == 2)?;
        let start = HEADER_LEN + mss.data_offset;
        Some(start..start + 2)
    }
}

/// Setters leave the checksum as it is, except [`TcpPacket::clamp_mss`].
impl<T: AsRef<[u8]> + AsMut<[u8]>> TcpPacket<T> {
    /// Sets the source port.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        be::set_u16(self.buffer.as_mut(), field::SRC_PORT, port);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        be::set_u16(self.buffer.as_mut(), field::DST_PORT, port);
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: u32) {
        be::set_u32(self.buffer.as_mut(), field::SEQUENCE, seq);
    }

    /// Sets the acknowledgment number.
    #[inline]
    pub fn set_ack(&mut self, ack: u32) {
        be::set_u32(self.buffer.as_mut(), field::ACKNOWLEDGMENT, ack);
    }

    /// Sets the header length in bytes: 20 to 60, a multiple of 4; clears the reserved bits.
    #[inline]
    pub fn set_header_len(&mut self, header_len: usize) {
        self.buffer.as_mut()[field::DATA_OFFSET] = ((header_len / 4) as u8) << 4;
    }

    /// Sets the control bits.
    #[inline]
    pub fn set_flags(&mut self, flags: TcpFlags) {
        self.buffer.as_mut()[field::FLAGS] = flags.0;
    }

    /// Sets the window.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        be::set_u16(self.buffer.as_mut(), field::WINDOW, window);
    }

    /// Sets the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        be::set_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }

    /// Sets the urgent pointer.
    #[inline]
    pub fn set_urgent(&mut self, urgent: u16) {
        be::set_u16(self.buffer.as_mut(), field::URGENT, urgent);
    }

    /// Updates the checksum after a change.
    #[inline]
    pub fn update_checksum(&mut self, change: TransportDelta, state: ChecksumState) {
        self.set_checksum(change.apply(self.checksum(), state));
    }

    /// Sets the checksum for this pseudo-header sum: computes a complete one over the whole buffer, or sets the sum
    /// itself as a partial one.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo_header: u16, state: ChecksumState) {
        if state == ChecksumState::Partial {
            return self.set_checksum(pseudo_header);
        }
        self.set_checksum(0);
        let checksum = !self.sum(pseudo_header);
        self.set_checksum(checksum);
    }

    /// Lowers the maximum segment size option to at most `mss_max`, updates the checksum, and
    /// returns whether it had to (RFC 4459 section 3.2: clamping for a path with a smaller MTU).
    #[inline]
    pub fn clamp_mss(&mut self, mss_max: u16, state: ChecksumState) -> bool {
        let Some(field) = self.mss_field() else {
            return false;
        };
        let old = be::get_u16(self.data(), field.clone());
        if old <= mss_max {
            return false;
        }
        let delta = if field.start % 2 == 0 {
            Delta::new().replace_u16(old, mss_max)
        } else {
            // The option straddles two checksum words: RFC 1071 section 2(B), swapped bytes give
            // the swapped sum.
            Delta::new().replace_u16(old.swap_bytes(), mss_max.swap_bytes())
        };
        be::set_u16(self.buffer.as_mut(), field, mss_max);
        self.update_checksum(TransportDelta::new(Delta::new(), delta), state);
        true
    }

    /// The payload, to be written.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let start = self.header_len();
        &mut self.buffer.as_mut()[start..]
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn flags() {
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        assert_eq!(flags.to_string(), "syn,ack");
        assert_eq!(TcpFlags::NONE.to_string(), "none");
        assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::RST));
        assert!(flags.intersects(TcpFlags::SYN | TcpFlags::RST));
        assert_eq!(flags & !TcpFlags::ACK, TcpFlags::SYN);
        for (flag, name) in TcpFlags::NAMES {
            assert_eq!(TcpFlags::from_name(name), Some(flag));
            assert_eq!(flag.to_string(), name);
        }
        assert_eq!(TcpFlags::from_name("SYN"), None);
    }

    #[test]
    fn refusals() {
        let check = |offset: u8, length: usize| {
            let mut segment = [0; 64];
            segment[12] = offset << 4;
            TcpPacket::new_checked(&segment[..length]).map(drop)
        };
        assert_eq!(check(5, 20), Ok(()));
        assert_eq!(check(15, 60), Ok(()));
        assert_eq!(check(5, 19), Err(ParseError::TcpTruncated));
        assert_eq!(check(4, 20), Err(ParseError::TcpBadDataOffset));
        assert_eq!(check(6, 23), Err(ParseError::TcpBadDataOffset));
    }

    #[test]
    fn segment_size_option_of_a_wrong_length_is_not_one() {
        let mut segment = [0; 28];
        segment[20..].copy_from_slice(&[2, 3, 0xff, 2, 4, 0x05, 0xb4, 0]);
        let mut packet = TcpPacket::new_unchecked(segment);
        packet.set_header_len(28);
        assert_eq!(packet.mss(), Some(1460));
        packet.set_header_len(24);
        assert_eq!(packet.mss(), None, "cut off by the header's end");
        assert!(!packet.clamp_mss(1, ChecksumState::Complete));
    }

    /// Catches: a clamped option that is worked into a partial checksum, which does not cover it.
    #[test]
    fn clamping_leaves_a_partial_checksum_alone() {
        let mut segment = [0; 24];
        segment[20..].copy_from_slice(&[2, 4, 0x05, 0xb4]);
        let mut packet = TcpPacket::new_unchecked(segment);
        packet.set_header_len(24);
        packet.fill_checksum(0x1234, ChecksumState::Partial);
        assert!(packet.clamp_mss(1000, ChecksumState::Partial));
        assert_eq!((packet.mss(), packet.checksum()), (Some(1000), 0x1234));
        assert!(packet.verify_checksum(0x4321, ChecksumState::Partial));
        packet.fill_checksum(0x1234, ChecksumState::Complete);
        assert!(packet.clamp_mss(900, ChecksumState::Complete));
        assert!(packet.verify_checksum(0x1234, ChecksumState::Complete));
    }
}
