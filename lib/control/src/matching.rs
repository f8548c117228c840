//! Classifier rules: the conditions under which frames enter a chain.

use crate::quantity::{ValueError, serialize_as_text};
use ipnet::IpNet;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A rule. A frame matches if every field that is present matches; a rule without fields matches all frames. A field of
/// the IP or transport header matches only frames that contain the header: ports match the first fragment of a
/// datagram, but not the later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct MatchRule {
    /// Outermost VLAN id, 1 ..= 4094.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// EtherType, behind VLAN tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ether: Option<EtherType>,
    /// Source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<IpNet>,
    /// Destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<IpNet>,
    /// IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<Protocol>,
    /// Source port of TCP, UDP or SCTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sport: Option<PortRange>,
    /// Destination port of TCP, UDP or SCTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dport: Option<PortRange>,
}

impl MatchRule {
    /// Returns the rule for the opposite direction: source and destination swapped.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        MatchRule {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            ..self.clone()
        }
    }

    /// Returns true if a frame can match both rules.
    pub fn meets(&self, other: &Self) -> bool {
        fn alike<T>(a: Option<T>, b: Option<T>, share: impl Fn(T, T) -> bool) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => share(a, b),
                _ => true,
            }
        }
        let nets = |a: IpNet, b: IpNet| a.contains(&b.network()) || b.contains(&a.network());
        let ports = |a: PortRange, b: PortRange| a.first <= b.last && b.first <= a.last;
        alike(self.vlan, other.vlan, |a, b| a == b)
            && alike(self.family(), other.family(), |a, b| a == b)
            && alike(self.src, other.src, nets)
            && alike(self.dst, other.dst, nets)
            && alike(self.proto, other.proto, |a, b| a == b)
            && alike(self.sport, other.sport, ports)
            && alike(self.dport, other.dport, ports)
    }

    /// Returns the EtherType that the rule requires, directly or by its addresses.
    fn family(&self) -> Option<u16> {
        let of = |net: IpNet| match net {
            IpNet::V4(_) => 0x0800,
            IpNet::V6(_) => 0x86dd,
        };
        let by_address = self.src.or(self.dst).map(of);
        self.ether.map(|ether| ether.0).or(by_address)
    }
}

impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: [(&str, Option<String>); 7] = [
            ("vlan", self.vlan.map(|v| v.to_string())),
            ("ether", self.ether.map(|v| v.to_string())),
            ("src", self.src.map(|v| v.to_string())),
            ("dst", self.dst.map(|v| v.to_string())),
            ("proto", self.proto.map(|v| v.to_string())),
            ("sport", self.sport.map(|v| v.to_string())),
            ("dport", self.dport.map(|v| v.to_string())),
        ];
        let words: Vec<String> = fields
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name} {value}")))
            .collect();
        if words.is_empty() {
            f.write_str("everything")
        } else {
            f.write_str(&words.join(" "))
        }
    }
}

/// Names of EtherTypes.
const ETHER_NAMES: [(&str, u16); 3] = [("ipv4", 0x0800), ("arp", 0x0806), ("ipv6", 0x86dd)];

/// An EtherType (IEEE 802 numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ETHER_NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

impl FromStr for EtherType {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some((_, value)) = ETHER_NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(EtherType(*value));
        }
        let number = match text.strip_prefix("0x") {
            Some(hex) => u16::from_str_radix(hex, 16),
            None => text.parse(),
        };
        // Below 0x0600 the field is a length (IEEE 802.3 section 3.2.6).
        match number {
            Ok(value) if value >= 0x0600 => Ok(EtherType(value)),
            _ => Err(ValueError::new(
                format!("'{text}' is not an EtherType"),
                "write ipv4, ipv6, arp, or a number from 0x0600 to 0xffff",
            )),
        }
    }
}

/// Names of IP protocols.
const PROTOCOL_NAMES: [(&str, u8); 8] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("sctp", 132),
];

/// An IP protocol number (IANA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Returns true if the header of the protocol starts with a source and a destination port.
    pub const fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 132)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOL_NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Protocol {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some((_, value)) = PROTOCOL_NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(Protocol(*value));
        }
        text.parse().map(Protocol).map_err(|_| {
            let names: Vec<&str> = PROTOCOL_NAMES.iter().map(|(name, _)| *name).collect();
            ValueError::new(
                format!("'{text}' is not an IP protocol"),
                format!("write one of {}, or a number up to 255", names.join(", ")),
            )
        })
    }
}

