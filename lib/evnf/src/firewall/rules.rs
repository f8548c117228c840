//! Conditions of rules: addresses, protocol, ports.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Bits of an address.
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// Returns the version of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// The first bits of an address or of a port; the bits behind them are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The bits, from the most significant one of the 128 on.
    pub bits: u128,
    /// Number of bits.
    pub len: u8,
}

impl Prefix {
    /// Returns the bits of an address.
    pub fn of_address(address: IpAddr, len: u8) -> Self {
        let bits = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let mask = Prefix { bits: 0, len }.mask();
        Prefix {
            bits: bits & mask,
            len,
        }
    }

    /// Returns ones where a bit counts.
    pub fn mask(self) -> u128 {
        u128::MAX
            .checked_shl(128 - u32::from(self.len))
            .unwrap_or(0)
    }
}

/// The prefixes that together hold exactly the numbers of a range (not empty), of `bits` bits each: at most `2 * bits -
/// 2`.
pub fn prefixes_of(range: &RangeInclusive<u128>, bits: u8) -> Vec<Prefix> {
    let shift = 128 - u32::from(bits);
    let (mut first, last) = (*range.start(), *range.end());
    let mut found = Vec::new();
    loop {
        // The largest block that begins here and does not go beyond the end.
        let mut free = first.trailing_zeros().min(u32::from(bits));
        while last - first < ones(free) {
            free -= 1;
        }
        found.push(Prefix {
            bits: first.checked_shl(shift).unwrap_or(0),
            len: bits - free as u8,
        });
        match first
            .checked_add(ones(free))
            .and_then(|end| end.checked_add(1))
        {
            Some(next) if next <= last => first = next,
            _ => return found,
        }
    }
}

/// The number whose last `free` bits are ones.
fn ones(free: u32) -> u128 {
    u128::MAX.checked_shr(128 - free).unwrap_or(0)
}

/// Packets of one IP version whose fields all have the given values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// IP version.
    pub family: Family,
    /// Source address.
    pub src: Prefix,
    /// Destination address.
    pub dst: Prefix,
    /// IP protocol; `None`: any.
    pub proto: Option<u8>,
    /// Source port, in the first 16 bits.
    pub sport: Prefix,
    /// Destination port, in the first 16 bits.
    pub dport: Prefix,
    /// True if the packet must have ports, whatever they are.
    pub ports: bool,
}

impl Pattern {
    /// All packets of an IP version.
    pub fn any(family: Family) -> Self {
        Pattern {
            family,
            src: Prefix::default(),
            dst: Prefix::default(),
            proto: None,
            sport: Prefix::default(),
            dport: Prefix::default(),
            ports: false,
        }
    }
}

/// The verdict of a rule on the packets that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// The packets pass this stage.
    Accept = 0,
    /// The packets are dropped.
    Drop = 1,
    /// Only the slow path can decide.
    Ask = 2,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule matches packets that match one of these patterns.
    pub patterns: Vec<Pattern>,
    /// The verdict on such packets.
    pub verdict: Verdict,
}

/// Which packets pass a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// All that come in, or go out.
    All,
    /// Packets that the host forwards.
    Forwarded,
    /// Packets for the host itself; on the way out, packets that the host has made.
    Local,
}

/// A chain of rules; the first rule that matches decides.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Which packets pass it.
    pub traffic: Traffic,
    /// The rules of the stage, in order. A packet that no rule matches is accepted.
    pub rules: Vec<Rule>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(prefixes: &[Prefix], bits: u8, number: u128) -> usize {
        let number = number << (128 - u32::from(bits));
        let inside = prefixes.iter().filter(|p| number & p.mask() == p.bits);
        inside.count()
    }

    #[test]
    fn everything_is_one_prefix() {
        assert_eq!(prefixes_of(&(0..=u128::MAX), 128).len(), 1);
        assert_eq!(prefixes_of(&(0..=65535), 16), [Prefix::default()]);
        assert_eq!(prefixes_of(&(1..=65534), 16).len(), 30);
    }

    proptest! {
        // promise: 15.3
        #[test]
        fn prefixes_hold_the_numbers_of_a_range_once(a: u16, b: u16, probe: u16) {
            let range = u128::from(a.min(b))..=u128::from(a.max(b));
            let prefixes = prefixes_of(&range, 16);
            prop_assert!(prefixes.len() <= 30);
            for number in [probe, a, b] {
                let number = u128::from(number);
                prop_assert_eq!(holds(&prefixes, 16, number), usize::from(range.contains(&number)));
            }
        }

        #[test]
        fn the_end_of_the_numbers_is_no_end_of_the_search(a: u128) {
            let prefixes = prefixes_of(&(a..=u128::MAX), 128);
            prop_assert!(prefixes.len() <= 128);
            prop_assert_eq!(holds(&prefixes, 128, u128::MAX), 1);
            prop_assert_eq!(holds(&prefixes, 128, a), 1);
            prop_assert_eq!(holds(&prefixes, 128, a.wrapping_sub(1)), usize::from(a == 0));
        }
    }
}
