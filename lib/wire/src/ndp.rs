//! Neighbour discovery: solicitation and advertisement (RFC 4861 sections 4.3, 4.4).
//!
//! A receiver must also check that the hop limit is 255, the code 0 and the checksum right
//! (section 7.1): [`NdpPacket::is_valid_from`] does.

use core::net::Ipv6Addr;

use crate::be;
use crate::icmpv6::{Icmpv6Packet, Icmpv6Type};
use crate::view::view;
use crate::{MacAddr, ParseError};

/// Bytes of a solicitation or advertisement without options.
pub const HEADER_LEN: usize = 24;
/// Bytes of a link-layer address option for Ethernet.
pub const LINK_LAYER_OPTION_LEN: usize = 8;
/// The only hop limit with which neighbour discovery is valid: no host off the link can send it.
pub const HOP_LIMIT: u8 = 255;

mod field {
    use core::ops::Range;
    pub const FLAGS: usize = 4;
    pub const TARGET: Range<usize> = 8..24;
}

/// Option types.
pub mod option_type {
    /// Source link-layer address.
    pub const SOURCE_LINK_LAYER: u8 = 1;
    /// Target link-layer address.
    pub const TARGET_LINK_LAYER: u8 = 2;
    /// Prefix information.
    pub const PREFIX_INFORMATION: u8 = 3;
    /// MTU.
    pub const MTU: u8 = 5;
}

/// Flags of an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AdvertFlags {
    /// The sender is a router.
    pub router: bool,
    /// Answer to a solicitation.
    pub solicited: bool,
    /// Replace what a cache holds.
    pub override_entry: bool,
}

impl AdvertFlags {
    #[inline]
    const fn from_byte(byte: u8) -> Self {
        Self {
            router: byte & 0x80 != 0,
            solicited: byte & 0x40 != 0,
            override_entry: byte & 0x20 != 0,
        }
    }

    /// The first of the four bytes after the ICMPv6 checksum.
    #[inline]
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        (self.router as u8) << 7 | (self.solicited as u8) << 6 | (self.override_entry as u8) << 5
    }
}

view! {
    /// View of a neighbour solicitation or advertisement; the buffer is the whole ICMPv6 message.
    NdpPacket
}

impl<T: AsRef<[u8]>> NdpPacket<T> {
    /// # Errors
    /// [`ParseError::NdpUnsupported`] for another ICMPv6 type; [`ParseError::Icmpv6Truncated`]
    /// below 24 bytes; [`ParseError::NdpBadOption`] if an option has length zero or runs beyond
    /// the message.
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let data = self.data();
        Icmpv6Packet::new_checked(data)?;
        if !matches!(
            self.msg_type(),
            Icmpv6Type::NEIGHBOR_SOLICIT | Icmpv6Type::NEIGHBOR_ADVERT
        ) {
            return Err(ParseError::NdpUnsupported);
        }
        if data.len() < HEADER_LEN {
            return Err(ParseError::Icmpv6Truncated);
        }
        let mut options = self.options();
        options.by_ref().for_each(drop);
        if options.rest.is_empty() {
            Ok(())
        } else {
            Err(ParseError::NdpBadOption)
        }
    }

    /// ICMPv6 type: solicitation or advertisement.
    #[inline]
    pub fn msg_type(&self) -> Icmpv6Type {
        Icmpv6Type(self.data()[0])
    }

    /// Flags of an advertisement; meaningless in a solicitation.
    #[inline]
    pub fn flags(&self) -> AdvertFlags {
        AdvertFlags::from_byte(self.data()[field::FLAGS])
    }

    /// The address asked for or announced.
    #[inline]
    pub fn target(&self) -> Ipv6Addr {
        Ipv6Addr::from(be::get_array::<16>(self.data(), field::TARGET))
    }

    /// Iterates over the options.
    #[inline]
    pub fn options(&self) -> NdpOptions<'_> {
        NdpOptions {
            rest: &self.data()[HEADER_LEN..],
        }
    }

    /// The Ethernet address in the first option of this type.
    #[inline]
    pub fn link_layer(&self, option_type: u8) -> Option<MacAddr> {
        let option = self
            .options()
            .find(|option| option.option_type == option_type)?;
        option
            .data
            .first_chunk::<6>()
            .map(|address| MacAddr(*address))
    }

    /// The rules of RFC 4861 sections 7.1.1 and 7.1.2 that need the IPv6 header: hop limit 255,
    /// code 0, checksum, no multicast target; a solicitation from the unspecified address has no
    /// source link-layer option and goes to a solicited-node address; an advertisement to a
    /// multicast address is not "solicited".
    #[must_use]
    pub fn is_valid_from(&self, src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8) -> bool {
        let message = Icmpv6Packet::new_unchecked(self.data());
        let common = hop_limit == HOP_LIMIT
            && message.code() == 0
            && message.verify_checksum(src, dst)
            && !self.target().is_multicast();
        let own = if self.msg_type() == Icmpv6Type::NEIGHBOR_SOLICIT {
            !src.is_unspecified()
                || (is_solicited_node(dst)
                    && self.link_layer(option_type::SOURCE_LINK_LAYER).is_none())
        } else {
            !(dst.is_multicast() && self.flags().solicited)
        };
        common && own
    }
}

