//! The small words of both configuration forms: prefixes, port ranges, flags, ICMP types. Each function parses one word
//! completely, or returns what it expected.

use super::rule::{
    Answer, Family, FlagsMatch, FragmentMatch, ICMP, ICMPV6, IcmpMatch, OneOf, Prefix, Protocol,
    RuleAction, TCP, UDP, Unreachable,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use nfluid_wire::{IpProtocol, TcpFlags};

/// The error says what is wrong with a word and what would be right.
pub type Result<T> = core::result::Result<T, String>;

/// Most items in one list of a rule.
pub const LIST_MAX: usize = 1024;

/// Names for ports, as in `/etc/services`.
pub const SERVICES: &[(&str, u16)] = &[
    ("bgp", 179),
    ("dhcp-client", 68),
    ("dhcp-server", 67),
    ("domain", 53),
    ("ftp", 21),
    ("http", 80),
    ("https", 443),
    ("imap", 143),
    ("imaps", 993),
    ("ldap", 389),
    ("ntp", 123),
    ("pop3", 110),
    ("sip", 5060),
    ("smtp", 25),
    ("snmp", 161),
    ("ssh", 22),
    ("submission", 587),
    ("syslog", 514),
    ("telnet", 23),
    ("tftp", 69),
];

/// The protocols that can be named: more than one name each, the first is the one printed.
pub const PROTOCOLS: &[(&str, u8)] = &[
    ("tcp", TCP),
    ("udp", UDP),
    ("icmp", ICMP),
    ("icmp6", ICMPV6),
    ("ipv6-icmp", ICMPV6),
    ("igmp", IpProtocol::IGMP.0),
    ("gre", IpProtocol::GRE.0),
    ("esp", IpProtocol::ESP.0),
    ("ah", IpProtocol::AH.0),
    ("sctp", IpProtocol::SCTP.0),
    ("udplite", IpProtocol::UDPLITE.0),
];

/// An error: `expected <what>, found '<word>'`.
pub fn expected(what: impl Display, found: &str) -> String {
    let mut shown: String = found.chars().take(60).collect();
    if shown.len() < found.len() {
        shown.push_str("...");
    }
    format!("expected {what}, found '{shown}'")
}

/// A decimal number up to `max`.
pub fn number<T: FromStr + PartialOrd + Display>(word: &str, what: &str, max: T) -> Result<T> {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    match word.parse::<T>() {
        Ok(value) if digits && value <= max => Ok(value),
        _ => Err(expected(
            format_args!("{what} (a number up to {max})"),
            word,
        )),
    }
}

/// A comma-separated list, each word read by `item`.
pub fn list<T>(text: &str, mut item: impl FnMut(&str) -> Result<T>) -> Result<Vec<T>> {
    let mut items = Vec::new();
    for word in text.split(',') {
        if items.len() == LIST_MAX {
            return Err(format!("a list has at most {LIST_MAX} items"));
        }
        items.push(item(word)?);
    }
    Ok(items)
}

/// Name of an action.
pub fn action(word: &str) -> Result<RuleAction> {
    Ok(match word {
        "allow" | "accept" | "pass" | "permit" => RuleAction::Allow,
        "deny" | "drop" => RuleAction::Deny,
        "reject" => RuleAction::Reject(Answer::Auto),
        "reset" => RuleAction::Reject(Answer::Reset),
        "count" => RuleAction::Count,
        "check-state" => RuleAction::CheckState,
        _ => {
            let what = "an action (allow, deny, reject, reset, unreach, count or check-state)";
            return Err(expected(what, word));
        }
    })
}

/// Reason after `unreach`.
pub fn unreachable(word: &str) -> Result<Unreachable> {
    Ok(match word {
        "net" => Unreachable::Net,
        "host" => Unreachable::Host,
        "port" => Unreachable::Port,
        "filter-prohib" => Unreachable::Prohibited,
        _ => {
            let what = "a reason (net, host, port or filter-prohib) after 'unreach'";
            return Err(expected(what, word));
        }
    })
}

/// `tcp`, `ip6`, `47`; `None` for `ip`, `all` and `any`.
pub fn protocol(word: &str) -> Result<Option<Protocol>> {
    if let Some((_, number)) = PROTOCOLS.iter().find(|(name, _)| *name == word) {
        return Ok(Some(Protocol::Number(*number)));
    }
    Ok(match word {
        "ip" | "all" | "any" => None,
        "ip4" | "ipv4" => Some(Protocol::Family(Family::V4)),
        "ip6" | "ipv6" => Some(Protocol::Family(Family::V6)),
        _ => {
            let what = "a protocol (ip, ip4, ip6, tcp, udp, icmp, icmp6, ...)";
            Some(Protocol::Number(number(word, what, 255)?))
        }
    })
}

/// An address or prefix; `None` for `any`.
pub fn prefix(word: &str) -> Result<Option<Prefix>> {
    let what = "'any' or an address or prefix such as 10.0.0.0/8 or 2001:db8::/32";
    let (address, len) = match word.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (word, None),
    };
    match word {
        "any" => return Ok(None),
        "me" | "me6" => {
            return Err("'me' means nothing here: the firewall has no address of its own".into());
        }
        _ => {}
    }
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let len = prefix_len(len, 32, word)?;
            let bits = u32::from(address);
            let net = bits & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            host_bits_clear(bits == net, word, Ipv4Addr::from(net), len)?;
            Ok(Some(Prefix::V4(net, len)))
        }
        Ok(IpAddr::V6(address)) => {
            let len = prefix_len(len, 128, word)?;
            let bits = u128::from(address);
            let net = bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            host_bits_clear(bits == net, word, Ipv6Addr::from(net), len)?;
            Ok(Some(Prefix::V6(net, len)))
        }
        Err(_) => Err(expected(what, word)),
    }
}

