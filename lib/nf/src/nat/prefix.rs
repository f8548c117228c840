//! IPv4 prefixes of inside hosts.

use alloc::format;
use alloc::string::String;
use core::net::Ipv4Addr;

/// An IPv4 prefix in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    network: u32,
    mask: u32,
}

impl Prefix {
    /// Reads `10.0.0.0/8`, or one address.
    pub(super) fn parse(text: &str) -> Result<Prefix, String> {
        let bad = || format!("'{text}' is not an IPv4 prefix; write 10.0.0.0/8");
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
        let length: u32 = length.parse().map_err(|_| bad())?;
        if length > 32 {
            return Err(bad());
        }
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let network = address.to_bits();
        if network & !mask != 0 {
            let cut = Ipv4Addr::from_bits(network & mask);
            return Err(format!("'{text}' has host bits set; write {cut}/{length}"));
        }
        Ok(Prefix { network, mask })
    }

    #[inline]
    pub(super) fn contains(self, address: u32) -> bool {
        address & self.mask == self.network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_its_addresses() {
        let contains = |prefix, address: [u8; 4]| {
            Prefix::parse(prefix)
                .unwrap()
                .contains(u32::from_be_bytes(address))
        };
        assert!(contains("10.1.0.0/16", [10, 1, 255, 255]));
        assert!(!contains("10.1.0.0/16", [10, 2, 0, 0]));
        assert!(contains("0.0.0.0/0", [255, 0, 0, 1]));
        assert!(contains("10.0.0.1", [10, 0, 0, 1]) && !contains("10.0.0.1", [10, 0, 0, 2]));
    }

    #[test]
    fn a_malformed_prefix_says_what_would_be_right() {
        assert!(
            Prefix::parse("10.0.0.1/8")
                .unwrap_err()
                .contains("10.0.0.0/8")
        );
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/",
            "a/8",
            "10.0.0.0/-1",
        ] {
            assert!(Prefix::parse(text).is_err(), "{text}");
        }
    }
}