/// An option; `data` is the part behind type and length, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpOption<'a> {
    /// See [`option_type`].
    pub option_type: u8,
    /// 6, 14, 22, ... bytes.
    pub data: &'a [u8],
}

/// Iterator over the options; ends at the first one that is malformed.
#[derive(Clone, Debug)]
pub struct NdpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for NdpOptions<'a> {
    type Item = NdpOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<NdpOption<'a>> {
        let [option_type, units, ..] = *self.rest else {
            return None;
        };
        let length = usize::from(units) * 8;
        // A length of zero fails here too: it would make the range 2..0.
        let data = self.rest.get(2..length)?;
        self.rest = &self.rest[length..];
        Some(NdpOption { option_type, data })
    }
}

/// The content of a neighbour discovery message, to be emitted with [`crate::build::Frame::icmp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NdpRepr {
    /// Asks which host has `target`.
    Solicit {
        /// Address asked for.
        target: Ipv6Addr,
        /// Sender's address; `None` when the sender has no IPv6 address yet.
        source_link_layer: Option<MacAddr>,
    },
    /// The sender has `target`.
    Advert {
        /// Address announced.
        target: Ipv6Addr,
        /// Router, solicited, override.
        flags: AdvertFlags,
        /// Owner's address.
        target_link_layer: Option<MacAddr>,
    },
}

impl NdpRepr {
    /// Reads an ICMPv6 message.
    ///
    /// # Errors
    /// As [`NdpPacket::check`].
    pub fn parse(message: &[u8]) -> Result<Self, ParseError> {
        let packet = NdpPacket::new_checked(message)?;
        let target = packet.target();
        Ok(if packet.msg_type() == Icmpv6Type::NEIGHBOR_SOLICIT {
            let source_link_layer = packet.link_layer(option_type::SOURCE_LINK_LAYER);
            Self::Solicit {
                target,
                source_link_layer,
            }
        } else {
            let target_link_layer = packet.link_layer(option_type::TARGET_LINK_LAYER);
            Self::Advert {
                target,
                flags: packet.flags(),
                target_link_layer,
            }
        })
    }

    /// ICMPv6 type of the message.
    #[must_use]
    pub const fn msg_type(&self) -> Icmpv6Type {
        match self {
            Self::Solicit { .. } => Icmpv6Type::NEIGHBOR_SOLICIT,
            Self::Advert { .. } => Icmpv6Type::NEIGHBOR_ADVERT,
        }
    }

    /// The four bytes after the ICMPv6 checksum.
    #[must_use]
    pub const fn rest(&self) -> [u8; 4] {
        match self {
            Self::Solicit { .. } => [0; 4],
            Self::Advert { flags, .. } => [flags.to_byte(), 0, 0, 0],
        }
    }

    /// Returns the body behind the first 8 bytes of the ICMPv6 message, the target and at most one option, and the
    /// number of bytes that count.
    #[must_use]
    pub fn body(&self) -> ([u8; 16 + LINK_LAYER_OPTION_LEN], usize) {
        let (target, kind, address) = match *self {
            Self::Solicit {
                target,
                source_link_layer,
            } => (target, option_type::SOURCE_LINK_LAYER, source_link_layer),
            Self::Advert {
                target,
                target_link_layer,
                ..
            } => (target, option_type::TARGET_LINK_LAYER, target_link_layer),
        };
        let mut body = [0; 16 + LINK_LAYER_OPTION_LEN];
        body[..16].copy_from_slice(&target.octets());
        let Some(address) = address else {
            return (body, 16);
        };
        body[16] = kind;
        body[17] = 1;
        body[18..].copy_from_slice(&address.0);
        (body, body.len())
    }
}

