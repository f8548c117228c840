//! Which rules go to the fast path, and why others do not.

use super::chain::translate;
use super::condition::{Place, is_named};
use super::ruleset::{Base, Chain, Ruleset, Table};
use crate::firewall::rules::{Family, Pattern, Rule, Stage, Traffic, Verdict};
use std::fmt;

/// Priority of connection tracking at the hook `prerouting` (`NF_IP_PRI_CONNTRACK`).
const CONNTRACK: i64 = -200;

/// Place where a rule is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// By the fast path.
    Fast,
    /// The rule cannot match packets that come in here.
    Never,
    /// The rule only counts.
    NoEffect,
    /// By the kernel, because of this. Packets that it may match are left to the kernel.
    Slow(String),
}

/// A rule of the host, and what became of it.
#[derive(Clone, Debug)]
pub struct Line {
    /// The table of the rule.
    pub table: Table,
    /// The chain of the rule.
    pub chain: String,
    /// The handle of the rule; `None`: the chain's policy.
    pub handle: Option<u64>,
    /// The place where it is decided.
    pub decided: Decided,
    /// The rule's number on the fast path, if it has a rule there.
    pub number: Option<u32>,
}

/// A rule set, split.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// The fast path's part.
    pub stages: Vec<Stage>,
    /// All rules that packets may meet that come in here.
    pub lines: Vec<Line>,
    /// The reason why the chains after connection tracking are left to the kernel.
    pub all_behind: Option<String>,
    /// Other rules that only the kernel evaluates and that may drop a packet that the stages accept.
    pub only_kernel_asks: Option<String>,
}

impl Split {
    /// Returns the split for a position before functions that forward accepted packets past the kernel: if the kernel
    /// might drop such packets, all packets that the fast path does not drop are left to the kernel.
    pub fn before_senders(mut self) -> Self {
        if self.only_kernel_asks.is_some() {
            self.stages.push(leave_all());
        }
        self
    }
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decided::Fast => f.write_str("fast path"),
            Decided::Never => f.write_str("never matches here"),
            Decided::NoEffect => f.write_str("only counts"),
            Decided::Slow(why) => write!(f, "kernel: {why}"),
        }
    }
}

/// An interface, as rules know it.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// The name of the set.
    pub name: &'a str,
    /// The name of the bridge, bond or VRF that it is a part of. Chains see its packets under that name, or not at all;
    /// but for those that are the interface's own.
    pub part_of: Option<&'a str>,
}

impl<'a> From<&'a str> for Interface<'a> {
    fn from(name: &'a str) -> Self {
        Interface {
            name,
            part_of: None,
        }
    }
}

/// A base chain, as a stage.
struct Met {
    /// Position among the chains: hook, priority.
    order: (u8, i64),
    stage: Stage,
    lines: Vec<Line>,
}

/// Splits a rule set for what comes in by an interface.
pub fn split<'a>(ruleset: &Ruleset, interface: impl Into<Interface<'a>>) -> Split {
    let interface = interface.into();
    let split = Split {
        only_kernel_asks: only_kernel_asks(ruleset),
        ..Split::default()
    };
    let unseen = match why_part(interface) {
        Some(why) => Unseen {
            why: Some(why),
            is_unseen: |base| base.hook != "ingress",
        },
        None => Unseen {
            why: why_translated(ruleset),
            is_unseen: is_behind_conntrack,
        },
    };
    fill(split, ruleset, interface.name, &unseen, false)
}

/// Splits a rule set for the egress of an interface: the chains at `output`, `forward`, `postrouting`, and its own at
/// `egress`. The kernel has evaluated them before, except for packets that bypass them. `Traffic::Local` means packets
/// of the host itself.
pub fn split_leaving<'a>(ruleset: &Ruleset, interface: impl Into<Interface<'a>>) -> Split {
    let interface = interface.into();
    let part = why_part(interface);
    let changed = why_changed(ruleset);
    let unseen = Unseen {
        is_unseen: match changed {
            Some(_) => |_| true,
            // The packets that chains before the last have seen may not be the packets that go out.
            None => |base| base.hook != "egress",
        },
        why: changed.or(part).or_else(|| why_translated(ruleset)),
    };
    fill(Split::default(), ruleset, interface.name, &unseen, true)
}

