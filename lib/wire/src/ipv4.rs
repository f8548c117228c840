//! IPv4 packets (RFC 791).

use core::net::Ipv4Addr;

use crate::be;
use crate::checksum::{self, Delta};
use crate::ip::Ecn;
use crate::view::view;
use crate::{IpProtocol, ParseError, TlvOptions};

/// Bytes of an IPv4 header without options.
pub const HEADER_LEN: usize = 20;

mod field {
    use core::ops::Range;
    pub const VERSION_IHL: usize = 0;
    pub const TOS: usize = 1;
    pub const TOTAL_LENGTH: Range<usize> = 2..4;
    pub const IDENTIFICATION: Range<usize> = 4..6;
    pub const FLAGS_OFFSET: Range<usize> = 6..8;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const TTL_PROTOCOL: Range<usize> = 8..10;
    pub const CHECKSUM: Range<usize> = 10..12;
    pub const SRC: Range<usize> = 12..16;
    pub const DST: Range<usize> = 16..20;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

view! {
    /// View of an IPv4 packet. The buffer may be longer than the packet (Ethernet padding);
    /// `payload()` ends where the total length says.
    Ipv4Packet
}

impl<T: AsRef<[u8]>> Ipv4Packet<T> {
    /// # Errors
    /// Refuses a buffer below 20 bytes, a version other than 4, a header length below 20 or
    /// beyond the total length, and a total length beyond the buffer. Does not look at the
    /// header checksum: see [`Ipv4Packet::verify_checksum`].
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let data = self.data();
        if data.len() < HEADER_LEN {
            return Err(ParseError::Ipv4Truncated);
        }
        if self.version() != 4 {
            return Err(ParseError::Ipv4BadVersion);
        }
        let total_len = usize::from(self.total_len());
        if self.header_len() < HEADER_LEN || self.header_len() > total_len {
            return Err(ParseError::Ipv4BadHeaderLength);
        }
        if total_len > data.len() {
            return Err(ParseError::Ipv4BadTotalLength);
        }
        Ok(())
    }

    /// Version, 4.
    #[inline]
    pub fn version(&self) -> u8 {
        self.data()[field::VERSION_IHL] >> 4
    }

    /// Header length in bytes, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.data()[field::VERSION_IHL] & 0xf) * 4
    }

    /// Type of service byte: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.data()[field::TOS]
    }

    /// Differentiated services code point, 0 to 63 (RFC 2474).
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// Explicit congestion notification (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.tos())
    }

    /// Total length in bytes, header included.
    #[inline]
    pub fn total_len(&self) -> u16 {
        be::get_u16(self.data(), field::TOTAL_LENGTH)
    }

    /// Identification.
    #[inline]
    pub fn ident(&self) -> u16 {
        be::get_u16(self.data(), field::IDENTIFICATION)
    }

    /// Don't-fragment flag.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset() & DONT_FRAGMENT != 0
    }

    /// More-fragments flag.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.flags_offset() & MORE_FRAGMENTS != 0
    }

    /// Fragment offset in bytes, a multiple of 8.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.flags_offset() & OFFSET_MASK) << 3
    }

    /// True for every fragment, the first and the last included.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.data()[field::TTL]
    }

    /// Protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.data()[field::PROTOCOL])
    }

    /// Header checksum as it stands in the packet.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be::get_u16(self.data(), field::CHECKSUM)
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be::get_u32(self.data(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be::get_u32(self.data(), field::DST))
    }

    /// Iterates over the options.
    #[inline]
    pub fn options(&self) -> TlvOptions<'_> {
        TlvOptions::new(&self.data()[HEADER_LEN..self.header_len()])
    }

    /// The header, options included.
    #[inline]
    pub fn header(&self) -> &[u8] {
        &self.data()[..self.header_len()]
    }

    /// The payload, without padding of the link layer.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.data()[self.header_len()..usize::from(self.total_len())]
    }

    /// True if the header checksum is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        checksum::sum(self.header()) == 0xffff
    }

    /// Sum of the pseudo-header for the payload as one transport message.
    #[inline]
    pub fn pseudo_header(&self) -> u16 {
        let length = self.payload().len() as u32;
        checksum::pseudo_header_v4(self.src(), self.dst(), self.protocol().0, length)
    }

    #[inline]
    fn flags_offset(&self) -> u16 {
        be::get_u16(self.data(), field::FLAGS_OFFSET)
    }
}

