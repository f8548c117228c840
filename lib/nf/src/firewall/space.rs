//! The space in which rules are boxes and packets are points: each thing that a rule can ask about
//! is a number on one of seven axes.

use super::interval::Set;
use super::packet::{Addresses, Packet, Transport};
use super::rule::{Family, ICMP, OneOf, Prefix, Protocol, Rule};
use nfluid_wire::flow::Fragment;

/// Source port axis: ports, then "no ports".
const NO_PORT: u32 = 0x1_0000;
/// Service axis: destination ports, "neither port nor ICMP", ICMP type and code, ICMPv6 likewise.
pub const SERVICE_MAX: u32 = 0x3_ffff;
const ICMP_V4: u32 = 0x2_0000;
const ICMP_V6: u32 = 0x3_0000;
/// Flags axis: the flags octet, then "not TCP".
pub const FLAGS_MAX: u32 = NO_FLAGS;
const NO_FLAGS: u32 = 0x100;
/// VLAN axis: identifiers, then "untagged".
pub const VLAN_MAX: u32 = UNTAGGED;
const UNTAGGED: u32 = 0x1000;
/// Kind axis: protocol (8 bits), fragment (2), arrival port (1), IP version (1).
pub const KIND_MAX: u32 = 0xfff;

/// Number on the source port axis.
#[inline]
pub fn src_port(packet: &Packet) -> u32 {
    match packet.transport {
        Transport::Tcp { src, .. } | Transport::Udp { src, .. } => u32::from(src),
        Transport::Icmp { .. } | Transport::Opaque => NO_PORT,
    }
}

/// Number on the service axis.
#[inline]
pub fn service(packet: &Packet) -> u32 {
    match packet.transport {
        Transport::Tcp { dst, .. } | Transport::Udp { dst, .. } => u32::from(dst),
        Transport::Icmp { kind, code, .. } => {
            let family = if packet.protocol == ICMP {
                ICMP_V4
            } else {
                ICMP_V6
            };
            family | u32::from(kind) << 8 | u32::from(code)
        }
        Transport::Opaque => NO_PORT,
    }
}

/// Number on the flags axis.
#[inline]
pub fn flags(packet: &Packet) -> u32 {
    match packet.transport {
        Transport::Tcp { flags, .. } => u32::from(flags),
        _ => NO_FLAGS,
    }
}

/// Number on the VLAN axis.
#[inline]
pub fn vlan(packet: &Packet) -> u32 {
    packet.vlan.map_or(UNTAGGED, |vlan| u32::from(vlan & 0xfff))
}

/// Number on the kind axis.
#[inline]
pub fn kind(packet: &Packet) -> u32 {
    let family = matches!(packet.addresses, Addresses::V6 { .. });
    let fragment = match packet.fragment {
        Fragment::None => 0,
        Fragment::First => 1,
        Fragment::Later => 2,
    };
    kind_of(fragment, packet.in_port, u32::from(family)) | u32::from(packet.protocol)
}

const FRAGMENTS: [(u32, Fragment); 4] = [
    (0, Fragment::None),
    (1, Fragment::First),
    (2, Fragment::Later),
    (3, Fragment::Later),
];

#[inline]
fn kind_of(fragment: u32, in_port: u8, family: u32) -> u32 {
    fragment << 8 | u32::from(in_port & 1) << 10 | family << 11
}

/// The intervals of a rule on each axis; `None` where the rule has no condition.
#[derive(Debug)]
pub struct Region {
    pub src_v4: Option<Set<u32>>,
    pub dst_v4: Option<Set<u32>>,
    pub src_v6: Option<Set<u128>>,
    pub dst_v6: Option<Set<u128>>,
    pub src_port: Option<Set<u32>>,
    pub service: Option<Set<u32>>,
    pub kind: Option<Set<u32>>,
    pub flags: Option<Set<u32>>,
    pub vlan: Option<Set<u32>>,
}

impl Region {
    /// The region of the packets that `rule` matches.
    pub fn of(rule: &Rule) -> Region {
        Region {
            src_v4: addresses_v4(&rule.from.addresses),
            dst_v4: addresses_v4(&rule.to.addresses),
            src_v6: addresses_v6(&rule.from.addresses),
            dst_v6: addresses_v6(&rule.to.addresses),
            src_port: ports(&rule.from.ports),
            service: services(rule),
            kind: kinds(rule),
            flags: flag_octets(rule),
            vlan: vlans(rule),
        }
    }
}

