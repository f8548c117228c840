//! Rules as text: what `parse` reads back as the same rule.

use super::items::PROTOCOLS;
use super::rule::{
    ACK, Answer, Endpoint, Family, FlagsMatch, FragmentMatch, IcmpMatch, Negatable, OneOf, Prefix,
    Protocol, Rule, RuleAction, SYN, Unreachable,
};
use core::fmt::{Display, Formatter, Result};
use core::net::{Ipv4Addr, Ipv6Addr};
use nfluid_wire::TcpFlags;

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} {}", self.number, self.action)?;
        if *self == Rule::any(self.number, RuleAction::CheckState) {
            return Ok(());
        }
        f.write_str(" ")?;
        list(f, &self.protocol, "ip")?;
        write!(f, " from {} to {}", self.from, self.to)?;
        match self.in_port {
            Some(0) => f.write_str(" out")?,
            Some(_) => f.write_str(" in")?,
            None => {}
        }
        if !self.vlan.is_any() {
            option(f, self.vlan.negated, "vlan ")?;
            ranges(f, &self.vlan.items)?;
        }
        if let Some(Negatable { negated, of }) = self.fragment {
            option(f, negated, fragment_name(of))?;
        }
        for Negatable { negated, of } in &self.flags {
            option(f, *negated, "")?;
            of.fmt(f)?;
        }
        self.fmt_icmp(f)?;
        self.fmt_state(f)
    }
}

impl Rule {
    fn fmt_icmp(&self, f: &mut Formatter<'_>) -> Result {
        let Some(first) = self.icmp.items.first() else {
            return Ok(());
        };
        let name = match first.family {
            Family::V4 => "icmptypes ",
            Family::V6 => "icmp6types ",
        };
        option(f, self.icmp.negated, name)?;
        separated(f, &self.icmp.items)
    }

    fn fmt_state(&self, f: &mut Formatter<'_>) -> Result {
        let Some(keep) = self.keep_state else {
            return Ok(());
        };
        match keep.max_per_source {
            Some(max) => write!(f, " limit src-addr {max}")?,
            None => f.write_str(" keep-state")?,
        }
        if let Some(max) = keep.max {
            write!(f, " max {max}")?;
        }
        if let Some(seconds) = keep.timeout_s {
            write!(f, " timeout {seconds}")?;
        }
        Ok(())
    }
}

impl Display for RuleAction {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            RuleAction::Allow => "allow",
            RuleAction::Deny => "deny",
            RuleAction::Reject(Answer::Auto) => "reject",
            RuleAction::Reject(Answer::Reset) => "reset",
            RuleAction::Reject(Answer::Unreachable(reason)) => match reason {
                Unreachable::Net => "unreach net",
                Unreachable::Host => "unreach host",
                Unreachable::Port => "unreach port",
                Unreachable::Prohibited => "unreach filter-prohib",
            },
            RuleAction::Count => "count",
            RuleAction::CheckState => "check-state",
        })
    }
}

impl Display for Endpoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        list(f, &self.addresses, "any")?;
        if !self.ports.is_any() {
            option(f, self.ports.negated, "")?;
            ranges(f, &self.ports.items)?;
        }
        Ok(())
    }
}

impl Display for Protocol {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Protocol::Family(Family::V4) => f.write_str("ip4"),
            Protocol::Family(Family::V6) => f.write_str("ip6"),
            Protocol::Number(number) => {
                match PROTOCOLS.iter().find(|(_, known)| *known == number) {
                    Some((name, _)) => f.write_str(name),
                    None => number.fmt(f),
                }
            }
        }
    }
}

impl Display for Prefix {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Prefix::V4(net, 32) => Ipv4Addr::from(net).fmt(f),
            Prefix::V4(net, len) => write!(f, "{}/{len}", Ipv4Addr::from(net)),
            Prefix::V6(net, 128) => Ipv6Addr::from(net).fmt(f),
            Prefix::V6(net, len) => write!(f, "{}/{len}", Ipv6Addr::from(net)),
        }
    }
}

impl Display for FlagsMatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            FlagsMatch::Established => f.write_str("established"),
            FlagsMatch::Exact {
                set: SYN,
                clear: ACK,
            } => f.write_str("setup"),
            FlagsMatch::Exact { set, clear } => {
                f.write_str("tcpflags ")?;
                let mut separator = "";
                for (bits, mark) in [(set, ""), (clear, "!")] {
                    for bit in (0..8)
                        .map(|shift| bits & 1 << shift)
                        .filter(|bit| *bit != 0)
                    {
                        write!(f, "{separator}{mark}{}", TcpFlags(bit))?;
                        separator = ",";
                    }
                }
                Ok(())
            }
        }
    }
}

impl Display for IcmpMatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.code {
            Some(code) => write!(f, "{}/{code}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

fn fragment_name(of: FragmentMatch) -> &'static str {
    match of {
        FragmentMatch::Later => "frag",
        FragmentMatch::First => "frag first",
        FragmentMatch::Any => "frag any",
    }
}

fn option(f: &mut Formatter<'_>, negated: bool, name: &str) -> Result {
    f.write_str(if negated { " not " } else { " " })?;
    f.write_str(name)
}

fn list<T: Display>(f: &mut Formatter<'_>, list: &OneOf<T>, any: &str) -> Result {
    if list.is_any() {
        return f.write_str(any);
    }
    if list.negated {
        f.write_str("not ")?;
    }
    separated(f, &list.items)
}

fn separated<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

fn ranges(f: &mut Formatter<'_>, ranges: &[(u16, u16)]) -> Result {
    for (index, (low, high)) in ranges.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        low.fmt(f)?;
        if high != low {
            write!(f, "-{high}")?;
        }
    }
    Ok(())
}
