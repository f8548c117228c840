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

/// What a condition asks for, as far as the fast path knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One of these; none: it never holds.
    AnyOf(Vec<Fields>),
    /// It depends on what the fast path does not see, or does not read.
    Unknown(String),
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
    /// Those of packets that have both. `None`: there are none.
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

    /// Whether they ask for ports that the fast path does not read: any other protocol may have some where TCP has them.
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

    /// As patterns, one for each IP version that they may have.
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

/// Those that have both. `None`: too many alternatives.
pub fn and(all: &[Fields], more: &[Fields]) -> Option<Vec<Fields>> {
    let both = all
        .iter()
        .flat_map(|one| more.iter().filter_map(|other| one.and(other)));
    let both: Vec<Fields> = both.take(PATTERNS_MAX + 1).collect();
    (both.len() <= PATTERNS_MAX).then_some(both)
}

/// Where conditions are read.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// For its sets.
    pub ruleset: &'a Ruleset,
    /// The rule's table.
    pub table: &'a Table,
    /// The interface by which packets come in, or go out.
    pub interface: &'a str,
    /// They go out.
    pub leaving: bool,
}

/// A field with what it implies, and its width.
enum Field {
    Address(Family, bool),
    Port(Option<u8>, bool),
    Protocol(Option<Family>),
    Version,
    /// By which packets go out (true), or come in.
    Interface(bool),
}

impl Place<'_> {
    /// What a `match` statement asks for.
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
            Err(why) => return Condition::Unknown(why),
        };
        let found = match field {
            Field::Address(family, source) => address(family, source, is, &values),
            Field::Port(proto, source) => port(proto, source, is, &values),
            Field::Protocol(family) if is => protocol(family, &values),
            Field::Version if is => version(&values),
            Field::Interface(out) if out == self.leaving => self.interface(is, &values),
            Field::Interface(_) => return Condition::Unknown(name_of(&statement["left"])),
            Field::Protocol(_) | Field::Version => None,
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
    fn values(&self, right: &Value) -> Result<Vec<Value>, String> {
        if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@')) {
            return self.named_set(name);
        }
        match &right["set"] {
            Value::Array(elements) => Ok(elements.iter().map(element).collect()),
            _ => Ok(vec![right.clone()]),
        }
    }

    fn named_set(&self, name: &str) -> Result<Vec<Value>, String> {
        let key = (self.table.clone(), name.to_owned());
        let set = self.ruleset.sets.get(&key);
        let set = set.ok_or_else(|| format!("set {name}, which is not there"))?;
        if changes_by_itself(set) {
            return Err(format!("set {name}, which changes by itself"));
        }
        let elements = set["elem"].as_array().into_iter().flatten();
        Ok(elements.map(element).collect())
    }

    fn interface(&self, is: bool, values: &[Value]) -> Option<Vec<Fields>> {
        let mut holds = false;
        for value in values {
            let name = value.as_str()?;
            holds |= match name.strip_suffix('*') {
                Some(beginning) => self.interface.starts_with(beginning),
                None => self.interface == name,
            };
        }
        Some(if holds == is {
            vec![Fields::default()]
        } else {
            Vec::new()
        })
    }
}