/// A range of transport ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port; not below `first`.
    pub last: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = || {
            ValueError::new(
                format!("'{text}' is not a port or a range of ports"),
                "write one port or two with a dash between, from 0 to 65535, for example 80-90",
            )
        };
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(text)?, port(text)?),
        };
        if first > last {
            return Err(ValueError::new(
                format!("the range {text} is empty"),
                format!("write the lower port first: {last}-{first}"),
            ));
        }
        Ok(PortRange { first, last })
    }
}

serialize_as_text!(EtherType, Protocol, PortRange);

/// Parses a prefix, IPv4 or IPv6; an address alone is a prefix of full length.
///
/// # Errors
/// The prefix is malformed, or has bits set after its length.
pub fn parse_prefix(text: &str) -> Result<IpNet, ValueError> {
    let net = match text.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => text
            .parse::<std::net::IpAddr>()
            .map(IpNet::from)
            .map_err(|_| {
                ValueError::new(
                    format!("'{text}' is not a prefix"),
                    "write an address and a length, for example 10.0.0.0/8 or 2001:db8::/32",
                )
            })?,
    };
    if net.addr() != net.network() {
        return Err(ValueError::new(
            format!("'{text}' has bits set behind its length"),
            format!(
                "write {} for the network, or {} for the address",
                net.trunc(),
                net.addr()
            ),
        ));
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes() {
        assert!(parse_prefix("10.0.0.0/8").is_ok());
        assert!(parse_prefix("10.1.2.3").is_ok());
        assert!(parse_prefix("2001:db8::/32").is_ok());
        let error = parse_prefix("10.0.0.1/8").expect_err("host bits");
        assert_eq!(
            error.remedy,
            "write 10.0.0.0/8 for the network, or 10.0.0.1 for the address"
        );
        for bad in [
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/",
            "x",
            "",
            "::/129",
            "1.2.3.4/-1",
        ] {
            assert!(parse_prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn port_ranges() {
        assert_eq!(
            "80".parse(),
            Ok(PortRange {
                first: 80,
                last: 80
            })
        );
        assert_eq!(
            "80-90".parse(),
            Ok(PortRange {
                first: 80,
                last: 90
            })
        );
        for bad in ["90-80", "65536", "-1", "1-", "", "1-2-3"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_by_name() {
        assert_eq!("tcp".parse(), Ok(Protocol(6)));
        assert_eq!("250".parse(), Ok(Protocol(250)));
        assert!("256".parse::<Protocol>().is_err());
        assert_eq!("arp".parse(), Ok(EtherType(0x0806)));
        assert_eq!("0x88cc".parse(), Ok(EtherType(0x88cc)));
        assert!("0x05ff".parse::<EtherType>().is_err());
    }

    #[test]
    fn the_mirror_of_the_mirror_is_the_rule() {
        let rule = MatchRule {
            vlan: Some(10),
            src: Some(parse_prefix("10.0.0.0/8").expect("valid")),
            proto: Some(Protocol(6)),
            dport: Some(PortRange {
                first: 80,
                last: 90,
            }),
            ..MatchRule::default()
        };
        assert_eq!(
            rule.to_string(),
            "vlan 10 src 10.0.0.0/8 proto tcp dport 80-90"
        );
        assert_eq!(
            rule.mirrored().to_string(),
            "vlan 10 dst 10.0.0.0/8 proto tcp sport 80-90"
        );
        assert_eq!(rule.mirrored().mirrored(), rule);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(a in any::<u16>(), b in any::<u16>(), p in any::<u8>(), e in 0x0600u16..) {
            let range = PortRange { first: a.min(b), last: a.max(b) };
            prop_assert_eq!(range.to_string().parse(), Ok(range));
            prop_assert_eq!(Protocol(p).to_string().parse(), Ok(Protocol(p)));
            prop_assert_eq!(EtherType(e).to_string().parse(), Ok(EtherType(e)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse_prefix(&text);
            let _ = text.parse::<PortRange>();
            let _ = text.parse::<Protocol>();
            let _ = text.parse::<EtherType>();
        }
    }
}