/// Chains that see other packets than the fast path.
struct Unseen {
    /// The reason; absent: there are none.
    why: Option<String>,
    is_unseen: fn(&Base) -> bool,
}

fn fill(
    mut split: Split,
    ruleset: &Ruleset,
    interface: &str,
    unseen: &Unseen,
    leaving: bool,
) -> Split {
    let mut met: Vec<Met> = Vec::new();
    for ((table, name), chain) in &ruleset.chains {
        let Some((base, order)) = chain
            .base
            .as_ref()
            .and_then(|base| Some((base, order(table, base, interface, leaving)?)))
        else {
            continue;
        };
        if unseen.why.is_some() && (unseen.is_unseen)(base) {
            split.all_behind.clone_from(&unseen.why);
            continue;
        }
        let place = Place {
            ruleset,
            table,
            interface,
            leaving,
        };
        let (mut stage, mut lines) = stage_of(&place, name, chain, base);
        if ruleset.is_dormant(table) == Some(true) {
            continue;
        }
        if let Some(why) = why_not_in_force(ruleset, table, base) {
            leave_to_kernel(&mut stage, &mut lines, why);
        }
        met.push(Met {
            order,
            stage,
            lines,
        });
    }
    // The kernel's order of chains with equal priorities is that in which they were made. The kernel sees the packets
    // that it has to see, whichever chain is first.
    met.sort_by_key(|met| {
        (
            met.order,
            !met.stage
                .rules
                .iter()
                .any(|rule| rule.verdict == Verdict::Ask),
        )
    });
    for one in met {
        let before: usize = split
            .stages
            .iter()
            .map(|stage: &Stage| stage.rules.len())
            .sum();
        split.lines.extend(one.lines.into_iter().map(|line| Line {
            number: line.number.map(|number| number + before as u32),
            ..line
        }));
        split.stages.push(one.stage);
    }
    if split.all_behind.is_some() {
        split.stages.push(leave_all());
    }
    split
}

/// Leaves everything that no stage before it drops to the kernel.
fn leave_all() -> Stage {
    Stage {
        traffic: Traffic::All,
        rules: vec![for_all(&[Family::V4, Family::V6], Verdict::Ask)],
    }
}

/// Returns the rules that may drop packets after the stages, or independently of them.
fn only_kernel_asks(ruleset: &Ruleset) -> Option<String> {
    if ruleset.has_legacy_tables {
        return Some("iptables-legacy has tables, which nft does not show".to_owned());
    }
    let mut chains = ruleset.chains.iter();
    let found = chains.find(|((table, _), chain)| {
        chain.base.as_ref().is_some_and(|base| {
            let is_beside = table.family == "bridge";
            let is_behind = matches!(base.hook.as_str(), "postrouting" | "egress");
            (is_beside || is_behind) && (base.drops || !chain.rules.is_empty())
        })
    });
    found.map(|((table, chain), _)| format!("chain {chain} of table {table}"))
}

/// The stage of a base chain, its policy as its last rule, and what became of its rules. Numbers begin at 0.
fn stage_of(place: &Place<'_>, name: &str, chain: &Chain, base: &Base) -> (Stage, Vec<Line>) {
    let families = families_of(place.table);
    let policy = if base.drops {
        Verdict::Drop
    } else {
        Verdict::Accept
    };
    let mut rules: Vec<Rule> = Vec::new();
    let mut lines = Vec::new();
    let last = (None, (Decided::Fast, Some(for_all(families, policy))));
    let translated = chain.rules.iter().map(|(handle, statements)| {
        (
            Some(*handle),
            translate(place, statements, families, policy),
        )
    });
    for (handle, (decided, rule)) in translated.chain([last]) {
        lines.push(Line {
            table: place.table.clone(),
            chain: name.to_owned(),
            handle,
            decided,
            number: rule.is_some().then_some(rules.len() as u32),
        });
        rules.extend(rule);
    }
    let traffic = match base.hook.as_str() {
        "forward" => Traffic::Forwarded,
        "input" | "output" => Traffic::Local,
        _ => Traffic::All,
    };
    (Stage { traffic, rules }, lines)
}