/// The multicast address on which the owner of `address` listens, `ff02::1:ffXX:XXXX`
/// (RFC 4291 section 2.7.1).
#[inline]
#[must_use]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | address.to_bits() & 0xff_ffff)
}

/// The Ethernet address of an IPv6 multicast address, `33:33:` and its last 32 bits (RFC 2464).
#[inline]
#[must_use]
pub const fn multicast_mac(address: Ipv6Addr) -> MacAddr {
    let [a, b, c, d] = (address.to_bits() as u32).to_be_bytes();
    MacAddr([0x33, 0x33, a, b, c, d])
}

#[inline]
fn is_solicited_node(address: Ipv6Addr) -> bool {
    address == solicited_node(address)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x12, 0x3456);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn message(repr: &NdpRepr, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let (body, length) = repr.body();
        let mut bytes = [
            &[repr.msg_type().0, 0, 0, 0][..],
            &repr.rest(),
            &body[..length],
        ]
        .concat();
        Icmpv6Packet::new_unchecked(&mut bytes[..]).fill_checksum(src, dst);
        bytes
    }

    fn valid(repr: NdpRepr, src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8) -> bool {
        let bytes = message(&repr, src, dst);
        NdpPacket::new_checked(&bytes)
            .expect("well-formed")
            .is_valid_from(src, dst, hop_limit)
    }

    #[test]
    fn multicast_addresses() {
        let group = solicited_node(HOST);
        assert_eq!(group, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff12, 0x3456));
        assert_eq!(
            multicast_mac(group),
            MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
        );
        assert!(is_solicited_node(group) && !is_solicited_node(HOST));
    }

    #[test]
    fn rules_of_rfc_4861() {
        let any = Ipv6Addr::UNSPECIFIED;
        let group = solicited_node(HOST);
        let with = NdpRepr::Solicit {
            target: HOST,
            source_link_layer: Some(MAC),
        };
        let without = NdpRepr::Solicit {
            target: HOST,
            source_link_layer: None,
        };
        assert!(valid(with, HOST, group, 255) && valid(without, any, group, 255));
        assert!(!valid(with, HOST, group, 254), "sent from off the link");
        assert!(
            !valid(with, any, group, 255),
            "an address that cannot be known yet"
        );
        assert!(
            !valid(without, any, HOST, 255),
            "duplicate detection goes to the group"
        );
        let target = NdpRepr::Solicit {
            target: group,
            source_link_layer: None,
        };
        assert!(
            !valid(target, HOST, group, 255),
            "a group has no neighbour entry"
        );

        let flags = AdvertFlags {
            solicited: true,
            ..AdvertFlags::default()
        };
        let advert = NdpRepr::Advert {
            target: HOST,
            flags,
            target_link_layer: Some(MAC),
        };
        assert!(valid(advert, HOST, HOST, 255));
        assert!(!valid(
            advert,
            HOST,
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            255
        ));
    }

    #[test]
    fn code_and_checksum_count() {
        let repr = NdpRepr::Solicit {
            target: HOST,
            source_link_layer: Some(MAC),
        };
        for at in [1, 3, 20] {
            let mut bytes = message(&repr, HOST, HOST);
            bytes[at] ^= 1;
            let packet = NdpPacket::new_checked(&bytes).expect("well-formed");
            assert!(!packet.is_valid_from(HOST, HOST, 255), "byte {at}");
        }
    }

    #[test]
    fn refusals() {
        let repr = NdpRepr::Solicit {
            target: HOST,
            source_link_layer: Some(MAC),
        };
        let bytes = message(&repr, HOST, HOST);
        assert_eq!(
            NdpRepr::parse(&bytes[..7]),
            Err(ParseError::Icmpv6Truncated)
        );
        assert_eq!(
            NdpRepr::parse(&bytes[..23]),
            Err(ParseError::Icmpv6Truncated)
        );
        for length in [25, 26, 31] {
            assert_eq!(
                NdpRepr::parse(&bytes[..length]),
                Err(ParseError::NdpBadOption)
            );
        }
        let mut zero = bytes.clone();
        zero[25] = 0;
        assert_eq!(NdpRepr::parse(&zero), Err(ParseError::NdpBadOption));
        let mut other = bytes;
        other[0] = Icmpv6Type::ROUTER_ADVERT.0;
        assert_eq!(NdpRepr::parse(&other), Err(ParseError::NdpUnsupported));
    }
}
