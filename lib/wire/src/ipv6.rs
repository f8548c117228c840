//! IPv6 packets and their extension headers (RFC 8200).

use core::net::Ipv6Addr;

use crate::be;
use crate::checksum;
use crate::ip::Ecn;
use crate::view::view;
use crate::{IpProtocol, ParseError};

/// Bytes of the fixed IPv6 header.
pub const HEADER_LEN: usize = 40;

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// Extension headers that a packet may have. The standard sets no bound; a chain of hundreds is an attack on the
/// parser that walks it.
pub const MAX_EXTENSION_HEADERS: usize = 8;

mod field {
    use core::ops::Range;
    pub const VERSION_CLASS_FLOW: Range<usize> = 0..4;
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SRC: Range<usize> = 8..24;
    pub const DST: Range<usize> = 24..40;
}

view! {
    /// View of an IPv6 packet. The buffer may be longer than the packet (Ethernet padding);
    /// `payload()` ends where the payload length says. Jumbograms (RFC 2675) are not supported:
    /// their payload length of zero is taken at its word.
    Ipv6Packet
}

impl<T: AsRef<[u8]>> Ipv6Packet<T> {
    /// # Errors
    /// Refuses a buffer below 40 bytes, a version other than 6, and a payload length beyond the
    /// buffer. Does not look at extension headers: see [`Ipv6Packet::upper_layer`].
    #[inline]
    pub fn check(&self) -> Result<(), ParseError> {
        let data = self.data();
        if data.len() < HEADER_LEN {
            return Err(ParseError::Ipv6Truncated);
        }
        if self.version() != 6 {
            return Err(ParseError::Ipv6BadVersion);
        }
        if HEADER_LEN + usize::from(self.payload_len()) > data.len() {
            return Err(ParseError::Ipv6BadPayloadLength);
        }
        Ok(())
    }

    /// Version, 6.
    #[inline]
    pub fn version(&self) -> u8 {
        self.data()[0] >> 4
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.first_word() >> 20) as u8
    }

    /// Explicit congestion notification (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.traffic_class())
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.first_word() & 0xf_ffff
    }

    /// Bytes after the fixed header, extension headers included.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be::get_u16(self.data(), field::PAYLOAD_LENGTH)
    }

    /// Type of the first header after this one: an extension header or the upper layer.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.data()[field::NEXT_HEADER])
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.data()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(be::get_array::<16>(self.data(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(be::get_array::<16>(self.data(), field::DST))
    }

    /// The payload, extension headers included, without padding of the link layer.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.data()[HEADER_LEN..HEADER_LEN + usize::from(self.payload_len())]
    }

    /// Walks the extension headers to the upper layer; its `offset` counts from the start of
    /// [`Ipv6Packet::payload`].
    ///
    /// # Errors
    /// As [`UpperLayer::find`].
    #[inline]
    pub fn upper_layer(&self) -> Result<UpperLayer, ParseError> {
        UpperLayer::find(self.next_header(), self.payload())
    }

    #[inline]
    fn first_word(&self) -> u32 {
        be::get_u32(self.data(), field::VERSION_CLASS_FLOW)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6Packet<T> {
    /// Sets version 6, the traffic class and the flow label (20 bits, cut to its width).
    #[inline]
    pub fn set_version_class_flow(&mut self, traffic_class: u8, flow_label: u32) {
        let word = 6 << 28 | u32::from(traffic_class) << 20 | flow_label & 0xf_ffff;
        be::set_u32(self.buffer.as_mut(), field::VERSION_CLASS_FLOW, word);
    }

    /// Sets the number of bytes after the fixed header.
    #[inline]
    pub fn set_payload_len(&mut self, length: u16) {
        be::set_u16(self.buffer.as_mut(), field::PAYLOAD_LENGTH, length);
    }

    /// Sets the type of the first header after this one.
    #[inline]
    pub fn set_next_header(&mut self, protocol: IpProtocol) {
        self.buffer.as_mut()[field::NEXT_HEADER] = protocol.0;
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.buffer.as_mut()[field::HOP_LIMIT] = hop_limit;
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, address: Ipv6Addr) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&address.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, address: Ipv6Addr) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&address.octets());
    }

    /// Takes one hop off the hop limit. Returns the new value, or `None` with the packet
    /// unchanged if it was zero already. A forwarder drops the packet on `None` or `Some(0)`.
    #[inline]
    pub fn decrement_hop_limit(&mut self) -> Option<u8> {
        let hop_limit = self.hop_limit().checked_sub(1)?;
        self.set_hop_limit(hop_limit);
        Some(hop_limit)
    }

    /// Marks congestion experienced if the sender is ECN-capable; returns whether it is.
    #[inline]
    pub fn mark_congestion(&mut self) -> bool {
        let capable = self.ecn() != Ecn::NotCapable;
        if capable {
            self.set_version_class_flow(self.traffic_class() | 3, self.flow_label());
        }
        capable
    }

    /// The payload, to be written.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = HEADER_LEN..HEADER_LEN + usize::from(self.payload_len());
        &mut self.buffer.as_mut()[range]
    }
}

