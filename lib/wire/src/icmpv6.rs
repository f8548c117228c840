//! ICMP for IPv6 (RFC 4443). The checksum covers the IPv6 pseudo-header.

use core::net::Ipv6Addr;

use crate::be;
use crate::checksum;
use crate::view::view;
use crate::{IpProtocol, ParseError};

/// Bytes of the header: type, code, checksum, four bytes of the type's own.
pub const HEADER_LEN: usize = 8;

mod field {
    use core::ops::Range;
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const CHECKSUM: Range<usize> = 2..4;
    pub const REST: Range<usize> = 4..8;
    pub const ECHO_IDENT: Range<usize> = 4..6;
    pub const ECHO_SEQUENCE: Range<usize> = 6..8;
    pub const MTU: Range<usize> = 4..8;
}

/// ICMPv6 message type, from IANA's "ICMPv6 Parameters".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Icmpv6Type(pub u8);

impl Icmpv6Type {
    /// Destination unreachable.
    pub const DEST_UNREACHABLE: Self = Self(1);
    /// Packet too big.
    pub const PACKET_TOO_BIG: Self = Self(2);
    /// Time exceeded.
    pub const TIME_EXCEEDED: Self = Self(3);
    /// Parameter problem.
    pub const PARAM_PROBLEM: Self = Self(4);
    /// Echo request.
    pub const ECHO_REQUEST: Self = Self(128);
    /// Echo reply.
    pub const ECHO_REPLY: Self = Self(129);
    /// Multicast listener query.
    pub const MLD_QUERY: Self = Self(130);
    /// Multicast listener report.
    pub const MLD_REPORT: Self = Self(131);
    /// Multicast listener done.
    pub const MLD_DONE: Self = Self(132);
    /// Router solicitation.
    pub const ROUTER_SOLICIT: Self = Self(133);
    /// Router advertisement.
    pub const ROUTER_ADVERT: Self = Self(134);
    /// Neighbour solicitation.
    pub const NEIGHBOR_SOLICIT: Self = Self(135);
    /// Neighbour advertisement.
    pub const NEIGHBOR_ADVERT: Self = Self(136);
    /// Redirect.
    pub const REDIRECT: Self = Self(137);
    /// Multicast listener report, version 2.
    pub const MLDV2_REPORT: Self = Self(143);

    /// An error message, which quotes the packet it is about. Never answer one with another.
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 < 128
    }

    /// Echo request or reply, which carry an identifier.
    #[inline]
    #[must_use]
    pub const fn has_ident(self) -> bool {
        matches!(self, Self::ECHO_REQUEST | Self::ECHO_REPLY)
    }
}

/// Codes of [`Icmpv6Type::DEST_UNREACHABLE`].
pub mod unreachable_code {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Administratively prohibited.
    pub const ADMIN_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host does not answer.
    pub const ADDRESS: u8 = 3;
    /// No such port.
    pub const PORT: u8 = 4;
}

/// Codes of [`Icmpv6Type::TIME_EXCEEDED`].
pub mod time_exceeded_code {
    /// Hop limit exceeded in transit.
    pub const HOP_LIMIT: u8 = 0;
    /// Fragment reassembly time exceeded.
    pub const REASSEMBLY: u8 = 1;
}

view! {
    /// View of an ICMPv6 message; the buffer is the whole upper-layer payload.
    Icmpv6Packet
}

impl<T: AsRef<[u8]>> Icmpv6Packet<T> {
    /// # Errors
    /// [`ParseError::Icmpv6Truncated`] below 8 bytes.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        if self.data().len() < HEADER_LEN {
            Err(ParseError::Icmpv6Truncated)
        } else {
            Ok(())
        }
    }

    /// Message type.
    #[inline]
    pub fn msg_type(&self) -> Icmpv6Type {
        Icmpv6Type(self.data()[field::TYPE])
    }

    /// Message code.
    #[inline]
    pub fn code(&self) -> u8 {
        self.data()[field::CODE]
    }

    /// Checksum as it stands in the message.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be::get_u16(self.data(), field::CHECKSUM)
    }

    /// The four bytes whose meaning depends on the type.
    #[inline]
    pub fn rest(&self) -> [u8; 4] {
        be::get_array(self.data(), field::REST)
    }

    /// Identifier of an echo request or reply.
    #[inline]
    pub fn echo_ident(&self) -> u16 {
        be::get_u16(self.data(), field::ECHO_IDENT)
    }

    /// Sequence number of an echo request or reply.
    #[inline]
    pub fn echo_sequence(&self) -> u16 {
        be::get_u16(self.data(), field::ECHO_SEQUENCE)
    }

    /// MTU of "packet too big".
    #[inline]
    pub fn mtu(&self) -> u32 {
        be::get_u32(self.data(), field::MTU)
    }

    /// Returns the bytes behind the 8 bytes: echo data, or the packet that an error quotes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.data()[HEADER_LEN..]
    }

    /// True if the checksum is right for these addresses.
    #[inline]
    pub fn verify_checksum(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        self.sum(src, dst) == 0xffff
    }

    #[inline]
    fn sum(&self, src: Ipv6Addr, dst: Ipv6Addr) -> u16 {
        let length = self.data().len() as u32;
        let pseudo = checksum::pseudo_header_v6(src, dst, IpProtocol::ICMPV6.0, length);
        checksum::combine(&[pseudo, checksum::sum(self.data())])
    }
}

/// Setters leave the checksum as it is.
impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6Packet<T> {
    /// Sets the message type.
    #[inline]
    pub fn set_msg_type(&mut self, msg_type: Icmpv6Type) {
        self.buffer.as_mut()[field::TYPE] = msg_type.0;
    }

    /// Sets the message code.
    #[inline]
    pub fn set_code(&mut self, code: u8) {
        self.buffer.as_mut()[field::CODE] = code;
    }

    /// Sets the four bytes whose meaning depends on the type.
    #[inline]
    pub fn set_rest(&mut self, rest: [u8; 4]) {
        self.buffer.as_mut()[field::REST].copy_from_slice(&rest);
    }

    /// Sets the identifier of an echo request or reply.
    #[inline]
    pub fn set_echo_ident(&mut self, ident: u16) {
        be::set_u16(self.buffer.as_mut(), field::ECHO_IDENT, ident);
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        be::set_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }

    /// Computes and sets the checksum over the whole buffer and the pseudo-header.
    #[inline]
    pub fn fill_checksum(&mut self, src: Ipv6Addr, dst: Ipv6Addr) {
        self.set_checksum(0);
        let checksum = !self.sum(src, dst);
        self.set_checksum(checksum);
    }

    /// Returns the bytes behind the 8 bytes, to be written.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[HEADER_LEN..]
    }
}
