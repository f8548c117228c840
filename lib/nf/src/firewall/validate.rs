//! Rules that can be written but never match are refused: they are mistakes.

use super::items::Result;
use super::rule::{
    Family, FlagsMatch, ICMP, ICMPV6, OneOf, Prefix, Protocol, Rule, RuleAction, TCP, UDP,
};
use alloc::format;

/// Refuses conditions that contradict each other.
///
/// # Errors
/// The two conditions.
pub fn check(rule: &Rule) -> Result<()> {
    if rule.keep_state.is_some() && rule.action != RuleAction::Allow {
        return Err("'keep-state' and 'limit' go with 'allow' only".into());
    }
    let ports = !rule.from.ports.is_any() || !rule.to.ports.is_any();
    if ports && !may_be(&rule.protocol, &[TCP, UDP]) {
        return Err("ports need protocol tcp, udp or ip".into());
    }
    if !rule.flags.is_empty() && !may_be(&rule.protocol, &[TCP]) {
        return Err("TCP flags, 'setup' and 'established' need protocol tcp or ip".into());
    }
    if rule.flags.iter().any(|f| impossible(f.of)) {
        return Err("TCP flags wanted both set and clear".into());
    }
    icmp(rule)?;
    families(rule)
}

fn icmp(rule: &Rule) -> Result<()> {
    let Some(first) = rule.icmp.items.first() else {
        return Ok(());
    };
    let (name, number) = match first.family {
        Family::V4 => ("icmp", ICMP),
        Family::V6 => ("icmp6", ICMPV6),
    };
    if rule
        .icmp
        .items
        .iter()
        .any(|item| item.family != first.family)
    {
        return Err("'icmptypes' and 'icmp6types' in one rule: write two".into());
    }
    if may_be(&rule.protocol, &[number]) {
        Ok(())
    } else {
        Err(format!("'{name}types' needs protocol {name} or ip"))
    }
}

/// Returns true if a protocol list admits one of `numbers`.
fn may_be(protocol: &OneOf<Protocol>, numbers: &[u8]) -> bool {
    protocol.negated
        || protocol.is_any()
        || protocol.items.iter().any(|item| match item {
            Protocol::Family(_) => true,
            Protocol::Number(number) => numbers.contains(number),
        })
}

fn impossible(flags: FlagsMatch) -> bool {
    matches!(flags, FlagsMatch::Exact { set, clear } if set & clear != 0)
}

/// Some IP version must be possible for protocol, source and destination at once.
fn families(rule: &Rule) -> Result<()> {
    let possible = [Family::V4, Family::V6].into_iter().any(|family| {
        protocol_allows(&rule.protocol, family)
            && addresses_allow(&rule.from.addresses, family)
            && addresses_allow(&rule.to.addresses, family)
    });
    if possible {
        Ok(())
    } else {
        Err("protocol, source and destination are not of one IP version".into())
    }
}

fn protocol_allows(protocol: &OneOf<Protocol>, family: Family) -> bool {
    protocol.negated
        || protocol.is_any()
        || protocol.items.iter().any(|item| match *item {
            Protocol::Family(wanted) => wanted == family,
            Protocol::Number(_) => true,
        })
}

fn addresses_allow(addresses: &OneOf<Prefix>, family: Family) -> bool {
    addresses.negated
        || addresses.is_any()
        || addresses.items.iter().any(|prefix| match prefix {
            Prefix::V4(..) => family == Family::V4,
            Prefix::V6(..) => family == Family::V6,
        })
}
