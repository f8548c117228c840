//! UDP (RFC 768).

use crate::ParseError;
use crate::be;
use crate::checksum::{self, ChecksumState, TransportDelta};
use crate::view::view;

/// Bytes of a UDP header.
pub const HEADER_LEN: usize = 8;

/// Where the checksum is in the header, in bytes.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

mod field {
    use core::ops::Range;
    pub const SRC_PORT: Range<usize> = 0..2;
    pub const DST_PORT: Range<usize> = 2..4;
    pub const LENGTH: Range<usize> = 4..6;
    pub const CHECKSUM: Range<usize> = 6..8;
}

view! {
    /// View of a UDP datagram; the buffer is the IP payload and may be longer than the datagram.
    UdpPacket
}

impl<T: AsRef<[u8]>> UdpPacket<T> {
    /// # Errors
    /// [`ParseError::UdpTruncated`] below 8 bytes; [`ParseError::UdpBadLength`] if the length
    /// field is below 8 or beyond the buffer. Wrong for the first fragment of a datagram, whose
    /// length field counts the other fragments too.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let data = self.data();
        if data.len() < HEADER_LEN {
            return Err(ParseError::UdpTruncated);
        }
        let length = usize::from(self.length());
        if length < HEADER_LEN || length > data.len() {
            return Err(ParseError::UdpBadLength);
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

    /// Length in bytes, header included.
    #[inline]
    pub fn length(&self) -> u16 {
        be::get_u16(self.data(), field::LENGTH)
    }

    /// Checksum field as it stands in the datagram; 0 in a complete one means that the sender computed none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be::get_u16(self.data(), field::CHECKSUM)
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.data()[HEADER_LEN..usize::from(self.length())]
    }

    /// Returns false if the checksum is wrong for this pseudo-header sum ([`checksum::pseudo_header_v4`] or `_v6` with
    /// [`UdpPacket::length`]). A partial checksum, or none, is never wrong. IPv6 forbids the absence of a checksum
    /// (RFC 8200 section 8.1): the caller knows the version.
    #[inline]
    pub fn verify_checksum(&self, pseudo_header: u16, state: ChecksumState) -> bool {
        state == ChecksumState::Partial || self.checksum() == 0 || self.sum(pseudo_header) == 0xffff
    }

    #[inline]
    fn sum(&self, pseudo_header: u16) -> u16 {
        let datagram = &self.data()[..usize::from(self.length())];
        checksum::combine(&[pseudo_header, checksum::sum(datagram)])
    }
}

/// Setters leave the checksum as it is.
impl<T: AsRef<[u8]> + AsMut<[u8]>> UdpPacket<T> {
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

    /// Sets the length in bytes, header included.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        be::set_u16(self.buffer.as_mut(), field::LENGTH, length);
    }

    /// Sets the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        be::set_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }

    /// Updates the checksum after a change.
    #[inline]
    pub fn update_checksum(&mut self, change: TransportDelta, state: ChecksumState) {
        self.set_checksum(change.apply_udp(self.checksum(), state));
    }

    /// Sets the checksum for this pseudo-header sum: computes a complete one, of which a result of 0 is sent as
    /// 0xffff, or sets the sum itself as a partial one.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo_header: u16, state: ChecksumState) {
        if state == ChecksumState::Partial {
            return self.set_checksum(pseudo_header);
        }
        self.set_checksum(0);
        let checksum = checksum::never_zero(!self.sum(pseudo_header));
        self.set_checksum(checksum);
    }

    /// The payload, to be written.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = HEADER_LEN..usize::from(self.length());
        &mut self.buffer.as_mut()[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_field_bounds_the_payload() {
        let mut datagram = [0, 1, 0, 2, 0, 10, 0, 0, 0xaa, 0xbb, 0xcc];
        let packet = UdpPacket::new_checked(datagram).expect("a datagram");
        assert_eq!((packet.src_port(), packet.dst_port()), (1, 2));
        assert_eq!(packet.payload(), [0xaa, 0xbb], "padding is not payload");
        for (length, result) in [(8, Ok(())), (11, Ok(())), (7, Err(())), (12, Err(()))] {
            datagram[5] = length;
            let checked = UdpPacket::new_checked(datagram).map(drop);
            assert_eq!(
                checked,
                result.map_err(|()| ParseError::UdpBadLength),
                "{length}"
            );
        }
        let short = UdpPacket::new_checked(&datagram[..7]).map(drop);
        assert_eq!(short, Err(ParseError::UdpTruncated));
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        let mut packet = UdpPacket::new_unchecked([0; 8]);
        packet.set_length(8);
        // The sum of everything but the pseudo-header is 8; this makes it 0xffff.
        packet.fill_checksum(0xfff7, ChecksumState::Complete);
        assert_eq!(packet.checksum(), 0xffff);
        let is_right =
            |packet: UdpPacket<[u8; 8]>, sum| packet.verify_checksum(sum, ChecksumState::Complete);
        assert!(is_right(packet, 0xfff7) && !is_right(packet, 0xfff6));
        packet.set_checksum(0);
        assert!(is_right(packet, 0xfff6), "no checksum, nothing to be wrong");
    }

    /// Catches: a partial checksum that is taken for corruption.
    #[test]
    fn a_partial_checksum_is_the_sum_and_never_wrong() {
        let mut packet = UdpPacket::new_unchecked([0xab; 8]);
        packet.set_length(8);
        packet.fill_checksum(0x1234, ChecksumState::Partial);
        assert_eq!(packet.checksum(), 0x1234);
        assert!(packet.verify_checksum(0x1234, ChecksumState::Partial));
        assert!(packet.verify_checksum(0x9999, ChecksumState::Partial));
        assert!(!packet.verify_checksum(0x1234, ChecksumState::Complete));
    }
}
