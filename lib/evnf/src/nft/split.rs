//! Which rules go to the fast path, and why others do not.

use super::chain::translate;
use super::condition::Place;
use super::ruleset::{Base, Chain, Ruleset, Table};
use crate::firewall::rules::{Family, Pattern, Rule, Stage, Traffic, Verdict};
use std::fmt;

/// Priority of connection tracking at the hook `prerouting` (`NF_IP_PRI_CONNTRACK`).
const CONNTRACK: i64 = -200;

/// Where a rule is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// By the fast path.
    Fast,
    /// It cannot match what comes in here.
    Never,
    /// It only counts.
    NoEffect,
    /// By the kernel, because of this. Packets that it may match are left to the kernel.
    Slow(String),
}

/// A rule of the host, and what became of it.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its table.
    pub table: Table,
    /// Its chain.
    pub chain: String,
    /// Its handle; `None`: the chain's policy.
    pub handle: Option<u64>,
    /// Where it is decided.
    pub decided: Decided,
    /// Its number on the fast path, if it has a rule there.
    pub number: Option<u32>,
}

/// A rule set, split.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// The fast path's part.
    pub stages: Vec<Stage>,
    /// All rules that packets may meet that come in here.
    pub lines: Vec<Line>,
    /// Why the chains behind connection tracking are left to the kernel.
    pub all_behind: Option<String>,
    /// What else may stop a packet that the stages accept, where only the kernel asks.
    pub only_kernel_asks: Option<String>,
}

impl Split {
    /// As it has to be before others that send on what it accepts, past the kernel: if the kernel might stop that, all that is not
    /// dropped is left to it.
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

/// A base chain, as a stage.
struct Met {
    /// Where among the others: hook, priority.
    order: (u8, i64),
    stage: Stage,
    lines: Vec<Line>,
}

/// Splits a rule set for what comes in by an interface.
pub fn split(ruleset: &Ruleset, interface: &str) -> Split {
    let translates = why_translated(ruleset);
    let mut split = Split {
        only_kernel_asks: only_kernel_asks(ruleset),
        ..Split::default()
    };
    let mut met: Vec<Met> = Vec::new();
    for ((table, name), chain) in &ruleset.chains {
        let Some((base, order)) = chain
            .base
            .as_ref()
            .and_then(|base| Some((base, order(table, base, interface)?)))
        else {
            continue;
        };
        if translates.is_some() && is_behind_conntrack(base) {
            split.all_behind.clone_from(&translates);
            continue;
        }
        let place = Place {
            ruleset,
            table,
            interface,
        };
        let (mut stage, mut lines) = stage_of(&place, name, chain, base);
        match ruleset.is_dormant(table) {
            Some(true) => continue,
            Some(false) => {}
            None => leave_to_kernel(&mut stage, &mut lines),
        }
        met.push(Met {
            order,
            stage,
            lines,
        });
    }
    // The kernel's order of chains with equal priorities is that in which they were made. What it has to see it sees whichever
    // is first.
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

/// What may stop packets behind the stages, or beside them.
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
        "input" => Traffic::Local,
        _ => Traffic::All,
    };
    (Stage { traffic, rules }, lines)
}

/// It may be that the rules are not in force: what they would drop the kernel has to see.
fn leave_to_kernel(stage: &mut Stage, lines: &mut [Line]) {
    for rule in &mut stage.rules {
        rule.verdict = Verdict::Ask;
    }
    for line in lines
        .iter_mut()
        .filter(|line| line.decided == Decided::Fast)
    {
        line.decided = Decided::Slow("nft does not say whether its table is dormant".to_owned());
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

/// When a packet that comes in by the interface meets a chain. `None`: never, or behind the last that can drop it unseen.
fn order(table: &Table, base: &Base, interface: &str) -> Option<(u8, i64)> {
    let hook = match (table.family.as_str(), base.hook.as_str()) {
        ("netdev" | "inet", "ingress") if base.devices.iter().any(|device| device == interface) => {
            0
        }
        ("ip" | "ip6" | "inet", "prerouting") => 1,
        ("ip" | "ip6" | "inet", "forward" | "input") => 2,
        _ => return None,
    };
    Some((hook, base.priority))
}

/// Why addresses behind connection tracking may not be those of the packet on the wire.
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
mod tests {
    use super::*;
    use serde_json::json;

    fn base(family: &str, hook: &str, policy: &str) -> Ruleset {
        let chain = json!({ "family": family, "table": "t", "name": "c", "hook": hook, "prio": 0,
            "type": "filter", "policy": policy });
        let document = json!({ "nftables": [{ "chain": chain }] });
        Ruleset::read(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_only_the_kernel_asks_leaves_all_to_it() {
        for (family, hook, policy, is_left) in [
            ("inet", "forward", "drop", false),
            ("inet", "output", "drop", false),
            ("inet", "postrouting", "accept", false),
            ("inet", "postrouting", "drop", true),
            ("netdev", "egress", "drop", true),
            ("bridge", "forward", "drop", true),
        ] {
            let split = split(&base(family, hook, policy), "eth0");
            let stages = split.stages.len();
            let before = split.before_senders();
            assert_eq!(before.stages.len() > stages, is_left, "{family} {hook}");
        }
        let legacy = Ruleset {
            has_legacy_tables: true,
            ..Ruleset::default()
        };
        let split = split(&legacy, "eth0");
        assert!(split.stages.is_empty());
        let last = split.before_senders().stages.pop().unwrap();
        assert_eq!(last.rules[0].verdict, Verdict::Ask);
    }
}
