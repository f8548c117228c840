//! ICMP for IPv4 (RFC 792, RFC 1191, RFC 1812 section 4.3).

use crate::be;
use crate::checksum::{self, Delta};
use crate::icmp::message_view;

pub use crate::icmp::HEADER_LEN;

mod field {
    use core::ops::Range;
    pub const NEXT_HOP_MTU: Range<usize> = 6..8;
}

/// ICMP message type, from IANA's "ICMP Parameters".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Icmpv4Type(pub u8);

impl Icmpv4Type {
    /// Echo reply.
    pub const ECHO_REPLY: Self = Self(0);
    /// Destination unreachable.
    pub const DEST_UNREACHABLE: Self = Self(3);
    /// Source quench (deprecated by RFC 6633).
    pub const SOURCE_QUENCH: Self = Self(4);
    /// Redirect.
    pub const REDIRECT: Self = Self(5);
    /// Echo request.
    pub const ECHO_REQUEST: Self = Self(8);
    /// Router advertisement.
    pub const ROUTER_ADVERT: Self = Self(9);
    /// Router solicitation.
    pub const ROUTER_SOLICIT: Self = Self(10);
    /// Time exceeded.
    pub const TIME_EXCEEDED: Self = Self(11);
    /// Parameter problem.
    pub const PARAM_PROBLEM: Self = Self(12);
    /// Timestamp request.
    pub const TIMESTAMP: Self = Self(13);
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: Self = Self(14);

    /// An error message, which quotes the packet it is about. Never answer one with another
    /// (RFC 1122 section 3.2.2).
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::DEST_UNREACHABLE
                | Self::SOURCE_QUENCH
                | Self::REDIRECT
                | Self::TIME_EXCEEDED
                | Self::PARAM_PROBLEM
        )
    }

    /// Returns true for a query or its reply with an identifier, by which a NAT distinguishes sessions (RFC 5508).
    #[inline]
    #[must_use]
    pub const fn has_ident(self) -> bool {
        matches!(
            self,
            Self::ECHO_REQUEST | Self::ECHO_REPLY | Self::TIMESTAMP | Self::TIMESTAMP_REPLY
        )
    }
}

/// Codes of [`Icmpv4Type::DEST_UNREACHABLE`].
pub mod unreachable_code {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// No such protocol.
    pub const PROTOCOL: u8 = 2;
    /// No such port.
    pub const PORT: u8 = 3;
    /// Fragmentation needed but forbidden (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Network administratively prohibited.
    pub const NET_PROHIBITED: u8 = 9;
    /// Host administratively prohibited.
    pub const HOST_PROHIBITED: u8 = 10;
    /// Communication administratively prohibited.
    pub const ADMIN_PROHIBITED: u8 = 13;
}

/// Codes of [`Icmpv4Type::TIME_EXCEEDED`].
pub mod time_exceeded_code {
    /// Time to live exceeded in transit.
    pub const TTL: u8 = 0;
    /// Fragment reassembly time exceeded.
    pub const REASSEMBLY: u8 = 1;
}

message_view! {
    /// View of an ICMP message; the buffer is the whole IPv4 payload.
    Icmpv4Packet, Icmpv4Type, Icmpv4Truncated
}

impl<T: AsRef<[u8]>> Icmpv4Packet<T> {
    /// Next-hop MTU of "fragmentation needed" (RFC 1191).
    #[inline]
    pub fn next_hop_mtu(&self) -> u16 {
        be::get_u16(self.data(), field::NEXT_HOP_MTU)
    }

    /// True if the checksum is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        checksum::sum(self.data()) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv4Packet<T> {
    /// Updates the checksum after a change.
    #[inline]
    pub fn update_checksum(&mut self, change: Delta) {
        self.set_checksum(change.apply(self.checksum()));
    }

    /// Computes and sets the checksum over the whole buffer.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = checksum::checksum(self.data());
        self.set_checksum(checksum);
    }
}