/// Returns the reason why the rules of a chain may not be in force here.
fn why_not_in_force(ruleset: &Ruleset, table: &Table, base: &Base) -> Option<&'static str> {
    if ruleset.is_dormant(table).is_none() {
        return Some("nft does not say whether its table is dormant");
    }
    let has_devices = matches!(base.hook.as_str(), "ingress" | "egress");
    (has_devices && base.devices.is_empty())
        .then_some("nft does not say for which interfaces its chain is")
}

/// Leaves drops to the kernel, as the rules may not be in force: the kernel has to see packets that the rules would
/// drop. Packets that the rules accept pass either way.
fn leave_to_kernel(stage: &mut Stage, lines: &mut [Line], why: &str) {
    let is_drop = |rule: &Rule| rule.verdict == Verdict::Drop;
    for line in lines {
        let rule = line
            .number
            .and_then(|number| stage.rules.get_mut(number as usize));
        if let Some(rule) = rule.filter(|rule| is_drop(rule)) {
            rule.verdict = Verdict::Ask;
            line.decided = Decided::Slow(why.to_owned());
        }
    }
}

fn for_all(families: &[Family], verdict: Verdict) -> Rule {
    Rule {
        patterns: families.iter().copied().map(Pattern::any).collect(),
        verdict,
    }
}

/// Which packets meet the chains of a table.
fn families_of(table: &Table) -> &'static [Family] {
    match table.family.as_str() {
        "ip" => &[Family::V4],
        "ip6" => &[Family::V6],
        _ => &[Family::V4, Family::V6],
    }
}

/// Returns the position at which a packet that enters or leaves by the interface passes a chain. `None`: never, or
/// after the last chain that can drop it unseen.
fn order(table: &Table, base: &Base, interface: &str, leaving: bool) -> Option<(u8, i64)> {
    let is_own = || {
        let mut devices = base.devices.iter();
        base.devices.is_empty() || devices.any(|device| is_named(interface, device))
    };
    let hook = match (table.family.as_str(), base.hook.as_str(), leaving) {
        ("netdev" | "inet", "ingress", false) if is_own() => 0,
        ("ip" | "ip6" | "inet", "prerouting", false) => 1,
        ("ip" | "ip6" | "inet", "forward" | "input", false) => 2,
        ("ip" | "ip6" | "inet", "forward" | "output", true) => 0,
        ("ip" | "ip6" | "inet", "postrouting", true) => 1,
        ("netdev", "egress", true) if is_own() => 2,
        _ => return None,
    };
    Some((hook, base.priority))
}

/// Returns the reason why chains see packets of an interface under another name, or not at all.
fn why_part(interface: Interface<'_>) -> Option<String> {
    let whole = interface.part_of?;
    Some(format!(
        "{} is a part of {whole}: chains see its packets under that name, or not at all",
        interface.name
    ))
}

/// Returns the reason why packets may leave with other headers than chains have seen: a rule writes some.
fn why_changed(ruleset: &Ruleset) -> Option<String> {
    let mut chains = ruleset.chains.iter();
    let found = chains.find(|(_, chain)| {
        let mut statements = chain.rules.iter().flat_map(|(_, statements)| statements);
        statements.any(|statement| {
            let key = &statement["mangle"]["key"];
            // Marks are not part of the packet.
            !key.is_null() && key["meta"].is_null() && key["ct"].is_null()
        })
    });
    found.map(|((table, chain), _)| format!("chain {chain} of table {table} changes packets"))
}

/// Returns the reason why addresses after connection tracking may not be those of the packet on the wire.
fn why_translated(ruleset: &Ruleset) -> Option<String> {
    if ruleset.has_flow_tables {
        return Some("a flow table lets packets past the chains".to_owned());
    }
    if ruleset.has_legacy_nat {
        return Some("iptables-legacy has a table nat".to_owned());
    }
    let mut chains = ruleset.chains.iter();
    let nat = chains.find(|(_, chain)| {
        !chain.rules.is_empty() && chain.base.as_ref().is_some_and(|base| base.kind == "nat")
    });
    nat.map(|((table, chain), _)| format!("chain {chain} of table {table} translates addresses"))
}

fn is_behind_conntrack(base: &Base) -> bool {
    match base.hook.as_str() {
        "ingress" => false,
        "prerouting" => base.priority >= CONNTRACK,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
