//! Configuration of a NAT.

use super::forward::Forward;
use super::ports::Ports;
use crate::bucket::Rate;
use crate::config;
use crate::function::ConfigError;
use crate::prefix::Prefix;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use serde::Deserialize;
use serde_json::Value;

/// Most pool addresses: each has 24 KiB of port bitmaps.
pub(super) const POOL_MAX: usize = 64;
/// Most static forwards.
pub(super) const FORWARDS_MAX: usize = 4096;
/// Most prefixes of inside hosts.
pub(super) const INSIDE_MAX: usize = 256;
const SESSIONS_MIN: usize = 16;
const SESSIONS_MAX: usize = 1 << 24;
const FRAGMENTS_MAX: usize = 65_536;
/// Most frames that wait on a side: 8 MiB.
const FRAGMENTS_WAITING_MAX: usize = 4096;

/// Which packets from outside a mapping lets in (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Filtering {
    /// From any end point.
    EndpointIndependent,
    /// From addresses that the inside host has sent to.
    #[default]
    AddressDependent,
    /// From addresses and ports that the inside host has sent to.
    AddressAndPort,
}

/// Which pool address a host's next mapping gets (RFC 4787 section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pooling {
    /// Always the host's first one.
    #[default]
    Paired,
    /// Another port when that port is not free.
    Arbitrary,
}

/// Treatment of frames that are not IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NonIpv4 {
    /// Such frames pass unchanged.
    #[default]
    Pass,
    /// ARP passes, the rest is dropped.
    ArpOnly,
    /// Such frames are dropped.
    Drop,
}

/// Treatment of IPv4 packets that the NAT does not translate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Untranslated {
    /// Such packets are dropped: no private address leaks.
    #[default]
    Drop,
    /// Such packets pass unchanged.
    Pass,
}

/// Idle timeouts in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    pub(super) tcp_established: u32,
    pub(super) tcp_transitory: u32,
    pub(super) udp: u32,
    pub(super) icmp: u32,
    pub(super) fragment: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_established: 7440,
            tcp_transitory: 240,
            udp: 300,
            icmp: 60,
            fragment: 30,
        }
    }
}

/// The configuration as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    pool: Vec<String>,
    ports: Option<String>,
    #[serde(default)]
    inside: Vec<String>,
    #[serde(default)]
    forward: Vec<String>,
    #[serde(default)]
    filtering: Filtering,
    #[serde(default)]
    pooling: Pooling,
    #[serde(default = "yes")]
    port_preservation: bool,
    #[serde(default)]
    port_parity: bool,
    #[serde(default = "default_sessions_max")]
    sessions_max: usize,
    #[serde(default)]
    host_sessions_max: Option<u32>,
    #[serde(default = "default_fragments_max")]
    fragments_max: usize,
    #[serde(default = "default_fragments_waiting")]
    fragments_waiting: usize,
    #[serde(default)]
    timeouts: Timeouts,
    #[serde(default)]
    inbound_refresh: bool,
    #[serde(default)]
    tcp_pickup: bool,
    #[serde(default)]
    tcp_liberal: bool,
    #[serde(default = "yes")]
    hairpin: bool,
    #[serde(default = "yes")]
    proxy_arp: bool,
    #[serde(default = "yes")]
    answer_pings: bool,
    #[serde(default)]
    icmp_errors: Rate,
    #[serde(default)]
    non_ipv4: NonIpv4,
    #[serde(default)]
    untranslated: Untranslated,
    #[serde(default)]
    seed: Option<u64>,
}

const fn yes() -> bool {
    true
}

const fn default_sessions_max() -> usize {
    65_536
}

const fn default_fragments_max() -> usize {
    1024
}

