//! A condition of a rule as alternatives of header fields.

use super::interval::{complement, join};
use super::ruleset::{Ruleset, Table};
use crate::firewall::rules::{Family, Pattern, Prefix, prefixes_of};
use serde_json::Value;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Most alternatives of a rule. Beyond that a table of rules is what the kernel is better at.
const PATTERNS_MAX: usize = 4096;

/// Protocols whose ports the fast path reads: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// A condition, as far as the fast path knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One of these alternatives; none: the condition never holds.
    AnyOf(Vec<Fields>),
    /// The condition depends on values that the fast path does not see, or does not read.
    Unknown(String),
    /// As `Unknown`, and evaluating the condition changes its result for later packets: the elements of its set have
    /// limits or quotas.
    Stateful(String),
}

/// Fields that a packet must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    family: Option<Family>,
    src: Prefix,
    dst: Prefix,
    proto: Option<u8>,
    sport: Prefix,
    dport: Prefix,
    ports: bool,
}

impl Fields {
    /// Returns the fields of packets that match both. `None`: there are no such packets.
    fn and(&self, other: &Self) -> Option<Self> {
        Some(Fields {
            family: same(self.family, other.family)?,
            src: inside(self.src, other.src)?,
            dst: inside(self.dst, other.dst)?,
            proto: same(self.proto, other.proto)?,
            sport: inside(self.sport, other.sport)?,
            dport: inside(self.dport, other.dport)?,
            ports: self.ports || other.ports,
        })
    }

    /// Returns true if the fields ask for ports that the fast path does not read: any other protocol may have some
    /// where TCP has them.
    pub fn asks_for_unread_ports(&self) -> bool {
        self.ports && !self.proto.is_some_and(|proto| WITH_PORTS.contains(&proto))
    }

    /// Without what they ask of ports.
    pub fn whatever_ports(&self) -> Self {
        Fields {
            sport: Prefix::default(),
            dport: Prefix::default(),
            ports: false,
            ..self.clone()
        }
    }

    /// Returns the patterns, one for each IP version that they may have.
    pub fn patterns(&self) -> impl Iterator<Item = Pattern> {
        let families = [Family::V4, Family::V6].into_iter();
        let families = families.filter(|family| self.family.is_none_or(|own| own == *family));
        families.map(|family| Pattern {
            family,
            src: self.src,
            dst: self.dst,
            proto: self.proto,
            sport: self.sport,
            dport: self.dport,
            ports: self.ports,
        })
    }
}

fn same<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        (a, b) => Some(a.or(b)),
    }
}

fn inside(a: Prefix, b: Prefix) -> Option<Prefix> {
    let (short, long) = if a.len <= b.len { (a, b) } else { (b, a) };
    (long.bits & short.mask() == short.bits).then_some(long)
}

/// Returns the alternatives that match both. `None`: too many alternatives.
pub fn and(all: &[Fields], more: &[Fields]) -> Option<Vec<Fields>> {
    let both = all
        .iter()
        .flat_map(|one| more.iter().filter_map(|other| one.and(other)));
    let both: Vec<Fields> = both.take(PATTERNS_MAX + 1).collect();
    (both.len() <= PATTERNS_MAX).then_some(both)
}

/// Context for parsing conditions.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// For its sets.
    pub ruleset: &'a Ruleset,
    /// The rule's table.
    pub table: &'a Table,
    /// The interface by which packets come in, or go out.
    pub interface: &'a str,
    /// True if the packets go out.
    pub leaving: bool,
}

/// A field with its implications, and its width.
enum Field {
    Address(Family, bool),
    Port(Option<u8>, bool),
    Protocol(Option<Family>),
    /// The IP version. True: numbered as the kernel numbers families; false: as Ethernet does. nft 1.0.6 prints
    /// Ethernet's with their bytes swapped.
    Version(bool),
    /// By which packets go out (true), or come in.
    Interface(bool),
}

