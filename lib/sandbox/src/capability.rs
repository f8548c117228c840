//! Capabilities that an instance may have in a network namespace of its own (capabilities(7)).

use rustix::thread::CapabilitySet;
use std::fmt;

/// A set of capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

/// The capabilities that can be had: they concern the network namespace alone.
const KNOWN: [(&str, CapabilitySet); 3] = [
    ("NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
    ("NET_RAW", CapabilitySet::NET_RAW),
    ("NET_ADMIN", CapabilitySet::NET_ADMIN),
];

impl Capabilities {
    /// The names of the capabilities that can be had.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.into_iter().map(|(name, _)| name)
    }

    /// Adds a capability by its name; false: there is none of this name to be had.
    pub fn add(&mut self, name: &str) -> bool {
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        self.0 |= known.map_or(0, |(_, set)| set.bits());
        known.is_some()
    }

    /// The set as the kernel writes it.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The set of these bits, as far as they can be had.
    pub(crate) fn of_bits(bits: u64) -> Self {
        let all = KNOWN.iter().fold(0, |all, (_, set)| all | set.bits());
        Capabilities(bits & all)
    }

    /// The set as system calls take it.
    pub(crate) fn set(self) -> CapabilitySet {
        CapabilitySet::from_bits_truncate(self.0)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("no capabilities");
        }
        let had = KNOWN.iter().filter(|(_, set)| self.0 & set.bits() != 0);
        let names: Vec<_> = had.map(|(name, _)| *name).collect();
        write!(f, "capabilities {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 19.3
    #[test]
    fn what_concerns_more_than_a_network_namespace_cannot_be_had() {
        for name in ["SYS_ADMIN", "sys_admin", "SETUID", "", "net_admin"] {
            assert!(!Capabilities::default().add(name), "{name}");
        }
        assert_eq!(Capabilities::of_bits(u64::MAX).bits().count_ones(), 3);
        let mut one = Capabilities::default();
        assert!(one.add("NET_RAW"));
        assert_eq!(Capabilities::of_bits(one.bits()), one);
        assert_eq!(one.to_string(), "capabilities NET_RAW");
        assert_eq!(Capabilities::names().count(), 3);
    }
}