fn prefix_len(len: Option<&str>, max: u8, word: &str) -> Result<u8> {
    let Some(len) = len else { return Ok(max) };
    number(len, "a prefix length", max).map_err(|_| {
        expected(
            format_args!("a prefix length of 0 to {max} after the '/'"),
            word,
        )
    })
}

fn host_bits_clear(clear: bool, word: &str, net: impl Display, len: u8) -> Result<()> {
    if clear {
        return Ok(());
    }
    Err(format!(
        "'{word}' has bits set behind its prefix length; the prefix is {net}/{len}"
    ))
}

/// A comma-separated list of prefixes; `any` in it makes it "any".
pub fn prefixes(text: &str) -> Result<Vec<Prefix>> {
    Ok(list(text, prefix)?
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .unwrap_or_default())
}

/// Returns true if a word begins like a port list. The text form distinguishes ports from options by it.
pub fn looks_like_ports(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        || word
            .split([',', '-'])
            .any(|name| SERVICES.iter().any(|(known, _)| *known == name))
}

/// A port, its service name, or an inclusive range.
pub fn ports(word: &str) -> Result<(u16, u16)> {
    let what = "a port (0-65535), a service name or a range such as 8000-8080";
    if let Some((_, port)) = SERVICES.iter().find(|(name, _)| *name == word) {
        return Ok((*port, *port));
    }
    range(word, u16::MAX).ok_or_else(|| expected(what, word))
}

/// A VLAN identifier or an inclusive range.
pub fn vlan(word: &str) -> Result<(u16, u16)> {
    range(word, 4095).ok_or_else(|| expected("a VLAN (0-4095) or a range such as 10-19", word))
}

fn range(word: &str, max: u16) -> Option<(u16, u16)> {
    let (low, high) = word.split_once('-').unwrap_or((word, word));
    let low = number(low, "", max).ok()?;
    let high = number(high, "", max).ok()?;
    (low <= high).then_some((low, high))
}

/// Which fragments, after `frag`; `None` if the word is something else.
pub fn fragment(word: &str) -> Option<FragmentMatch> {
    Some(match word {
        "later" => FragmentMatch::Later,
        "first" => FragmentMatch::First,
        "any" => FragmentMatch::Any,
        _ => return None,
    })
}

/// `syn,!ack`.
pub fn tcp_flags(text: &str) -> Result<FlagsMatch> {
    let (mut set, mut clear) = (0, 0);
    for word in text.split(',') {
        let name = word.strip_prefix('!').unwrap_or(word);
        let flag = TcpFlags::from_name(name).ok_or_else(|| {
            let what = "TCP flags (fin, syn, rst, psh, ack, urg, ece, cwr; '!' before one that must be clear)";
            expected(what, word)
        })?;
        if word.starts_with('!') {
            clear |= flag.0;
        } else {
            set |= flag.0;
        }
    }
    if set & clear != 0 {
        return Err(format!("'{text}' wants a flag both set and clear"));
    }
    Ok(FlagsMatch::Exact { set, clear })
}

/// An ICMP type, or type and code as `3/4`.
pub fn icmp_type(word: &str, family: Family) -> Result<IcmpMatch> {
    let what = "an ICMP type (0-255), or type/code such as 3/4";
    let (kind, code) = match word.split_once('/') {
        Some((kind, code)) => (kind, Some(code)),
        None => (word, None),
    };
    let octet = |word: &str| number(word, "", 255_u8).map_err(|_| expected(what, word));
    Ok(IcmpMatch {
        family,
        kind: octet(kind)?,
        code: code.map(octet).transpose()?,
    })
}

/// An address list that may be negated. `not any` would match nothing and is refused.
pub fn negatable<T>(negated: bool, items: Vec<T>) -> Result<OneOf<T>> {
    if negated && items.is_empty() {
        return Err("'not any' would match nothing".into());
    }
    Ok(OneOf { negated, items })
}