impl Place<'_> {
    /// Returns the condition of a `match` statement.
    pub fn condition(&self, statement: &Value) -> Condition {
        let Some(field) = field_of(&statement["left"]) else {
            return Condition::Unknown(name_of(&statement["left"]));
        };
        let is = match statement["op"].as_str() {
            Some("==") => true,
            Some("!=") => false,
            other => {
                return Condition::Unknown(format!("operator {}", other.unwrap_or("(none)")));
            }
        };
        let values = match self.values(&statement["right"]) {
            Ok(values) => values,
            Err(condition) => return condition,
        };
        let found = match field {
            Field::Address(family, source) => address(family, source, is, &values),
            Field::Port(proto, source) => port(proto, source, is, &values),
            Field::Protocol(family) if is => protocol(family, &values),
            Field::Version(numbered) if is => version(numbered, &values),
            Field::Interface(out) if out == self.leaving => self.interface(is, &values),
            Field::Interface(_) => return Condition::Unknown(name_of(&statement["left"])),
            Field::Protocol(_) | Field::Version(_) => None,
        };
        let name = || name_of(&statement["left"]);
        match found {
            None => Condition::Unknown(format!("{} in this form", name())),
            Some(fields) if fields.len() > PATTERNS_MAX => Condition::Unknown(format!(
                "{} with more than {PATTERNS_MAX} alternatives",
                name()
            )),
            Some(fields) => Condition::AnyOf(fields),
        }
    }

    /// The values of the right side, those of sets one by one.
    fn values(&self, right: &Value) -> Result<Vec<Value>, Condition> {
        if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@')) {
            return self.named_set(name);
        }
        match &right["set"] {
            Value::Array(elements) => values_of(elements, false),
            _ => Ok(vec![right.clone()]),
        }
    }

    fn named_set(&self, name: &str) -> Result<Vec<Value>, Condition> {
        let key = (self.table.clone(), name.to_owned());
        let set = self.ruleset.sets.get(&key);
        let unknown = |why: &str| Condition::Unknown(format!("set {name}, which {why}"));
        let set = set.ok_or_else(|| unknown("is not there"))?;
        let counts = only_counts(set)?;
        if changes_by_itself(set) || self.ruleset.filled.contains(&key) {
            return Err(unknown("changes by itself"));
        }
        let elements = set["elem"].as_array().map_or(&[][..], Vec::as_slice);
        values_of(elements, counts)
    }

    fn interface(&self, is: bool, values: &[Value]) -> Option<Vec<Fields>> {
        let mut holds = false;
        for value in values {
            // A literal asterisk has a backslash before it.
            let name = value.as_str().filter(|name| !name.contains('\\'))?;
            holds |= is_named(self.interface, name);
        }
        Some(if holds == is {
            vec![Fields::default()]
        } else {
            Vec::new()
        })
    }
}

/// True if the interface has this name, or begins with it where the name ends with an asterisk.
pub fn is_named(interface: &str, name: &str) -> bool {
    match name.strip_suffix('*') {
        Some(beginning) => interface.starts_with(beginning),
        None => interface == name,
    }
}