const fn default_fragments_waiting() -> usize {
    256
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// External addresses, no duplicates, at least one. First those of `pool`, then those that
    /// only forwards use.
    pub(super) pool: Vec<Ipv4Addr>,
    /// Number of addresses of `pool` for dynamic mappings.
    pub(super) dynamic: usize,
    pub(super) ports: Ports,
    /// Sources to translate; empty means all.
    pub(super) inside: Vec<Prefix>,
    pub(super) forwards: Vec<Forward>,
    pub(super) filtering: Filtering,
    pub(super) pooling: Pooling,
    pub(super) port_preservation: bool,
    pub(super) port_parity: bool,
    pub(super) sessions_max: usize,
    pub(super) host_sessions_max: u32,
    pub(super) fragments_max: usize,
    /// Frames that may wait for the first fragment of their datagram, on each side.
    pub(super) fragments_waiting: usize,
    pub(super) timeouts: Timeouts,
    pub(super) inbound_refresh: bool,
    pub(super) tcp_pickup: bool,
    pub(super) tcp_liberal: bool,
    pub(super) hairpin: bool,
    pub(super) proxy_arp: bool,
    pub(super) answer_pings: bool,
    /// ICMP errors that the NAT makes, on each port.
    pub(super) icmp_errors: Rate,
    pub(super) non_ipv4: NonIpv4,
    pub(super) untranslated: Untranslated,
    pub(super) seed: Option<u64>,
}

impl Config {
    /// Reads and checks a configuration.
    pub(super) fn parse(value: &Value) -> Result<Config, ConfigError> {
        let document: Document = config::parse(value)?;
        document.check_limits()?;
        let mut pool = parse_pool(&document.pool)?;
        let dynamic = pool.len();
        let forwards = parse_forwards(&document.forward)?;
        for (index, forward) in forwards.iter().enumerate() {
            if !pool.contains(&forward.external.addr()) {
                pool.push(forward.external.addr());
            }
            if pool.len() > POOL_MAX {
                let path = format!("forward[{index}]");
                let message = format!("pool and forwards use more than {POOL_MAX} addresses");
                return Err(ConfigError::at(path, message));
            }
        }
        Ok(Config {
            pool,
            dynamic,
            ports: parse_ports(document.ports.as_deref())?,
            inside: parse_inside(&document.inside)?,
            forwards,
            filtering: document.filtering,
            pooling: document.pooling,
            port_preservation: document.port_preservation,
            port_parity: document.port_parity,
            sessions_max: document.sessions_max,
            host_sessions_max: document.host_sessions_max.unwrap_or(u32::MAX),
            fragments_max: document.fragments_max,
            fragments_waiting: document.fragments_waiting,
            timeouts: document.timeouts,
            inbound_refresh: document.inbound_refresh,
            tcp_pickup: document.tcp_pickup,
            tcp_liberal: document.tcp_liberal,
            hairpin: document.hairpin,
            proxy_arp: document.proxy_arp,
            answer_pings: document.answer_pings,
            icmp_errors: document.icmp_errors,
            non_ipv4: document.non_ipv4,
            untranslated: document.untranslated,
            seed: document.seed,
        })
    }
}

impl Document {
    fn check_limits(&self) -> Result<(), ConfigError> {
        within("pool", self.pool.len(), 1, POOL_MAX)?;
        within("inside", self.inside.len(), 0, INSIDE_MAX)?;
        within("forward", self.forward.len(), 0, FORWARDS_MAX)?;
        within(
            "sessions_max",
            self.sessions_max,
            SESSIONS_MIN,
            SESSIONS_MAX,
        )?;
        within("fragments_max", self.fragments_max, 0, FRAGMENTS_MAX)?;
        within(
            "fragments_waiting",
            self.fragments_waiting,
            0,
            FRAGMENTS_WAITING_MAX,
        )?;
        if self.forward.len() > self.sessions_max {
            let message = format!(
                "{} forwards do not fit sessions_max {}",
                self.forward.len(),
                self.sessions_max
            );
            return Err(ConfigError::at("forward", message));
        }
        if self.host_sessions_max == Some(0) {
            return Err(ConfigError::at(
                "host_sessions_max",
                "0 would refuse every host; leave the key out for no quota",
            ));
        }
        let t = &self.timeouts;
        at_least("tcp_established", t.tcp_established, 7440, "RFC 5382 REQ-5")?;
        at_least("tcp_transitory", t.tcp_transitory, 240, "RFC 5382 REQ-5")?;
        at_least("udp", t.udp, 120, "RFC 4787 REQ-5")?;
        at_least("icmp", t.icmp, 60, "RFC 5508 REQ-2")?;
        at_least("fragment", t.fragment, 1, "a fragment needs some time")
    }
}