/// Whether packets or time change a set, which the kernel does not announce. nft prints a flag that is the only one without a list
/// from version 1.1.4 on.
fn changes_by_itself(set: &Value) -> bool {
    let flags = match &set["flags"] {
        Value::Array(flags) => flags.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut flags = flags.iter().filter_map(Value::as_str);
    !set["timeout"].is_null() || flags.any(|flag| flag == "dynamic" || flag == "timeout")
}

/// An element of a set without its counter or comment.
fn element(value: &Value) -> Value {
    let inner = &value["elem"]["val"];
    if inner.is_null() { value } else { inner }.clone()
}

fn field_of(left: &Value) -> Option<Field> {
    if let Some(key) = left["meta"]["key"].as_str() {
        return match key {
            "l4proto" => Some(Field::Protocol(None)),
            "nfproto" | "protocol" => Some(Field::Version),
            "iifname" | "iif" => Some(Field::Interface(false)),
            "oifname" | "oif" => Some(Field::Interface(true)),
            _ => None,
        };
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

/// How a field is called, for people.
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

/// So many that it can be told whether they are too many.
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

fn version(values: &[Value]) -> Option<Vec<Fields>> {
    let fields = values.iter().map(|value| {
        let family = match (value.as_str(), value.as_u64()) {
            (Some("ipv4" | "ip"), _) | (_, Some(2 | 0x0800)) => Family::V4,
            (Some("ipv6" | "ip6"), _) | (_, Some(10 | 0x86dd)) => Family::V6,
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
mod tests {
    use super::testing::at_eth1;
    use super::*;
    use serde_json::json;

    fn read(statement: Value) -> Condition {
        at_eth1(&Ruleset::default(), "inet", |place| {
            place.condition(&statement)
        })
    }

    fn count(statement: Value) -> usize {
        match read(statement) {
            Condition::AnyOf(fields) => fields.len(),
            Condition::Unknown(why) => panic!("{why}"),
        }
    }

    fn tcp_dport(op: &str, right: Value) -> Value {
        json!({ "op": op, "left": { "payload": { "protocol": "tcp", "field": "dport" } }, "right": right })
    }

    #[test]
    fn ranges_sets_and_their_complements_are_prefixes() {
        assert_eq!(count(tcp_dport("==", json!(80))), 1);
        assert_eq!(count(tcp_dport("!=", json!(80))), 16);
        assert_eq!(
            count(tcp_dport(
                "==",
                json!({ "set": [80, 81, { "range": [82, 83] }] })
            )),
            1
        );
        let left = json!({ "payload": { "protocol": "ip", "field": "saddr" } });
        let net = json!({ "prefix": { "addr": "10.0.0.0", "len": 8 } });
        assert_eq!(count(json!({ "op": "!=", "left": left, "right": net })), 8);
    }

    #[test]
    fn what_cannot_be_read_is_unknown_by_name() {
        let state =
            json!({ "op": "in", "left": { "ct": { "key": "state" } }, "right": "established" });
        assert_eq!(read(state), Condition::Unknown("ct state".into()));
        let odd = tcp_dport("==", json!("http"));
        assert_eq!(
            read(odd),
            Condition::Unknown("tcp dport in this form".into())
        );
        let missing = tcp_dport("==", json!("@none"));
        assert!(matches!(read(missing), Condition::Unknown(why) if why.contains("none")));
    }

    #[test]
    fn a_set_that_changes_by_itself_is_the_kernels_however_its_flags_are_printed() {
        let read = |more: &str| {
            let set = format!(
                r#"{{"nftables":[{{"set":{{"family":"inet","table":"t","name":"s","type":"ipv4_addr",{more}
                "elem":["10.0.0.1"]}}}}]}}"#
            );
            let ruleset = Ruleset::read(set.as_bytes()).expect("as nft prints it");
            let left = json!({ "payload": { "protocol": "ip", "field": "saddr" } });
            let statement = json!({ "op": "==", "left": left, "right": "@s" });
            at_eth1(&ruleset, "inet", |place| place.condition(&statement))
        };
        for fixed in ["", r#""flags":"interval","#, r#""flags":["interval"],"#] {
            assert!(matches!(read(fixed), Condition::AnyOf(_)), "{fixed}");
        }
        for changing in [
            r#""flags":"dynamic","#,
            r#""flags":"timeout","#,
            r#""flags":["interval","timeout"],"#,
            r#""timeout":3600,"#,
        ] {
            let found = read(changing);
            assert!(matches!(found, Condition::Unknown(_)), "{changing}");
        }
    }

    #[test]
    fn what_has_too_many_alternatives_says_so() {
        let left = json!({ "payload": { "protocol": "ip", "field": "saddr" } });
        let hosts = (0..5000u32).map(|n| std::net::Ipv4Addr::from(n * 2).to_string());
        let set: Vec<String> = hosts.collect();
        let found = read(json!({ "op": "==", "left": left, "right": { "set": set } }));
        let why = "ip saddr with more than 4096 alternatives";
        assert_eq!(found, Condition::Unknown(why.into()));
    }

    #[test]
    fn the_interface_is_known() {
        let by = |op: &str, name: &str| json!({ "op": op, "left": { "meta": { "key": "iifname" } }, "right": name });
        assert_eq!(count(by("==", "eth1")), 1);
        assert_eq!(count(by("==", "eth*")), 1);
        assert_eq!(count(by("==", "eth2")), 0);
        assert_eq!(count(by("!=", "eth2")), 1);
    }
}