/// Returns true if packets or time change a set by its own flags, which the kernel does not announce. nft prints a
/// flag that is the only one without a list from version 1.1.4 on, and version 1.0.6 does not print `dynamic`: see
/// [`Ruleset::filled`].
fn changes_by_itself(set: &Value) -> bool {
    let flags = match &set["flags"] {
        Value::Array(flags) => flags.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut flags = flags.iter().filter_map(Value::as_str);
    !set["timeout"].is_null() || flags.any(|flag| flag == "dynamic" || flag == "timeout")
}

/// Returns true if a set declares statements for its elements, all of which count. An error: a statement does more,
/// as a limit or a quota, and so decides whether an element matches.
fn only_counts(set: &Value) -> Result<bool, Condition> {
    let statements = set["stmt"].as_array().map_or(&[][..], Vec::as_slice);
    match statements.iter().find(|one| one.get("counter").is_none()) {
        Some(other) => Err(Condition::Stateful(format!(
            "a set of elements with {other}"
        ))),
        None => Ok(!statements.is_empty()),
    }
}

/// Elements without their comments, and without their counters where these are known to be their only statements: of
/// several statements of an element nft prints the first.
fn values_of(elements: &[Value], may_count: bool) -> Result<Vec<Value>, Condition> {
    let value_of = |element: &Value| {
        let Some(inner) = element.get("elem").and_then(Value::as_object) else {
            return Ok(element.clone());
        };
        let is_known =
            |key: &String| key == "val" || key == "comment" || (may_count && key == "counter");
        match inner.keys().find(|key| !is_known(key)) {
            Some(other) => Err(Condition::Stateful(format!("an element with a {other}"))),
            None => Ok(inner.get("val").cloned().unwrap_or_default()),
        }
    };
    elements.iter().map(value_of).collect()
}

fn field_of(left: &Value) -> Option<Field> {
    // More than this is about something else: `tunnel` is about a header within.
    let has = |kind: &str, keys: usize| left[kind].as_object().is_some_and(|it| it.len() == keys);
    if has("meta", 1) {
        return match left["meta"]["key"].as_str()? {
            "l4proto" => Some(Field::Protocol(None)),
            "nfproto" => Some(Field::Version(true)),
            "protocol" => Some(Field::Version(false)),
            "iifname" | "iif" => Some(Field::Interface(false)),
            "oifname" | "oif" => Some(Field::Interface(true)),
            _ => None,
        };
    }
    if !has("payload", 2) {
        return None;
    }
    let protocol = left["payload"]["protocol"].as_str()?;
    let field = left["payload"]["field"].as_str()?;
    match (protocol, field) {
        ("ip", "saddr" | "daddr") => Some(Field::Address(Family::V4, field == "saddr")),
        ("ip6", "saddr" | "daddr") => Some(Field::Address(Family::V6, field == "saddr")),
        ("ip", "protocol") => Some(Field::Protocol(Some(Family::V4))),
        ("ip6", "nexthdr") => Some(Field::Protocol(Some(Family::V6))),
        ("th", "sport" | "dport") => Some(Field::Port(None, field == "sport")),
        ("tcp" | "udp" | "sctp", "sport" | "dport") => {
            let proto = number_of_protocol(&Value::from(protocol))?;
            Some(Field::Port(Some(proto), field == "sport"))
        }
        _ => None,
    }
}

/// Returns the name of a field for readers.
fn name_of(left: &Value) -> String {
    if let Some(key) = left["meta"]["key"].as_str() {
        return format!("meta {key}");
    }
    if let Some(key) = left["ct"]["key"].as_str() {
        return format!("ct {key}");
    }
    let part = |key: &str| left["payload"][key].as_str();
    match (part("protocol"), part("field")) {
        (Some(protocol), Some(field)) => format!("{protocol} {field}"),
        _ => match left.as_object().and_then(|object| object.keys().next()) {
            Some(kind) => format!("an expression of kind {kind}"),
            None => "an expression".to_owned(),
        },
    }
}

fn address(family: Family, source: bool, is: bool, values: &[Value]) -> Option<Vec<Fields>> {
    let bits = family.bits();
    let all = u128::MAX >> (128 - u32::from(bits));
    let intervals = values.iter().map(|value| address_interval(family, value));
    let mut intervals = join(intervals.collect::<Option<_>>()?);
    if !is {
        intervals = complement(&intervals, all);
    }
    let prefixes = intervals.iter().flat_map(|range| prefixes_of(range, bits));
    let fields = prefixes.map(|prefix| Fields {
        family: Some(family),
        src: if source { prefix } else { Prefix::default() },
        dst: if source { Prefix::default() } else { prefix },
        ..Fields::default()
    });
    Some(bounded(fields))
}

/// Addresses as numbers.
fn address_interval(family: Family, value: &Value) -> Option<RangeInclusive<u128>> {
    let number = |value: &Value| {
        let address: IpAddr = value.as_str()?.parse().ok()?;
        (Family::of(address) == family).then(|| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        })
    };
    if let Some(address) = number(&value["prefix"]["addr"]) {
        let len = u8::try_from(value["prefix"]["len"].as_u64()?).ok()?;
        let free = family.bits().checked_sub(len)?;
        let rest = u128::MAX.checked_shr(128 - u32::from(free)).unwrap_or(0);
        return Some(address & !rest..=address | rest);
    }
    interval(value, number)
}