/// The content of a fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentInfo {
    /// Offset of this fragment's data in bytes, a multiple of 8.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification.
    pub ident: u32,
}

impl FragmentInfo {
    /// A whole packet in the clothes of a fragment (RFC 6946): neither offset nor more.
    #[inline]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        self.offset == 0 && !self.more
    }

    /// The fragment header's bytes; `offset` is cut to a multiple of 8.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self, next_header: IpProtocol) -> [u8; FRAGMENT_HEADER_LEN] {
        let [a, b] = (self.offset & !7 | self.more as u16).to_be_bytes();
        let [c, d, e, f] = self.ident.to_be_bytes();
        [next_header.0, 0, a, b, c, d, e, f]
    }
}

/// The header and payload behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpperLayer {
    /// The first header that is no extension header; in a fragment other than the first, the
    /// fragment header's next header, whatever it is: the rest of the chain is elsewhere.
    pub protocol: IpProtocol,
    /// Where it starts, in bytes from the end of the fixed header.
    pub offset: usize,
    /// The fragment header, if there is one.
    pub fragment: Option<FragmentInfo>,
}

impl UpperLayer {
    /// Walks at most [`MAX_EXTENSION_HEADERS`] extension headers in `payload`, the first of which
    /// has type `next_header`. ESP and "no next header" end the chain.
    ///
    /// # Errors
    /// [`ParseError::Ipv6ExtensionTruncated`] if a header runs beyond the payload,
    /// [`ParseError::Ipv6TooManyExtensions`].
    #[inline]
    pub fn find(next_header: IpProtocol, payload: &[u8]) -> Result<Self, ParseError> {
        let start = Self {
            protocol: next_header,
            offset: 0,
            fragment: None,
        };
        if is_extension(next_header) {
            start.walk(payload)
        } else {
            Ok(start)
        }
    }

    fn walk(mut self, payload: &[u8]) -> Result<Self, ParseError> {
        for _ in 0..MAX_EXTENSION_HEADERS {
            let header = be::chunk_at::<8>(payload, self.offset)
                .ok_or(ParseError::Ipv6ExtensionTruncated)?;
            if self.protocol == IpProtocol::IPV6_FRAGMENT {
                self.fragment = Some(fragment_info(header));
            }
            self.offset += extension_len(self.protocol, header[1]);
            self.protocol = IpProtocol(header[0]);
            if self.offset > payload.len() {
                return Err(ParseError::Ipv6ExtensionTruncated);
            }
            let later_fragment = self.fragment.is_some_and(|fragment| fragment.offset != 0);
            if later_fragment || !is_extension(self.protocol) {
                return Ok(self);
            }
        }
        Err(ParseError::Ipv6TooManyExtensions)
    }
}

/// The extension headers of IANA's registry that have the common layout or a known one.
#[inline]
pub(crate) const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::IPV6_ROUTE
            | IpProtocol::IPV6_FRAGMENT
            | IpProtocol::AH
            | IpProtocol::IPV6_OPTS
            | IpProtocol::MOBILITY
            | IpProtocol::HIP
            | IpProtocol::SHIM6
    )
}

#[inline]
const fn extension_len(protocol: IpProtocol, length: u8) -> usize {
    match protocol {
        IpProtocol::IPV6_FRAGMENT => 8,
        // RFC 4302 section 2.2: in 4-byte units, minus two.
        IpProtocol::AH => (length as usize + 2) * 4,
        _ => (length as usize + 1) * 8,
    }
}

#[inline]
fn fragment_info(header: &[u8; 8]) -> FragmentInfo {
    let [_, _, a, b, c, d, e, f] = *header;
    let offset_flags = u16::from_be_bytes([a, b]);
    FragmentInfo {
        offset: offset_flags & !7,
        more: offset_flags & 1 != 0,
        ident: u32::from_be_bytes([c, d, e, f]),
    }
}