/// Setters leave the checksum as it is; call [`Ipv4Packet::fill_checksum`] after the last one, or
/// [`Ipv4Packet::update_checksum`].
impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<T> {
    /// Sets version 4 and the header length in bytes: 20 to 60, a multiple of 4.
    #[inline]
    pub fn set_version_and_header_len(&mut self, header_len: usize) {
        self.buffer.as_mut()[field::VERSION_IHL] = 0x40 | (header_len / 4) as u8 & 0xf;
    }

    /// Sets the type of service byte.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.buffer.as_mut()[field::TOS] = tos;
    }

    /// Sets the total length in bytes, header included.
    #[inline]
    pub fn set_total_len(&mut self, length: u16) {
        be::set_u16(self.buffer.as_mut(), field::TOTAL_LENGTH, length);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, ident: u16) {
        be::set_u16(self.buffer.as_mut(), field::IDENTIFICATION, ident);
    }

    /// Sets all fragmentation fields; `offset` in bytes is cut to a multiple of 8.
    #[inline]
    pub fn set_fragmentation(&mut self, dont_fragment: bool, more_fragments: bool, offset: u16) {
        let flags = if dont_fragment { DONT_FRAGMENT } else { 0 }
            | if more_fragments { MORE_FRAGMENTS } else { 0 };
        be::set_u16(
            self.buffer.as_mut(),
            field::FLAGS_OFFSET,
            flags | offset >> 3,
        );
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.buffer.as_mut()[field::TTL] = ttl;
    }

    /// Sets the protocol.
    #[inline]
    pub fn set_protocol(&mut self, protocol: IpProtocol) {
        self.buffer.as_mut()[field::PROTOCOL] = protocol.0;
    }

    /// Sets the header checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        be::set_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&address.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&address.octets());
    }

    /// Updates the header checksum after a change.
    #[inline]
    pub fn update_checksum(&mut self, change: Delta) {
        self.set_checksum(change.apply(self.checksum()));
    }

    /// Computes and sets the header checksum.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = checksum::checksum(self.header());
        self.set_checksum(checksum);
    }

    /// Takes one hop off the time to live and updates the checksum incrementally (RFC 1624).
    /// Returns the new value, or `None` with the packet unchanged if it was zero already.
    ///
    /// A forwarder drops the packet when this gives `None` or `Some(0)` (RFC 1812 section 5.3.1).
    #[inline]
    pub fn decrement_ttl(&mut self) -> Option<u8> {
        let ttl = self.ttl().checked_sub(1)?;
        let old = be::get_u16(self.data(), field::TTL_PROTOCOL);
        self.set_ttl(ttl);
        self.update_checksum(Delta::new().replace_u16(old, old - 0x0100));
        Some(ttl)
    }

    /// Marks congestion experienced and updates the checksum, if the sender is ECN-capable;
    /// returns whether it is.
    #[inline]
    pub fn mark_congestion(&mut self) -> bool {
        if self.ecn() == Ecn::NotCapable {
            return false;
        }
        let word = field::VERSION_IHL..field::TOS + 1;
        let old = be::get_u16(self.data(), word.clone());
        be::set_u16(self.buffer.as_mut(), word, old | 3);
        self.update_checksum(Delta::new().replace_u16(old, old | 3));
        true
    }

    /// The payload, to be written.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = self.header_len()..usize::from(self.total_len());
        &mut self.buffer.as_mut()[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header whose checksum was worked out by hand.
    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x14, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0xc0, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    fn check(change: impl Fn(&mut [u8; 20])) -> Result<(), ParseError> {
        let mut header = HEADER;
        change(&mut header);
        Ipv4Packet::new_checked(header).map(drop)
    }

    #[test]
    fn fields() {
        let packet = Ipv4Packet::new_checked(HEADER).expect("a header");
        assert!(packet.verify_checksum());
        assert_eq!(packet.src(), Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(packet.dst(), Ipv4Addr::new(192, 168, 0, 199));
        assert_eq!((packet.ttl(), packet.protocol()), (64, IpProtocol::UDP));
        assert!(packet.dont_fragment() && !packet.is_fragment());
        assert_eq!(packet.payload(), &[] as &[u8]);
    }

    #[test]
    fn refusals() {
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|h| h[0] = 0x65), Err(ParseError::Ipv4BadVersion));
        assert_eq!(check(|h| h[0] = 0x44), Err(ParseError::Ipv4BadHeaderLength));
        assert_eq!(check(|h| h[0] = 0x46), Err(ParseError::Ipv4BadHeaderLength));
        assert_eq!(check(|h| h[3] = 19), Err(ParseError::Ipv4BadHeaderLength));
        assert_eq!(check(|h| h[3] = 21), Err(ParseError::Ipv4BadTotalLength));
        let short = Ipv4Packet::new_checked(&HEADER[..19]).map(drop);
        assert_eq!(short, Err(ParseError::Ipv4Truncated));
    }

    #[test]
    fn hop_is_taken_off_for_every_ttl_and_checksum() {
        for ttl in 0..=255 {
            for ident in [0, 1, 0x47c0, 0xb861, 0xfffe, 0xffff] {
                let mut packet = Ipv4Packet::new_checked(HEADER).expect("a header");
                packet.set_ttl(ttl);
                packet.set_ident(ident);
                packet.fill_checksum();
                let before = packet;
                assert_eq!(packet.decrement_ttl(), ttl.checked_sub(1));
                if ttl == 0 {
                    assert_eq!(packet, before);
                }
                let updated = packet.checksum();
                packet.fill_checksum();
                assert_eq!(packet.checksum(), updated, "ttl {ttl}, ident {ident:#x}");
            }
        }
    }

    #[test]
    fn congestion_is_marked_only_where_the_sender_takes_part() {
        for (tos, marked) in [(0x00, false), (0x01, true), (0x02, true), (0x03, true)] {
            let mut packet = Ipv4Packet::new_checked(HEADER).expect("a header");
            packet.set_tos(0xb8 | tos);
            packet.fill_checksum();
            assert_eq!(packet.mark_congestion(), marked);
            assert_eq!(packet.tos(), 0xb8 | if marked { 3 } else { tos });
            assert!(packet.verify_checksum());
        }
    }

    #[test]
    fn options_are_listed() {
        let mut packet = [0; 28];
        packet[..20].copy_from_slice(&HEADER);
        packet[20..].copy_from_slice(&[1, 0x94, 4, 0, 0, 0, 9, 9]);
        let mut packet = Ipv4Packet::new_unchecked(packet);
        packet.set_version_and_header_len(28);
        packet.set_total_len(28);
        assert_eq!(packet.check(), Ok(()));
        let mut options = packet.options();
        let alert = options.next().expect("router alert");
        assert_eq!(
            (alert.kind, alert.data_offset, alert.data),
            (0x94, 3, &[0, 0][..])
        );
        assert_eq!(options.next(), None);
        assert!(!options.is_malformed());
    }
}
