//! IP prefixes as an operator writes them.

use alloc::format;
use alloc::string::String;
use core::net::IpAddr;
use nfluid_wire::L3;

/// An IPv4 or IPv6 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    v4: bool,
    network: u128,
    mask: u128,
}

impl Prefix {
    /// Reads `10.0.0.0/8`, `2001:db8::/32`, or one address.
    pub(crate) fn parse(text: &str) -> Result<Prefix, String> {
        let bad = || format!("'{text}' is not a prefix; write 10.0.0.0/8 or 2001:db8::/32");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let (v4, network, width) = match address {
            IpAddr::V4(address) => (true, u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (false, address.to_bits(), 128),
        };
        let length: u32 = length.map_or(Ok(width), str::parse).map_err(|_| bad())?;
        if length > width {
            return Err(bad());
        }
        let mask = u128::MAX.checked_shl(width - length).unwrap_or(0);
        if network & !mask != 0 {
            let cut = network & mask;
            let cut: IpAddr = match address {
                IpAddr::V4(_) => IpAddr::V4((cut as u32).into()),
                IpAddr::V6(_) => IpAddr::V6(cut.into()),
            };
            return Err(format!("'{text}' has host bits set; write {cut}/{length}"));
        }
        Ok(Prefix { v4, network, mask })
    }

    /// True for an IPv4 prefix.
    pub(crate) fn is_ipv4(self) -> bool {
        self.v4
    }

    /// True if the prefix is of IPv4 and holds this address, in host order.
    #[inline]
    pub(crate) fn contains_v4(self, address: u32) -> bool {
        self.v4 && u128::from(address) & self.mask == self.network
    }

    /// True if the prefix is of IPv6 and holds this address, in host order.
    #[inline]
    pub(crate) fn contains_v6(self, address: u128) -> bool {
        !self.v4 && address & self.mask == self.network
    }

    /// True if it holds the packet's source or destination.
    #[inline]
    pub(crate) fn touches(self, packet: L3) -> bool {
        match packet {
            L3::V4 { src, dst } => self.contains_v4(src) || self.contains_v4(dst),
            L3::V6 { src, dst } => self.contains_v6(src) || self.contains_v6(dst),
            L3::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn contains(prefix: &str, address: &str) -> bool {
        let prefix = Prefix::parse(prefix).unwrap();
        match address.parse().unwrap() {
            IpAddr::V4(address) => prefix.contains_v4(Ipv4Addr::to_bits(address)),
            IpAddr::V6(address) => prefix.contains_v6(Ipv6Addr::to_bits(address)),
        }
    }

    #[test]
    fn a_prefix_contains_its_addresses() {
        assert!(contains("10.1.0.0/16", "10.1.255.255"));
        assert!(!contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("0.0.0.0/0", "255.0.0.1"));
        assert!(contains("10.0.0.1", "10.0.0.1") && !contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!contains("2001:db8::/32", "2001:db9::"));
        assert!(contains("::/0", "2001:db8::1") && !contains("::/0", "10.0.0.1"));
        assert!(contains("::1", "::1") && !contains("::1", "::2"));
    }

    #[test]
    fn a_malformed_prefix_says_what_would_be_right() {
        let error = |text| Prefix::parse(text).unwrap_err();
        assert!(error("10.0.0.1/8").contains("10.0.0.0/8"));
        assert!(error("2001:db8::1/32").contains("2001:db8::/32"));
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/",
            "a/8",
            "10.0.0.0/-1",
            "::/129",
        ] {
            assert!(error(text).contains("not a prefix"), "{text}");
        }
    }
}