/// Sum of the pseudo-header of `packet` for the upper layer at `layer` as one message.
#[inline]
#[must_use]
pub fn pseudo_header<T: AsRef<[u8]>>(packet: &Ipv6Packet<T>, layer: &UpperLayer) -> u16 {
    let length = packet.payload().len().saturating_sub(layer.offset) as u32;
    checksum::pseudo_header_v6(packet.src(), packet.dst(), layer.protocol.0, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(next header, length)` of each 8-byte unit, then `tail`.
    fn find(first: u8, units: &[[u8; 8]], tail: &[u8]) -> Result<UpperLayer, ParseError> {
        UpperLayer::find(IpProtocol(first), &[units.as_flattened(), tail].concat())
    }

    #[test]
    fn no_extension_header() {
        let plain = UpperLayer {
            protocol: IpProtocol::TCP,
            offset: 0,
            fragment: None,
        };
        assert_eq!(find(6, &[], &[1]), Ok(plain));
        assert_eq!(
            find(6, &[], &[]),
            Ok(plain),
            "an empty payload is the transport's matter"
        );
        assert_eq!(
            find(59, &[], &[]).map(|layer| layer.protocol),
            Ok(IpProtocol::IPV6_NO_NEXT)
        );
        assert_eq!(
            find(50, &[], &[]).map(|layer| layer.protocol),
            Ok(IpProtocol::ESP)
        );
    }

    #[test]
    fn each_kind_has_its_own_length_unit() {
        for (kind, length, bytes) in [
            (0, 0, 8),
            (60, 1, 16),
            (43, 1, 16),
            (51, 1, 12),
            (51, 4, 24),
        ] {
            let mut payload = [0; 40];
            payload[..2].copy_from_slice(&[17, length]);
            let layer = UpperLayer::find(IpProtocol(kind), &payload).expect("one header");
            assert_eq!(
                (layer.protocol, layer.offset),
                (IpProtocol::UDP, bytes),
                "header {kind}"
            );
        }
    }

    #[test]
    fn fragments() {
        let header = |offset: u16, more: bool| {
            let info = FragmentInfo {
                offset,
                more,
                ident: 0x0102_0304,
            };
            (info, info.to_bytes(IpProtocol::IPV6_OPTS))
        };
        let options = [17, 0, 0, 0, 0, 0, 0, 0];
        let (first, bytes) = header(0, true);
        let layer = find(44, &[bytes, options], &[]).expect("first fragment");
        assert_eq!((layer.protocol, layer.offset), (IpProtocol::UDP, 16));
        assert_eq!(layer.fragment, Some(first));
        assert!(!first.is_atomic() && header(0, false).0.is_atomic());

        let (later, bytes) = header(1448, false);
        let layer = find(44, &[bytes, options], &[]).expect("last fragment");
        assert_eq!((layer.protocol, layer.offset), (IpProtocol::IPV6_OPTS, 8));
        assert_eq!(layer.fragment, Some(later));
    }

    #[test]
    fn refusals() {
        let truncated = Err(ParseError::Ipv6ExtensionTruncated);
        assert_eq!(
            find(0, &[], &[17, 0, 0, 0, 0, 0, 0]),
            truncated,
            "seven bytes"
        );
        assert_eq!(
            find(0, &[[17, 1, 0, 0, 0, 0, 0, 0]], &[]),
            truncated,
            "length beyond"
        );
        let padding = [60, 0, 0, 0, 0, 0, 0, 0];
        let last = [17, 0, 0, 0, 0, 0, 0, 0];
        let mut chain = [padding; MAX_EXTENSION_HEADERS];
        chain[MAX_EXTENSION_HEADERS - 1] = last;
        assert_eq!(find(60, &chain, &[]).map(|layer| layer.offset), Ok(64));
        chain[MAX_EXTENSION_HEADERS - 1] = padding;
        let longer = [&chain[..], &[last]].concat();
        assert_eq!(
            find(60, &longer, &[]),
            Err(ParseError::Ipv6TooManyExtensions)
        );
    }

    #[test]
    fn congestion_leaves_the_flow_label() {
        let mut packet = Ipv6Packet::new_unchecked([0; HEADER_LEN]);
        packet.set_version_class_flow(0x2d, 0xa_bcde);
        packet.set_hop_limit(1);
        assert!(packet.mark_congestion());
        assert_eq!((packet.version(), packet.traffic_class()), (6, 0x2f));
        assert_eq!(packet.flow_label(), 0xa_bcde);
        assert_eq!(packet.decrement_hop_limit(), Some(0));
        assert_eq!(packet.decrement_hop_limit(), None);
    }
}
