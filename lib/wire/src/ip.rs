//! Parts that IPv4 and IPv6 share: protocol numbers and the traffic class byte.

use core::fmt;

/// Protocol (IPv4) or next header (IPv6) number, from IANA's "Assigned Internet Protocol Numbers".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMPV4: Self = Self(1);
    /// IGMP.
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP.
    pub const IPIP: Self = Self(4);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 in IP.
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header.
    pub const IPV6_ROUTE: Self = Self(43);
    /// IPv6 fragment header.
    pub const IPV6_FRAGMENT: Self = Self(44);
    /// GRE.
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload.
    pub const ESP: Self = Self(50);
    /// Authentication header.
    pub const AH: Self = Self(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// IPv6: nothing follows.
    pub const IPV6_NO_NEXT: Self = Self(59);
    /// IPv6 destination options.
    pub const IPV6_OPTS: Self = Self(60);
    /// SCTP.
    pub const SCTP: Self = Self(132);
    /// Mobile IPv6.
    pub const MOBILITY: Self = Self(135);
    /// UDP-Lite.
    pub const UDPLITE: Self = Self(136);
    /// Host identity protocol.
    pub const HIP: Self = Self(139);
    /// Shim6.
    pub const SHIM6: Self = Self(140);

    /// The short lower-case name, as in `/etc/protocols`, for protocols with a constant here.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::HOP_BY_HOP => "hopopt",
            Self::ICMPV4 => "icmp",
            Self::IGMP => "igmp",
            Self::IPIP => "ipencap",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::IPV6 => "ipv6",
            Self::IPV6_ROUTE => "ipv6-route",
            Self::IPV6_FRAGMENT => "ipv6-frag",
            Self::GRE => "gre",
            Self::ESP => "esp",
            Self::AH => "ah",
            Self::ICMPV6 => "ipv6-icmp",
            Self::IPV6_NO_NEXT => "ipv6-nonxt",
            Self::IPV6_OPTS => "ipv6-opts",
            Self::SCTP => "sctp",
            Self::MOBILITY => "mobility-header",
            Self::UDPLITE => "udplite",
            Self::HIP => "hip",
            Self::SHIM6 => "shim6",
            _ => return None,
        })
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}

/// Explicit congestion notification, the low two bits of the traffic class (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not take part.
    #[default]
    NotCapable = 0,
    /// Capable, code point ECT(1).
    Capable1 = 1,
    /// Capable, code point ECT(0).
    Capable0 = 2,
    /// Congestion experienced.
    CongestionExperienced = 3,
}

impl Ecn {
    /// From the traffic class (type of service) byte.
    #[inline]
    #[must_use]
    pub const fn from_traffic_class(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }
}
