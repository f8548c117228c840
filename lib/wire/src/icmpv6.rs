//! ICMP for IPv6 (RFC 4443). The checksum covers the IPv6 pseudo-header.

use core::net::Ipv6Addr;

use crate::IpProtocol;
use crate::be;
use crate::checksum;
use crate::icmp::message_view;

pub use crate::icmp::HEADER_LEN;

mod field {
    use core::ops::Range;
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

message_view! {
    /// View of an ICMPv6 message; the buffer is the whole upper-layer payload.
    Icmpv6Packet, Icmpv6Type, Icmpv6Truncated
}

impl<T: AsRef<[u8]>> Icmpv6Packet<T> {
    /// MTU of "packet too big".
    #[inline]
    pub fn mtu(&self) -> u32 {
        be::get_u32(self.data(), field::MTU)
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

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6Packet<T> {
    /// Computes and sets the checksum over the whole buffer and the pseudo-header.
    #[inline]
    pub fn fill_checksum(&mut self, src: Ipv6Addr, dst: Ipv6Addr) {
        self.set_checksum(0);
        let checksum = !self.sum(src, dst);
        self.set_checksum(checksum);
    }
}
