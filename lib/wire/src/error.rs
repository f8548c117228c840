//! The one error of every parser in this crate.

use core::fmt;

/// The defect of a malformed frame.
///
/// A plain byte-sized enum: the data path copies it into a drop counter and never formats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// Fewer than 14 bytes: no Ethernet header.
    EthernetTruncated,
    /// A VLAN tag is announced but its 4 bytes are not all there.
    VlanTruncated,
    /// ARP packet shorter than its own address lengths ask for.
    ArpTruncated,
    /// ARP for something else than IPv4 over Ethernet.
    ArpUnsupported,
    /// Fewer than 20 bytes of IPv4.
    Ipv4Truncated,
    /// The ethertype says IPv4, the version field does not say 4.
    Ipv4BadVersion,
    /// IPv4 header length below 20 bytes or beyond the total length.
    Ipv4BadHeaderLength,
    /// IPv4 total length beyond the bytes received.
    Ipv4BadTotalLength,
    /// Fewer than 40 bytes of IPv6.
    Ipv6Truncated,
    /// The ethertype says IPv6, the version field does not say 6.
    Ipv6BadVersion,
    /// IPv6 payload length beyond the bytes received.
    Ipv6BadPayloadLength,
    /// An IPv6 extension header runs beyond the packet.
    Ipv6ExtensionTruncated,
    /// More than [`crate::ipv6::MAX_EXTENSION_HEADERS`] extension headers in one packet.
    Ipv6TooManyExtensions,
    /// Fewer than 8 bytes of UDP.
    UdpTruncated,
    /// UDP length below 8 or beyond the IP payload.
    UdpBadLength,
    /// Fewer than 20 bytes of TCP.
    TcpTruncated,
    /// TCP data offset below 20 bytes or beyond the IP payload.
    TcpBadDataOffset,
    /// A TCP fragment at offset 8, which would write over the flags of the first one (RFC 3128).
    TcpOverlappingFragment,
    /// Fewer than 8 bytes of ICMPv4.
    Icmpv4Truncated,
    /// ICMPv6 message shorter than its type asks for.
    Icmpv6Truncated,
    /// Neither a neighbour solicitation nor an advertisement.
    NdpUnsupported,
    /// A neighbour discovery option has length zero or runs beyond the message.
    NdpBadOption,
    /// The metadata beside the frame is not about the frame's TCP or UDP header: see [`crate::segment::check`].
    OffloadMismatch,
}

impl ParseError {
    /// Returns a line for a log or a table: the defect, in the words of the standard.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EthernetTruncated => "frame shorter than the 14-byte Ethernet header",
            Self::VlanTruncated => "frame ends inside a VLAN tag",
            Self::ArpTruncated => "ARP packet shorter than its address lengths",
            Self::ArpUnsupported => "ARP not for IPv4 over Ethernet",
            Self::Ipv4Truncated => "IPv4 header shorter than 20 bytes",
            Self::Ipv4BadVersion => "IPv4 ethertype but version is not 4",
            Self::Ipv4BadHeaderLength => "IPv4 header length below 20 or beyond total length",
            Self::Ipv4BadTotalLength => "IPv4 total length beyond the frame",
            Self::Ipv6Truncated => "IPv6 header shorter than 40 bytes",
            Self::Ipv6BadVersion => "IPv6 ethertype but version is not 6",
            Self::Ipv6BadPayloadLength => "IPv6 payload length beyond the frame",
            Self::Ipv6ExtensionTruncated => "IPv6 extension header beyond the packet",
            Self::Ipv6TooManyExtensions => "too many IPv6 extension headers",
            Self::UdpTruncated => "UDP header shorter than 8 bytes",
            Self::UdpBadLength => "UDP length below 8 or beyond the IP payload",
            Self::TcpTruncated => "TCP header shorter than 20 bytes",
            Self::TcpBadDataOffset => "TCP data offset below 20 or beyond the IP payload",
            Self::TcpOverlappingFragment => "TCP fragment at offset 8, over the flags",
            Self::Icmpv4Truncated => "ICMP message shorter than 8 bytes",
            Self::Icmpv6Truncated => "ICMPv6 message shorter than its type requires",
            Self::NdpUnsupported => "not a neighbour solicitation or advertisement",
            Self::NdpBadOption => "neighbour discovery option with a bad length",
            Self::OffloadMismatch => "offload metadata that is not about the TCP or UDP header",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for ParseError {}
