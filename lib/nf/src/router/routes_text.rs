//! Routes in text, a route per line, as `ip route` prints them:
//!
//! ```text
//! 10.0.0.0/8 via 192.0.2.1 dev left     # the port may be left out
//! 2001:db8::/32 via fe80::1 dev right
//! 198.51.100.0/24 dev right
//! default via 192.0.2.254
//! blackhole 203.0.113.0/24
//! unreachable 203.0.113.128/25
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A prefix of either family, its host bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    /// Reads `address/length` or an address alone, which means the host. An error says what is
    /// wrong; so does a prefix with host bits set, since it is mostly a typing error.
    pub(super) fn parse(text: &str) -> Result<Prefix, String> {
        let prefix = Prefix::parse_interface(text)?;
        let network = prefix.network();
        if network != prefix {
            return Err(format!(
                "'{text}' has bits set beyond its length; the network is {}/{}",
                network.address, network.length
            ));
        }
        Ok(prefix)
    }

    /// As [`Prefix::parse`], for the address of an interface, whose host bits are its own.
    pub(super) fn parse_interface(text: &str) -> Result<Prefix, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("'{address}' is not an IPv4 or IPv6 address"))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => longest,
            Some(text) => text
                .parse::<u8>()
                .ok()
                .filter(|length| *length <= longest)
                .ok_or_else(|| {
                    format!("prefix length '{text}' is not a number from 0 to {longest}")
                })?,
        };
        Ok(Prefix { address, length })
    }

    /// The prefix with its host bits cleared.
    pub(super) fn network(self) -> Prefix {
        let address = match self.address {
            IpAddr::V4(address) => {
                Ipv4Addr::from_bits(super::lpm4::masked(address.to_bits(), self.length)).into()
            }
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(super::lpm6::masked(address.to_bits(), self.length)).into()
            }
        };
        Prefix { address, ..self }
    }

    /// Returns true if the address is in the prefix.
    pub(super) fn holds(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Prefix { address, ..self }.network() == self.network()
    }
}

/// The treatment of packets that take the route, as in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Forward,
    Blackhole,
    Unreachable,
}

impl Kind {
    pub(super) fn parse(word: &str) -> Option<Kind> {
        match word {
            "unicast" => Some(Kind::Forward),
            "blackhole" => Some(Kind::Blackhole),
            "unreachable" => Some(Kind::Unreachable),
            _ => None,
        }
    }
}

/// A route as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteLine<'a> {
    pub kind: Kind,
    pub to: Prefix,
    pub via: Option<IpAddr>,
    pub port: Option<&'a str>,
}

/// Reads one line. `None`: nothing on it but space or a comment.
pub(super) fn parse_line(line: &str) -> Result<Option<RouteLine<'_>>, String> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let Some(mut word) = words.next() else {
        return Ok(None);
    };
    let mut kind = Kind::Forward;
    if let Some(written) = Kind::parse(word) {
        kind = written;
        word = words
            .next()
            .ok_or_else(|| format!("a prefix must follow '{word}'"))?;
    }
    let to = word;
    let (mut via, mut port) = (None, None);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("'{word}' needs a value"))?;
        match word {
            "via" if via.is_none() => {
                via = Some(
                    value
                        .parse()
                        .map_err(|_| format!("gateway '{value}' is not an IP address"))?,
                );
            }
            "dev" if port.is_none() => port = Some(value),
            "via" | "dev" => return Err(format!("'{word}' is given twice")),
            _ => {
                return Err(format!(
                    "unknown word '{word}'; a route is: PREFIX [via GATEWAY] [dev PORT]"
                ));
            }
        }
    }
    let to = destination(to, via)?;
    Ok(Some(RouteLine {
        kind,
        to,
        via,
        port,
    }))
}

/// `default` is of the gateway's family, IPv4 without one.
pub(super) fn destination(text: &str, via: Option<IpAddr>) -> Result<Prefix, String> {
    match (text, via) {
        ("default", Some(IpAddr::V6(_))) => Prefix::parse("::/0"),
        ("default", _) => Prefix::parse("0.0.0.0/0"),
        _ => Prefix::parse(text),
    }
    .map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(line: &str) -> RouteLine<'_> {
        parse_line(line).expect("valid").expect("a route")
    }

    #[test]
    fn reads_what_ip_route_prints() {
        let all = route("10.0.0.0/8 via 192.0.2.1 dev left # upstream");
        assert_eq!(all.to, Prefix::parse("10.0.0.0/8").unwrap());
        assert_eq!(
            (all.via, all.port),
            ("192.0.2.1".parse().ok(), Some("left"))
        );
        assert_eq!(route("10.0.0.1 dev p0").to.length, 32);
        assert_eq!(route("blackhole 10.0.0.0/8").kind, Kind::Blackhole);
        assert_eq!(route("unreachable ::/0").kind, Kind::Unreachable);
        assert_eq!(
            route("default via fe80::1 dev p0").to.address,
            IpAddr::from([0u16; 8])
        );
        assert_eq!(parse_line("   # nothing"), Ok(None));
    }

    #[test]
    fn says_what_is_wrong() {
        let error = |line| parse_line(line).unwrap_err();
        assert!(error("10.0.0.1/8 dev p0").contains("network is 10.0.0.0/8"));
        assert!(error("10.0.0.0/33 dev p0").contains("0 to 32"));
        assert!(error("10.0.0.0/8 via").contains("needs a value"));
        assert!(error("10.0.0.0/8 via x").contains("'x' is not an IP address"));
        assert!(error("10.0.0.0/8 metric 5").contains("unknown word 'metric'"));
        assert!(error("10.0.0.0/8 dev a dev b").contains("twice"));
        assert!(error("blackhole").contains("prefix must follow"));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in ".{0,60}") {
            let _ = parse_line(&line);
        }
    }
}