fn addresses_v4(list: &OneOf<Prefix>) -> Option<Set<u32>> {
    if list.is_any() {
        return None;
    }
    let set = Set::union(list.items.iter().filter_map(Prefix::range_v4));
    Some(if list.negated {
        set.complement(u32::MAX)
    } else {
        set
    })
}

fn addresses_v6(list: &OneOf<Prefix>) -> Option<Set<u128>> {
    if list.is_any() {
        return None;
    }
    let set = Set::union(list.items.iter().filter_map(Prefix::range_v6));
    Some(if list.negated {
        set.complement(u128::MAX)
    } else {
        set
    })
}

fn widened(ranges: &[(u16, u16)]) -> Set<u32> {
    Set::union(
        ranges
            .iter()
            .map(|(low, high)| (u32::from(*low), u32::from(*high))),
    )
}

/// Even a negated port list asks for a port.
fn ports(list: &OneOf<(u16, u16)>) -> Option<Set<u32>> {
    if list.is_any() {
        return None;
    }
    let set = widened(&list.items);
    Some(if list.negated {
        set.complement(NO_PORT - 1)
    } else {
        set
    })
}

fn services(rule: &Rule) -> Option<Set<u32>> {
    let ports = ports(&rule.to.ports);
    if rule.icmp.is_any() {
        return ports;
    }
    let messages = rule.icmp.items.iter().map(|item| {
        let family = match item.family {
            Family::V4 => ICMP_V4,
            Family::V6 => ICMP_V6,
        };
        let kind = family | u32::from(item.kind) << 8;
        match item.code {
            Some(code) => (kind | u32::from(code), kind | u32::from(code)),
            None => (kind, kind | 0xff),
        }
    });
    let mut set = Set::union(messages);
    if rule.icmp.negated {
        set = set.complement(SERVICE_MAX);
    }
    Some(match ports {
        Some(ports) => ports.intersection(&set),
        None => set,
    })
}

fn kinds(rule: &Rule) -> Option<Set<u32>> {
    if rule.protocol.is_any() && rule.in_port.is_none() && rule.fragment.is_none() {
        return None;
    }
    let protocols = [Family::V4, Family::V6].map(|family| protocols(&rule.protocol, family));
    let mut intervals = alloc::vec::Vec::new();
    // The fourth value of the two bits does not occur; it goes with the third, so that a rule
    // that asks nothing about fragments is one mask.
    for (bits, fragment) in FRAGMENTS {
        if rule
            .fragment
            .is_some_and(|f| f.of.admits(fragment) == f.negated)
        {
            continue;
        }
        for in_port in [0, 1] {
            if rule.in_port.is_some_and(|port| port != in_port) {
                continue;
            }
            for (family, set) in (0..).zip(&protocols) {
                let base = kind_of(bits, in_port, family);
                let shifted = set.intervals().iter();
                intervals.extend(shifted.map(|(low, high)| (base | low, base | high)));
            }
        }
    }
    Some(Set::union(intervals))
}

fn protocols(list: &OneOf<Protocol>, family: Family) -> Set<u32> {
    if list.is_any() {
        return Set::union([(0, 255)]);
    }
    let set = Set::union(list.items.iter().filter_map(|item| match *item {
        Protocol::Family(wanted) => (wanted == family).then_some((0, 255)),
        Protocol::Number(number) => Some((u32::from(number), u32::from(number))),
    }));
    if list.negated {
        set.complement(255)
    } else {
        set
    }
}

fn flag_octets(rule: &Rule) -> Option<Set<u32>> {
    if rule.flags.is_empty() {
        return None;
    }
    let admitted = (0..=u8::MAX).filter(|octet| {
        let mut conditions = rule.flags.iter();
        conditions.all(|flags| flags.of.admits(*octet) != flags.negated)
    });
    let not_tcp = rule
        .flags
        .iter()
        .all(|flags| flags.negated)
        .then_some(NO_FLAGS);
    let octets = admitted.map(u32::from).chain(not_tcp);
    Some(Set::union(octets.map(|octet| (octet, octet))))
}

fn vlans(rule: &Rule) -> Option<Set<u32>> {
    if rule.vlan.is_any() {
        return None;
    }
    let set = widened(&rule.vlan.items);
    Some(if rule.vlan.negated {
        set.complement(VLAN_MAX)
    } else {
        set
    })
}
