//! The classifier of an uplink: which port takes a frame that its interface has received.
//!
//! Rules are tried in order, the first that matches wins. A table is never changed, only replaced
//! as a whole, in one step: no frame sees half of it. Where there are more than eight rules, the
//! program keeps a cache of flows for this uplink, whose entries count only for the table that they come from.

use crate::SwitchError;
use crate::abi::{ETHER_IPV4, ETHER_IPV6, PORTS_MAX};
use crate::client::ClientRule;
use crate::maps::create_map;
use crate::program::Switch;
use crate::tables::insert;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most rules of one uplink.
pub const RULES_MAX: usize = 16384;
/// Rules that are tried one by one faster than a flow is looked up.
const UNCACHED_MAX: usize = 8;
/// Remembered flows of an uplink, bytes of the key and of the decision: NFL_FLOWS_MAX, `struct nfl_flow`, `struct
/// nfl_decision`.
const FLOWS_MAX: u32 = 65536;
const FLOW_BYTES: u32 = 48;
const DECISION_BYTES: u32 = 8;

const RULE_BYTES: usize = 96;
const VLAN_ANY: u16 = 0xffff;
const HAS_IP: u8 = 1 << 0;
const HAS_PORTS: u8 = 1 << 1;

/// Addresses from a prefix on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// An address of it; bits behind the prefix do not matter.
    pub address: IpAddr,
    /// The length of the prefix in bits.
    pub len: u8,
}

/// Which VLAN a frame must be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VlanMatch {
    /// Any, or none.
    #[default]
    Any,
    /// No tag, or one with VLAN id 0.
    Untagged,
    /// Frames with this id in the outer tag.
    Id(u16),
}

/// A rule: a frame matches if every field does. A field of the IP header matches only frames that
/// have one, ports only TCP, UDP and SCTP, of fragments only the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// EtherType behind the tags.
    pub ether: Option<u16>,
    /// VLAN.
    pub vlan: VlanMatch,
    /// Source address.
    pub src: Option<Prefix>,
    /// Destination address.
    pub dst: Option<Prefix>,
    /// IP protocol; of IPv6 behind hop-by-hop, destination-options and fragment headers.
    pub proto: Option<u8>,
    /// Source ports.
    pub sport: Option<RangeInclusive<u16>>,
    /// Destination ports.
    pub dport: Option<RangeInclusive<u16>>,
    /// The port that takes the frame; `None`: it is dropped, or left to the host, as `no_route`.
    pub to: Option<u32>,
    /// Instead of one port, each client has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientRule>,
}

/// The generations of all tables that this process makes: no two tables have the same. A later daemon starts
/// elsewhere.
static GENERATION: AtomicU32 = AtomicU32::new(0);

fn next_generation() -> u32 {
    let start = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_nsec as u32;
    let _set_once = GENERATION.compare_exchange(0, start | 1, Ordering::Relaxed, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed)
}

impl Rule {
    /// The bytes of `struct nfl_rule`. `None` if nothing can match: the fields contradict each
    /// other.
    fn encode(&self, count: u32, generation: u32) -> Option<[u8; RULE_BYTES]> {
        let family = self.family()?;
        let mut bytes = [0u8; RULE_BYTES];
        put_prefix(&mut bytes[0..32], self.src);
        put_prefix(&mut bytes[32..64], self.dst);
        let mut needs = 0;
        if self.src.is_some() || self.dst.is_some() || self.proto.is_some() {
            needs |= HAS_IP;
        }
        for (at, range) in [(64, &self.sport), (68, &self.dport)] {
            let (first, last) = range
                .as_ref()
                .map_or((0, u16::MAX), |r| (*r.start(), *r.end()));
            if range.is_some() {
                needs |= HAS_IP | HAS_PORTS;
            }
            bytes[at..at + 2].copy_from_slice(&first.to_ne_bytes());
            bytes[at + 2..at + 4].copy_from_slice(&last.to_ne_bytes());
        }
        bytes[72..74].copy_from_slice(&family.unwrap_or(0).to_be_bytes());
        let vlan = match self.vlan {
            VlanMatch::Any => VLAN_ANY,
            VlanMatch::Untagged => 0,
            VlanMatch::Id(id) => id & 0xfff,
        };
        bytes[74..76].copy_from_slice(&vlan.to_ne_bytes());
        bytes[76] = self.proto.unwrap_or(0);
        bytes[77] = u8::from(self.proto.is_some());
        bytes[78] = needs;
        let to = match self.clients {
            Some(clients) => clients.encode(),
            None => self.to.unwrap_or(PORTS_MAX),
        };
        let words = [to, count, generation];
        for (at, word) in [80, 84, 88].into_iter().zip(words) {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        Some(bytes)
    }

    /// The EtherType that the rule asks for, also by its addresses. `None`: two different ones.
    pub fn family(&self) -> Option<Option<u16>> {
        let of_prefix = |prefix: Prefix| match prefix.address {
            IpAddr::V4(_) => ETHER_IPV4,
            IpAddr::V6(_) => ETHER_IPV6,
        };
        let asked = [self.ether, self.src.map(of_prefix), self.dst.map(of_prefix)];
        let mut asked = asked.into_iter().flatten();
        let first = asked.next();
        asked.all(|other| Some(other) == first).then_some(first)
    }
}

/// Sixteen bytes of address, sixteen of mask; IPv4 has the first four.
fn put_prefix(bytes: &mut [u8], prefix: Option<Prefix>) {
    let Some(prefix) = prefix else { return };
    let put = |bytes: &mut [u8], octets: &[u8]| {
        for (i, octet) in octets.iter().enumerate() {
            let ones = usize::from(prefix.len).saturating_sub(i * 8).min(8);
            let mask = (0xff00u16 >> ones) as u8;
            bytes[i] = octet & mask;
            bytes[16 + i] = mask;
        }
    };
    match prefix.address {
        IpAddr::V4(address) => put(bytes, &address.octets()),
        IpAddr::V6(address) => put(bytes, &address.octets()),
    }
}

impl Switch {
    /// Replaces the rules of the uplink whose port is `port`, in one step. The rules are in use while the port is
    /// connected to [`crate::Destination::Classifier`].
    ///
    /// # Errors
    /// More than [`RULES_MAX`] rules, a rule that names no port, or the kernel refuses.
    pub fn set_rules(&self, port: u32, rules: &[Rule]) -> Result<(), SwitchError> {
        if rules.len() > RULES_MAX || port >= PORTS_MAX {
            return Err(SwitchError::Limit(format!(
                "port {port}: a classifier has at most {RULES_MAX} rules, not {}",
                rules.len()
            )));
        }
        if let Some(bad) = rules
            .iter()
            .filter_map(|r| r.to)
            .find(|to| *to >= PORTS_MAX)
        {
            return Err(SwitchError::Limit(format!(
                "a rule names port {bad}, which cannot be"
            )));
        }
        let generation = next_generation();
        let possible = rules.iter().filter(|rule| rule.family().is_some());
        let count = possible.clone().count() as u32;
        let mut table: Vec<u8> = possible
            .filter_map(|rule| rule.encode(count, generation))
            .flatten()
            .collect();
        // The count is in the rules: an empty table still has one, which is not counted.
        if table.is_empty() {
            table.extend(Rule::default().encode(0, generation).into_iter().flatten());
        }
        let map = self.rule_table(&table)?;
        insert(
            self.map("nfl_rules")?,
            &[(port, map.as_fd())],
            "entering the rules",
        )?;
        self.set_flow_cache(port, count as usize > UNCACHED_MAX)
    }