/// A range of values, or one.
fn interval(
    value: &Value,
    number: impl Fn(&Value) -> Option<u128>,
) -> Option<RangeInclusive<u128>> {
    match value["range"].as_array().map(Vec::as_slice) {
        Some([first, last]) => Some(number(first)?..=number(last)?),
        Some(_) => None,
        None => {
            let only = number(value)?;
            Some(only..=only)
        }
    }
}

fn port(proto: Option<u8>, source: bool, is: bool, values: &[Value]) -> Option<Vec<Fields>> {
    const ALL: u128 = u16::MAX as u128;
    let number = |value: &Value| Some(u128::from(value.as_u64()?)).filter(|port| *port <= ALL);
    let intervals = values.iter().map(|value| interval(value, number));
    let mut intervals = join(intervals.collect::<Option<_>>()?);
    if !is {
        intervals = complement(&intervals, ALL);
    }
    let prefixes = intervals.iter().flat_map(|range| prefixes_of(range, 16));
    let fields = prefixes.map(|prefix| Fields {
        proto,
        sport: if source { prefix } else { Prefix::default() },
        dport: if source { Prefix::default() } else { prefix },
        ports: true,
        ..Fields::default()
    });
    Some(bounded(fields))
}

/// Takes enough alternatives to see whether they are too many.
fn bounded(fields: impl Iterator<Item = Fields>) -> Vec<Fields> {
    fields.take(PATTERNS_MAX + 1).collect()
}

fn protocol(family: Option<Family>, values: &[Value]) -> Option<Vec<Fields>> {
    let fields = values.iter().map(|value| {
        Some(Fields {
            family,
            proto: Some(number_of_protocol(value)?),
            ..Fields::default()
        })
    });
    fields.collect()
}

/// IANA's number of an IP protocol.
fn number_of_protocol(value: &Value) -> Option<u8> {
    if let Some(number) = value.as_u64() {
        return u8::try_from(number).ok();
    }
    match value.as_str()? {
        "icmp" => Some(1),
        "igmp" => Some(2),
        "tcp" => Some(6),
        "udp" => Some(17),
        "gre" => Some(47),
        "esp" => Some(50),
        "ipv6-icmp" | "icmpv6" => Some(58),
        "sctp" => Some(132),
        "udplite" => Some(136),
        _ => None,
    }
}

fn version(numbered: bool, values: &[Value]) -> Option<Vec<Fields>> {
    let fields = values.iter().map(|value| {
        let number = value.as_u64().filter(|_| numbered);
        let family = match (value.as_str(), number) {
            (Some("ipv4" | "ip"), _) | (_, Some(2)) => Family::V4,
            (Some("ipv6" | "ip6"), _) | (_, Some(10)) => Family::V6,
            _ => return None,
        };
        Some(Fields {
            family: Some(family),
            ..Fields::default()
        })
    });
    fields.collect()
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::nft::ruleset::Table;

    /// Asks at a table `t` of a rule set what comes in by `eth1`.
    pub fn at_eth1<T>(ruleset: &Ruleset, family: &str, ask: impl FnOnce(&Place<'_>) -> T) -> T {
        let table = Table {
            family: family.to_owned(),
            name: "t".to_owned(),
        };
        ask(&Place {
            ruleset,
            table: &table,
            interface: "eth1",
            leaving: false,
        })
    }
}

#[cfg(test)]
mod tests;
