//! The network functions by name: the one place that lists them all.

use crate::function::{Builder, ConfigError, NetworkFunction, PortInfo};
use crate::{bridge, counter, firewall, limiter, mirror, nat, router, signature, vlan};
use alloc::boxed::Box;
use nfluid_ring::Level;
use serde_json::Value;

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in a deployment: `nf: bridge`.
    pub name: &'static str,
    /// A line for `nfluid` help texts.
    pub summary: &'static str,
    /// Fewest and most ports.
    pub ports: (usize, usize),
    /// Keys of the configuration that have the NF's own IP addresses: no other instance may have these addresses.
    pub addresses: &'static [&'static str],
    /// Kind of frames that the NF takes: frames as on a wire, also with partial checksums, or also super-frames. The platform hands
    /// no frame of a higher level to the NF.
    pub frames: Level,
    /// Builds an instance of the NF. The platform also validates configurations by it.
    pub build: Builder,
}

/// All network functions, in alphabetical order.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "bridge",
        summary: "connects two ports",
        ports: (2, 2),
        addresses: &[],
        frames: Level::Super,
        build: bridge::build,
    },
    Entry {
        name: "counter",
        summary: "passes everything, counts by ethertype, protocol and size",
        ports: (2, 2),
        addresses: &[],
        frames: Level::Super,
        build: counter::build,
    },
    Entry {
        name: "firewall",
        summary: "filters by ordered rules, with states",
        ports: (2, 2),
        addresses: &[],
        frames: Level::Super,
        build: firewall::build,
    },
    Entry {
        name: "limiter",
        summary: "limits rates by token buckets: RFC 2697, RFC 2698",
        ports: (2, 2),
        addresses: &[],
        frames: Level::Super,
        build: limiter::build,
    },
    Entry {
        name: "mirror",
        summary: "passes everything, copies what matches to a port or to memory",
        ports: (2, 3),
        addresses: &[],
        frames: Level::Super,
        build: mirror::build,
    },
    Entry {
        name: "nat",
        summary: "hides inside hosts behind few addresses: NAPT44 by RFC 4787, 5382, 5508",
        ports: (2, 2),
        addresses: &["pool"],
        frames: Level::Super,
        build: nat::build,
    },
    Entry {
        name: "router",
        summary: "forwards IPv4 and IPv6 by longest prefix, with ARP and neighbour discovery",
        ports: (2, 8),
        addresses: &["addresses"],
        frames: Level::Super,
        build: router::build,
    },
    Entry {
        name: "signature",
        summary: "hashes the first 64 bytes of each frame, drops forbidden hashes",
        ports: (2, 2),
        addresses: &[],
        frames: Level::Plain,
        build: signature::build,
    },
    Entry {
        name: "vlan",
        summary: "pushes, pops and translates 802.1Q and 802.1ad tags",
        ports: (2, 2),
        addresses: &[],
        frames: Level::Super,
        build: vlan::build,
    },
];

/// Finds an NF by name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// Builds the NF `name`.
///
/// # Errors
/// An unknown name, a wrong number of ports, or a configuration that the NF refuses.
pub fn build(
    name: &str,
    config: &Value,
    ports: &[PortInfo],
) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let entry = find(name).ok_or_else(|| unknown(name))?;
    entry.on(config, ports)
}

/// The error of a name that no NF has.
pub fn unknown(name: &str) -> ConfigError {
    let known: alloc::vec::Vec<_> = ENTRIES.iter().map(|e| e.name).collect();
    ConfigError::at(
        "nf",
        alloc::format!("unknown NF '{name}'; there are: {}", known.join(", ")),
    )
}

impl Entry {
    /// Builds the NF on these ports.
    ///
    /// # Errors
    /// A wrong number of ports, or a configuration that the NF refuses.
    pub fn on(
        &self,
        config: &Value,
        ports: &[PortInfo],
    ) -> Result<Box<dyn NetworkFunction>, ConfigError> {
        let (name, (fewest, most)) = (self.name, self.ports);
        if !(fewest..=most).contains(&ports.len()) {
            return Err(ConfigError::at(
                "ports",
                alloc::format!(
                    "NF '{name}' takes {fewest} to {most} ports, not {}",
                    ports.len()
                ),
            ));
        }
        (self.build)(config, ports)
    }
}
