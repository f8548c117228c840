//! The configuration of `nf: guard`.

use super::Guarding;
use crate::config::{check_place, read, wrong};
use crate::error::failed;
use crate::function::{FastFunction, FunctionConfig, Site};
use crate::record::Numbers;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::NfConfigError;
use nfluid_evnf::guard::{ENDS_MAX, Limit, PACKETS_MAX, Settings, Sizes};
use nfluid_netdev::Place;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::net::SocketAddr;

/// Largest number of entries of a table.
const ENTRIES_MAX: u32 = 1 << 24;
/// Every IPv6 link carries packets of 1280 bytes; Ethernet jumbo frames carry at most 9216 bytes.
const MTU: std::ops::RangeInclusive<u16> = 1280..=9216;
/// The value of `net.ipv4.tcp_syncookies` with which the kernel's sockets always accept cookies.
const ALWAYS: &str = "2";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GuardText {
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    prefix: Prefix,
    #[serde(default)]
    syn: Option<Value>,
    #[serde(default)]
    tables: Tables,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    source: Option<LimitText>,
    destination: Option<LimitText>,
    unknown: Option<LimitText>,
    unreadable: Option<LimitText>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitText {
    packets: u32,
    #[serde(default)]
    burst: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Prefix {
    ipv4: u8,
    ipv6: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SynText {
    protect: Vec<SocketAddr>,
    #[serde(default)]
    to_kernel: Option<LimitText>,
    #[serde(default)]
    mtu: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tables {
    sources: u32,
    connections: u32,
}

impl Default for Prefix {
    fn default() -> Self {
        let (ipv4, ipv6) = Settings::default().prefixes;
        Prefix { ipv4, ipv6 }
    }
}

impl Default for Tables {
    fn default() -> Self {
        let Sizes {
            sources,
            connections,
        } = Sizes::default();
        Tables {
            sources,
            connections,
        }
    }
}

/// A parsed configuration.
pub struct GuardConfig(Settings);

impl GuardConfig {
    /// Parses the configuration.
    ///
    /// # Errors
    /// The first error in the configuration.
    pub fn read(config: &Value) -> Result<Self, NfConfigError> {
        settings(config).map(GuardConfig)
    }

    /// Returns the limits and options of the guard.
    pub fn settings(&self) -> &Settings {
        &self.0
    }
}

impl FunctionConfig for GuardConfig {
    fn sizes(&self) -> Vec<u32> {
        vec![self.0.sizes.sources, self.0.sizes.connections]
    }

    fn check_host(&self, places: &[Place]) -> Result<(), PlatformError> {
        takes_cookies(&self.0, places)
    }

    fn load(
        &self,
        site: &Site<'_>,
        _: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError> {
        Ok(Box::new(Guarding::load(&self.0, site.pins)?))
    }
}

fn settings(config: &Value) -> Result<Settings, NfConfigError> {
    let text: GuardText = read("", config)?;
    let limit = |name: &str, text: Option<LimitText>| {
        let path = format!("limits.{name}");
        text.map(|text| limit(&path, text)).transpose()
    };
    let mut settings = Settings {
        source: limit("source", text.limits.source)?,
        destination: limit("destination", text.limits.destination)?,
        unknown: limit("unknown", text.limits.unknown)?,
        unreadable: limit("unreadable", text.limits.unreadable)?,
        prefixes: (text.prefix.ipv4, text.prefix.ipv6),
        sizes: Sizes {
            sources: text.tables.sources,
            connections: text.tables.connections,
        },
        ..Settings::default()
    };
    for (name, bits, most) in [
        ("ipv4", text.prefix.ipv4, 32),
        ("ipv6", text.prefix.ipv6, 128),
    ] {
        if !(1..=most).contains(&bits) {
            let message = format!("{bits} bits; write 1 to {most}");
            return Err(wrong(format!("prefix.{name}"), message));
        }
    }
    for (name, entries) in [
        ("sources", text.tables.sources),
        ("connections", text.tables.connections),
    ] {
        if !(1..=ENTRIES_MAX).contains(&entries) {
            let message = format!("{entries} entries; write 1 to {ENTRIES_MAX}");
            return Err(wrong(format!("tables.{name}"), message));
        }
    }
    if let Some(syn) = &text.syn {
        protect(&mut settings, &read("syn", syn)?)?;
    }
    if settings.unknown.is_some() && settings.ends.is_empty() {
        let message = "who is known has acknowledged a cookie: it needs 'syn.protect'";
        return Err(wrong("limits.unknown", message));
    }
    Ok(settings)
}

fn limit(path: &str, text: LimitText) -> Result<Limit, NfConfigError> {
    let LimitText { packets, burst } = text;
    // Default burst: the packets of one second.
    let burst = burst.unwrap_or(packets);
    for (name, number) in [("packets", packets), ("burst", burst)] {
        if !(1..=PACKETS_MAX).contains(&number) {
            let message = format!("{number}; write 1 to {PACKETS_MAX}");
            return Err(wrong(format!("{path}.{name}"), message));
        }
    }
    Ok(Limit { packets, burst })
}

fn protect(settings: &mut Settings, syn: &SynText) -> Result<(), NfConfigError> {
    let mut seen = HashSet::new();
    for (number, end) in syn.protect.iter().enumerate() {
        let path = format!("syn.protect[{number}]");
        check_place(&path, *end)?;
        if !seen.insert(end) {
            return Err(wrong(path, format!("{end} is in the list already")));
        }
    }
    if syn.protect.is_empty() || syn.protect.len() > ENDS_MAX {
        let message = format!("{} ends; write 1 to {ENDS_MAX}", syn.protect.len());
        return Err(wrong("syn.protect", message));
    }
    settings.ends.clone_from(&syn.protect);
    if let Some(to_kernel) = syn.to_kernel {
        settings.syns = limit("syn.to_kernel", to_kernel)?;
    }
    if let Some(mtu) = syn.mtu {
        if !MTU.contains(&mtu) {
            let message = format!("{mtu} bytes; write {} to {}", MTU.start(), MTU.end());
            return Err(wrong("syn.mtu", message));
        }
        settings.mtu = mtu;
    }
    Ok(())
}

/// Checks that the host of these interfaces, all of one namespace, accepts the cookies that are sent in its name.
///
/// # Errors
/// When the host does not; the error has the remedy.
pub fn takes_cookies(settings: &Settings, places: &[Place]) -> Result<(), PlatformError> {
    let Some(place) = places.first().filter(|_| !settings.ends.is_empty()) else {
        return Ok(());
    };
    let read = place.within(|| Ok(std::fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies")));
    let read = read.map_err(|error| failed(&error))?;
    let value = read.as_deref().map_or("missing", str::trim);
    if value == ALWAYS {
        return Ok(());
    }
    let message = format!(
        "net.ipv4.tcp_syncookies is {value}: the kernel's sockets would not always take the cookies by which SYNs are answered"
    );
    Err(
        PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(
            "sysctl -w net.ipv4.tcp_syncookies=2 in the interface's namespace, or leave 'syn' out",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits_and_ends_are_read_with_their_defaults() {
        let found = settings(&json!({
            "limits": { "source": { "packets": 500 }, "unknown": { "packets": 9, "burst": 2 } },
            "prefix": { "ipv6": 56 },
            "syn": { "protect": ["192.0.2.1:80", "[2001:db8::1]:80"] },
        }));
        let found = found.expect("it is right");
        let limit = |packets, burst| Some(Limit { packets, burst });
        assert_eq!(
            (found.source, found.unknown, found.destination),
            (limit(500, 500), limit(9, 2), None)
        );
        assert_eq!(found.prefixes, (32, 56));
        assert_eq!((found.ends.len(), found.mtu), (2, 1500));
        assert_eq!(settings(&json!({})).expect("it may"), Settings::default());
    }

    // promise: 15.33
    #[test]
    fn what_a_guard_cannot_keep_to_is_named() {
        for (config, path) in [
            (
                json!({ "limits": { "source": { "packets": 0 } } }),
                "limits.source.packets",
            ),
            (
                json!({ "limits": { "destination": { "packets": 1, "burst": 0 } } }),
                "limits.destination.burst",
            ),
            (
                json!({ "limits": { "unknown": { "packets": 1 } } }),
                "limits.unknown",
            ),
            (json!({ "prefix": { "ipv4": 33 } }), "prefix.ipv4"),
            (json!({ "tables": { "sources": 0 } }), "tables.sources"),
            (json!({ "syn": { "protect": [] } }), "syn.protect"),
            (
                json!({ "syn": { "protect": ["0.0.0.0:80"] } }),
                "syn.protect[0]",
            ),
            (
                json!({ "syn": { "protect": ["192.0.2.1:80", "192.0.2.1:80"] } }),
                "syn.protect[1]",
            ),
            (
                json!({ "syn": { "protect": ["192.0.2.1:80"], "mtu": 100 } }),
                "syn.mtu",
            ),
        ] {
            let error = settings(&config).expect_err("it is wrong");
            assert_eq!(error.path, path, "{config}: {}", error.message);
        }
    }
}