/// Longest timeout: a year.
const TIMEOUT_MAX: u32 = 365 * 24 * 3600;

fn at_least(key: &str, value: u32, least: u32, source: &str) -> Result<(), ConfigError> {
    if (least..=TIMEOUT_MAX).contains(&value) {
        return Ok(());
    }
    let message = format!("{value} s is not within {least} s ({source}) to {TIMEOUT_MAX} s");
    Err(ConfigError::at(format!("timeouts.{key}"), message))
}

fn within(key: &str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let message = format!("{value} is not within {least} to {most}");
    Err(ConfigError::at(key, message))
}

/// Addresses and ranges `A-B`, in order.
fn parse_pool(document: &[String]) -> Result<Vec<Ipv4Addr>, ConfigError> {
    let mut pool = vec![];
    for (index, text) in document.iter().enumerate() {
        let bad = |message: String| ConfigError::at(format!("pool[{index}]"), message);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |text: &str| {
            let address: Ipv4Addr = text.trim().parse().map_err(|_| {
                bad(format!(
                    "'{text}' is not an IPv4 address; write 203.0.113.1 or 203.0.113.1-203.0.113.8"
                ))
            })?;
            if !is_unicast(address) {
                return Err(bad(format!("{address} is not a unicast address")));
            }
            Ok(address.to_bits())
        };
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last {
            return Err(bad(format!("'{text}' ends before it begins")));
        }
        if (last - first) as usize >= POOL_MAX - pool.len() {
            return Err(bad(format!("more than {POOL_MAX} addresses in the pool")));
        }
        for address in (first..=last).map(Ipv4Addr::from_bits) {
            if pool.contains(&address) {
                return Err(bad(format!("{address} is in the pool twice")));
            }
            pool.push(address);
        }
    }
    Ok(pool)
}

/// An address that a host can have and a NAT may translate.
pub(super) fn is_unicast(address: Ipv4Addr) -> bool {
    !(address.octets()[0] == 0
        || address.is_loopback()
        || address.is_multicast()
        || address.octets()[0] >= 240)
}

fn parse_ports(text: Option<&str>) -> Result<Ports, ConfigError> {
    let Some(text) = text else {
        return Ok(Ports {
            range: 1024..=u16::MAX,
            well_known: true,
        });
    };
    let bad = || ConfigError::at("ports", format!("'{text}' is not a range like 1024-65535"));
    let (first, last) = text.split_once('-').ok_or_else(bad)?;
    let first: u16 = first.trim().parse().map_err(|_| bad())?;
    let last: u16 = last.trim().parse().map_err(|_| bad())?;
    if first == 0 || first > last {
        return Err(bad());
    }
    Ok(Ports {
        range: first..=last,
        well_known: false,
    })
}

fn parse_inside(document: &[String]) -> Result<Vec<Prefix>, ConfigError> {
    let numbered = document.iter().enumerate();
    numbered
        .map(|(index, text)| {
            let bad = |why: String| ConfigError::at(format!("inside[{index}]"), why);
            let prefix = Prefix::parse(text).map_err(bad)?;
            if prefix.is_ipv4() {
                Ok(prefix)
            } else {
                Err(bad(format!("'{text}' is IPv6; this NAT translates IPv4")))
            }
        })
        .collect()
}

fn parse_forwards(document: &[String]) -> Result<Vec<Forward>, ConfigError> {
    let mut forwards: Vec<Forward> = vec![];
    for (index, text) in document.iter().enumerate() {
        let bad = |why: String| ConfigError::at(format!("forward[{index}]"), why);
        let forward = Forward::parse(text).map_err(bad)?;
        let same = |other: &Forward| forward.protocol == other.protocol;
        if forwards
            .iter()
            .any(|other| same(other) && other.external == forward.external)
        {
            let taken = forward.external;
            return Err(bad(format!("{taken} is forwarded already")));
        }
        let inside = (forward.inside, forward.vlan);
        if forwards
            .iter()
            .any(|other| same(other) && (other.inside, other.vlan) == inside)
        {
            let target = forward.inside;
            return Err(bad(format!(
                "{target} has a forward already, and one inside end point has one external one"
            )));
        }
        forwards.push(forward);
    }
    Ok(forwards)
}
