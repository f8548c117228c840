//! Ranges of IP addresses and of ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{SpecError, serde_as_text};

/// Consecutive addresses of one family.
///
/// Text: `198.18.0.1`, `198.18.0.1-198.18.0.254`, `198.18.0.0/24` (the whole block, its first and
/// last address included), and the same for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

serde_as_text!(AddressRange);

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl AddressRange {
    /// The addresses from `first` to `last`, both included.
    ///
    /// # Errors
    /// When they are of different families or `last` comes before `first`.
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, SpecError> {
        let fail = |reason| SpecError::new("addresses", &format!("{first}-{last}"), reason);
        if first.is_ipv4() != last.is_ipv4() {
            return Err(fail("one end is IPv4 and the other IPv6"));
        }
        if first > last {
            return Err(fail("the range runs downwards"));
        }
        Ok(AddressRange { first, last })
    }

    /// Returns true if these are IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Number of addresses, at most `u64::MAX`.
    pub fn len(&self) -> u64 {
        let span = to_bits(self.last) - to_bits(self.first);
        u64::try_from(span).map_or(u64::MAX, |span| span.saturating_add(1))
    }

    /// Never true: a range has at least one address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address `index` places behind the first, starting again when the range ends.
    pub fn get(&self, index: u64) -> IpAddr {
        let bits = to_bits(self.first) + u128::from(index % self.len());
        match self.first {
            IpAddr::V4(_) => Ipv4Addr::from_bits(bits as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for AddressRange {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let fail = |reason: &str| SpecError::new("addresses", text, reason);
        let address = |part: &str| {
            part.parse::<IpAddr>()
                .map_err(|_| fail("write an address, first-last or a prefix such as 198.18.0.0/24"))
        };
        if let Some((first, last)) = text.split_once('-') {
            return AddressRange::new(address(first)?, address(last)?);
        }
        let Some((base, length)) = text.split_once('/') else {
            let only = address(text)?;
            return AddressRange::new(only, only);
        };
        let base = address(base)?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        let length = match length.parse::<u32>() {
            Ok(length) if length <= width => length,
            _ => return Err(fail("the prefix length is beyond the address")),
        };
        let host = 1u128
            .checked_shl(width - length)
            .map_or(u128::MAX, |size| size - 1);
        let (first, last) = (to_bits(base) & !host, to_bits(base) | host);
        match base {
            IpAddr::V4(_) => AddressRange::new(
                Ipv4Addr::from_bits(first as u32).into(),
                Ipv4Addr::from_bits(last as u32).into(),
            ),
            IpAddr::V6(_) => AddressRange::new(
                Ipv6Addr::from_bits(first).into(),
                Ipv6Addr::from_bits(last).into(),
            ),
        }
    }
}

/// Consecutive UDP or TCP ports. Text: `9` or `1024-65535`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

serde_as_text!(PortRange);

impl PortRange {
    /// The ports from `first` to `last`, both included; the other way round when `last` is lower.
    pub fn new(first: u16, last: u16) -> Self {
        PortRange {
            first: first.min(last),
            last: first.max(last),
        }
    }

    /// Number of ports.
    pub fn len(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    /// Never true: a range has at least one port.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The port `index` places behind the first, starting again when the range ends.
    pub fn get(&self, index: u64) -> u16 {
        self.first + (index % self.len()) as u16
    }
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
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let fail = |reason: &str| SpecError::new("ports", text, reason);
        let port = |part: &str| {
            part.parse::<u16>()
                .map_err(|_| fail("write a port 0 to 65535 or first-last"))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(fail("the range runs downwards"));
        }
        Ok(PortRange { first, last })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_and_ranges() {
        let block = addresses("198.18.7.9/24");
        assert_eq!(block.to_string(), "198.18.7.0-198.18.7.255");
        assert_eq!(block.get(256), block.get(0));
        assert_eq!(addresses("0.0.0.0/0").len(), 1 << 32);
        assert_eq!(addresses("::/0").len(), u64::MAX);
        assert_eq!(
            addresses("2001:2::ffff-2001:2::1:0").get(1).to_string(),
            "2001:2::1:0"
        );
    }

    #[test]
    fn refusals_say_why() {
        for (text, reason) in [
            ("198.18.0.2-198.18.0.1", "downwards"),
            ("198.18.0.1-2001:2::1", "IPv6"),
            ("198.18.0.0/33", "beyond"),
            ("2001:2::/129", "beyond"),
            ("host", "write"),
        ] {
            let error = text.parse::<AddressRange>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for text in ["", "65536", "2-1", "1-2-3"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(a: u128, b: u128, v4: bool, p: u16, q: u16) {
            let address = |bits: u128| -> IpAddr {
                if v4 { Ipv4Addr::from_bits(bits as u32).into() }
                else { Ipv6Addr::from_bits(bits).into() }
            };
            let (first, last) = (address(a).min(address(b)), address(a).max(address(b)));
            let range = AddressRange::new(first, last).unwrap();
            prop_assert_eq!(range.to_string().parse::<AddressRange>().unwrap(), range);
            let ports = PortRange::new(p, q);
            prop_assert_eq!(ports.to_string().parse::<PortRange>().unwrap(), ports);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f.:/-]{0,50}") {
            let _ = text.parse::<AddressRange>();
            let _ = text.parse::<PortRange>();
        }
    }
}