    /// Gives the uplink a cache of flows of its own, if it has none yet, or takes it away.
    fn set_flow_cache(&self, port: u32, is_wanted: bool) -> Result<(), SwitchError> {
        let caches = self.map("nfl_flows")?;
        match (is_wanted, self.flow_cache(port)?) {
            (true, None) => {
                let sizes = (FLOW_BYTES, DECISION_BYTES, FLOWS_MAX);
                let cache = create_map(MapType::LruHash, "nfl_flow_map", sizes, 0)?;
                let entry = [(port, cache.as_fd())];
                insert(caches, &entry, "entering the flow cache")
            }
            (false, Some(_)) => caches
                .delete(&port.to_ne_bytes())
                .map_err(SwitchError::bpf("removing the flow cache")),
            _ => Ok(()),
        }
    }

    /// The number of the uplink's flow cache, if it has one.
    fn flow_cache(&self, port: u32) -> Result<Option<u32>, SwitchError> {
        let found = self
            .map("nfl_flows")?
            .lookup(&port.to_ne_bytes(), MapFlags::ANY)
            .map_err(SwitchError::bpf("looking for the flow cache"))?;
        let number = found.and_then(|bytes| bytes.try_into().ok());
        Ok(number.map(u32::from_ne_bytes))
    }

    /// Returns the number of flows that are remembered for the uplink whose port is `port`. `None`: the uplink has so
    /// few rules that no flows are remembered.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remembered_flows(&self, port: u32) -> Result<Option<usize>, SwitchError> {
        let Some(number) = self.flow_cache(port)? else {
            return Ok(None);
        };
        let cache =
            MapHandle::from_map_id(number).map_err(SwitchError::bpf("opening the flow cache"))?;
        Ok(Some(cache.keys().count()))
    }

    fn rule_table(&self, table: &[u8]) -> Result<MapHandle, SwitchError> {
        let entries = (table.len() / RULE_BYTES) as u32;
        let map = create_map(
            MapType::Array,
            "nfl_rule_table",
            (4, RULE_BYTES as u32, entries),
            libbpf_sys::BPF_F_INNER_MAP,
        )?;
        let keys: Vec<u8> = (0..entries).flat_map(u32::to_ne_bytes).collect();
        map.update_batch(&keys, table, entries, MapFlags::ANY, MapFlags::ANY)
            .map_err(SwitchError::bpf("writing a table of rules"))?;
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Option<Prefix> {
        let (address, len) = text.split_once('/').expect("a slash");
        Some(Prefix {
            address: address.parse().expect("an address"),
            len: len.parse().expect("a length"),
        })
    }

    #[test]
    fn prefixes_are_masked() {
        let rule = Rule {
            src: prefix("10.1.255.7/20"),
            dst: prefix("0.0.0.0/0"),
            ..Rule::default()
        };
        let bytes = rule.encode(1, 2).expect("possible");
        assert_eq!(bytes[..4], [10, 1, 240, 0]);
        assert_eq!(bytes[16..20], [255, 255, 240, 0]);
        assert_eq!(bytes[32..64], [0; 32]);
        assert_eq!(bytes[72..74], [0x08, 0x00]);
        assert_eq!(bytes[78], HAS_IP);
    }

    // promise: 2.9
    #[test]
    fn contradictions_match_nothing() {
        let mixed = Rule {
            src: prefix("10.0.0.0/8"),
            dst: prefix("2001:db8::/32"),
            ..Rule::default()
        };
        assert_eq!(mixed.encode(1, 1), None);
        let arp = Rule {
            ether: Some(0x0806),
            src: prefix("10.0.0.0/8"),
            ..Rule::default()
        };
        assert_eq!(arp.encode(1, 1), None);
    }

    #[test]
    fn generations_differ() {
        assert_ne!(next_generation(), next_generation());
    }
}
