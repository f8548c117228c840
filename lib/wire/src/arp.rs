//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::be;
use crate::view::view;
use crate::{EtherType, MacAddr, ParseError};

/// Bytes of an ARP packet for IPv4 over Ethernet.
pub const PACKET_LEN: usize = 28;

mod field {
    use core::ops::Range;
    pub const HARDWARE_TYPE: Range<usize> = 0..2;
    pub const PROTOCOL_TYPE: Range<usize> = 2..4;
    pub const HARDWARE_LEN: usize = 4;
    pub const PROTOCOL_LEN: usize = 5;
    pub const OPERATION: Range<usize> = 6..8;
    pub const SENDER_HARDWARE: Range<usize> = 8..14;
    pub const SENDER_PROTOCOL: Range<usize> = 14..18;
    pub const TARGET_HARDWARE: Range<usize> = 18..24;
    pub const TARGET_PROTOCOL: Range<usize> = 24..28;
}

const HARDWARE_ETHERNET: u16 = 1;

/// ARP operation code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(pub u16);

impl Operation {
    /// Asks which host has the target address.
    pub const REQUEST: Self = Self(1);
    /// The sender has the sender address.
    pub const REPLY: Self = Self(2);
}

view! {
    /// View of an ARP packet for IPv4 over Ethernet.
    ArpPacket
}

impl<T: AsRef<[u8]>> ArpPacket<T> {
    /// # Errors
    /// [`ParseError::ArpTruncated`] below 28 bytes; [`ParseError::ArpUnsupported`] for other
    /// hardware, protocol or address lengths.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let data = self.data();
        if data.len() < PACKET_LEN {
            return Err(ParseError::ArpTruncated);
        }
        let supported = be::get_u16(data, field::HARDWARE_TYPE) == HARDWARE_ETHERNET
            && be::get_u16(data, field::PROTOCOL_TYPE) == EtherType::IPV4.0
            && data[field::HARDWARE_LEN] == 6
            && data[field::PROTOCOL_LEN] == 4;
        if supported {
            Ok(())
        } else {
            Err(ParseError::ArpUnsupported)
        }
    }

    /// Request, reply or something else.
    #[inline]
    pub fn operation(&self) -> Operation {
        Operation(be::get_u16(self.data(), field::OPERATION))
    }

    /// Sender hardware address.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(be::get_array(self.data(), field::SENDER_HARDWARE))
    }

    /// Sender protocol address.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be::get_u32(self.data(), field::SENDER_PROTOCOL))
    }

    /// Target hardware address; meaningless in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(be::get_array(self.data(), field::TARGET_HARDWARE))
    }

    /// Target protocol address.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be::get_u32(self.data(), field::TARGET_PROTOCOL))
    }
}

/// The content of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArpRepr {
    /// Request or reply.
    pub operation: Operation,
    /// Sender hardware address.
    pub sender_mac: MacAddr,
    /// Sender protocol address.
    pub sender_ip: Ipv4Addr,
    /// Target hardware address, zero in a request.
    pub target_mac: MacAddr,
    /// Target protocol address.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// Reads a packet, that is the payload of an Ethernet frame with [`EtherType::ARP`].
    ///
    /// # Errors
    /// As [`ArpPacket::check`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let packet = ArpPacket::new_checked(packet)?;
        Ok(Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        })
    }

    /// The question "who has `target_ip`?".
    #[inline]
    #[must_use]
    pub const fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        Self {
            operation: Operation::REQUEST,
            sender_mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        }
    }

    /// The answer to this request from the owner of its target address.
    #[inline]
    #[must_use]
    pub const fn reply_from(&self, owner: MacAddr) -> Self {
        Self {
            operation: Operation::REPLY,
            sender_mac: owner,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// The packet's bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PACKET_LEN] {
        let mut data = [0; PACKET_LEN];
        be::set_u16(&mut data, field::HARDWARE_TYPE, HARDWARE_ETHERNET);
        be::set_u16(&mut data, field::PROTOCOL_TYPE, EtherType::IPV4.0);
        data[field::HARDWARE_LEN] = 6;
        data[field::PROTOCOL_LEN] = 4;
        be::set_u16(&mut data, field::OPERATION, self.operation.0);
        data[field::SENDER_HARDWARE].copy_from_slice(&self.sender_mac.0);
        data[field::SENDER_PROTOCOL].copy_from_slice(&self.sender_ip.octets());
        data[field::TARGET_HARDWARE].copy_from_slice(&self.target_mac.0);
        data[field::TARGET_PROTOCOL].copy_from_slice(&self.target_ip.octets());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OWNER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn request() -> ArpRepr {
        ArpRepr::request(
            ASKER,
            Ipv4Addr::new(10, 0, 0, 1),
            Ipv4Addr::new(10, 0, 0, 9),
        )
    }

    #[test]
    fn request_and_reply() {
        let reply = request().reply_from(OWNER);
        assert_eq!(
            (reply.sender_mac, reply.sender_ip),
            (OWNER, Ipv4Addr::new(10, 0, 0, 9))
        );
        assert_eq!(
            (reply.target_mac, reply.target_ip),
            (ASKER, Ipv4Addr::new(10, 0, 0, 1))
        );
        for packet in [request(), reply] {
            assert_eq!(ArpRepr::parse(&packet.to_bytes()), Ok(packet));
        }
        assert_eq!(request().to_bytes()[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
    }

    #[test]
    fn refusals() {
        let bytes = request().to_bytes();
        assert_eq!(ArpRepr::parse(&bytes[..27]), Err(ParseError::ArpTruncated));
        for at in [1, 2, 4, 5] {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(
                ArpRepr::parse(&other),
                Err(ParseError::ArpUnsupported),
                "byte {at}"
            );
        }
    }
}
