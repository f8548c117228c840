//! Choice of the classifier's rules that a NIC may have, so that its answer is the classifier's.

use super::flow::flows;
use nfluid_switch::classifier::{Prefix, Rule, VlanMatch};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Most rules that are steered at one uplink: more than the tables of most NICs, and few enough for one order.
pub const STEERED_MAX: usize = 1024;

/// The rules that can be steered, and those that cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// In the classifier's order.
    pub rules: Vec<Rule>,
    /// Rules with a destination that are left to the classifier.
    pub left: usize,
    /// The reason for the first of them; empty: there is none.
    pub why: String,
}

impl Choice {
    /// Chooses among a classifier's rules.
    ///
    /// The first that matches wins there, while NICs differ in which of two they obey. So a rule is steered only if
    /// none before it, with another destination, can match the same frame.
    pub fn among(rules: &[Rule]) -> Self {
        let mut choice = Choice::default();
        for (index, rule) in rules.iter().enumerate() {
            if rule.to.is_none() && rule.clients.is_none() {
                continue;
            }
            match steerable(rule, &rules[..index], choice.rules.len()) {
                Ok(()) => choice.rules.push(rule.clone()),
                Err(why) => {
                    choice.left += 1;
                    if choice.why.is_empty() {
                        choice.why = format!("rule {}: {why}", index + 1);
                    }
                }
            }
        }
        choice
    }
}

fn steerable(rule: &Rule, before: &[Rule], chosen: usize) -> Result<(), &'static str> {
    if chosen >= STEERED_MAX {
        return Err("there are more rules than can be steered");
    }
    if rule.clients.is_some() {
        return Err("each client has an instance of its own behind it");
    }
    flows(rule)?;
    let is_beaten = |other: &Rule| other.to != rule.to && can_share(rule, other);
    if before.iter().any(is_beaten) {
        return Err("one before it, with another destination, matches some of its frames");
    }
    Ok(())
}

/// Returns true if a frame can match both rules.
fn can_share(a: &Rule, b: &Rule) -> bool {
    let (Some(family_a), Some(family_b)) = (a.family(), b.family()) else {
        return false;
    };
    let same = |a: Option<u16>, b: Option<u16>| a.is_none() || b.is_none() || a == b;
    same(family_a, family_b)
        && same(a.proto.map(u16::from), b.proto.map(u16::from))
        && (a.vlan == VlanMatch::Any || b.vlan == VlanMatch::Any || a.vlan == b.vlan)
        && prefixes_share(a.src, b.src)
        && prefixes_share(a.dst, b.dst)
        && ranges_share(a.sport.as_ref(), b.sport.as_ref())
        && ranges_share(a.dport.as_ref(), b.dport.as_ref())
}

fn prefixes_share(a: Option<Prefix>, b: Option<Prefix>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return true;
    };
    let bits = |prefix: Prefix| match prefix.address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let len = u32::from(a.len.min(b.len));
    let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
    a.address.is_ipv4() == b.address.is_ipv4() && (bits(a) ^ bits(b)) & mask == 0
}

fn ranges_share(a: Option<&RangeInclusive<u16>>, b: Option<&RangeInclusive<u16>>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return true;
    };
    a.start() <= b.end() && b.start() <= a.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_net(net: &str, len: u8, to: u32) -> Rule {
        Rule {
            dst: Some(Prefix {
                address: net.parse().expect("an address"),
                len,
            }),
            to: Some(to),
            ..Rule::default()
        }
    }

    #[test]
    fn disjoint_rules_are_all_steered() {
        let rules = [to_net("10.1.0.0", 16, 1), to_net("10.2.0.0", 16, 2)];
        let choice = Choice::among(&rules);
        assert_eq!(
            (choice.rules.len(), choice.left, choice.why.as_str()),
            (2, 0, "")
        );
    }

    #[test]
    fn a_rule_that_an_earlier_one_cuts_into_stays_with_the_classifier() {
        let rules = [
            to_net("10.1.2.0", 24, 1),
            to_net("10.1.0.0", 16, 2),
            to_net("10.1.2.3", 32, 1),
        ];
        let choice = Choice::among(&rules);
        assert_eq!(choice.rules, [rules[0].clone()]);
        assert_eq!(choice.left, 2);
        assert!(
            choice.why.starts_with("rule 2: one before it"),
            "{}",
            choice.why
        );
    }

    #[test]
    fn a_rule_without_a_destination_is_obeyed_but_not_steered() {
        let nowhere = Rule {
            to: None,
            ..to_net("10.1.0.0", 16, 1)
        };
        let rules = [nowhere, to_net("10.1.2.0", 24, 1), to_net("::", 0, 1)];
        let choice = Choice::among(&rules);
        assert_eq!(choice.rules, [rules[2].clone()]);
        assert_eq!(choice.left, 1);
    }

    #[test]
    fn everything_is_no_flow() {
        let all = Rule {
            to: Some(1),
            ..Rule::default()
        };
        let choice = Choice::among(&[all]);
        assert_eq!(choice.why, "rule 1: it matches everything");
    }

    #[test]
    fn rules_of_two_protocols_or_port_ranges_share_nothing() {
        let with = |proto, dport| Rule {
            proto: Some(proto),
            dport: Some(dport),
            ..Rule::default()
        };
        assert!(!can_share(&with(6, 1..=9), &with(17, 1..=9)));
        assert!(!can_share(&with(6, 1..=9), &with(6, 10..=19)));
        assert!(can_share(&with(6, 1..=10), &with(6, 10..=19)));
        let tagged = |id| Rule {
            vlan: VlanMatch::Id(id),
            ..Rule::default()
        };
        assert!(!can_share(&tagged(1), &tagged(2)));
        assert!(can_share(&tagged(1), &with(6, 1..=1)));
    }
}
