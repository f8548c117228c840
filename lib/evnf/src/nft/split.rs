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

/// An interface, as rules know it.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name of the bridge, bond or VRF that it is a part of. Chains see its packets under that name, or not at all; but for those
    /// that are the interface's own.
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
    /// Where among the others: hook, priority.
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

/// Splits a rule set for what goes out by an interface: the chains at `output`, `forward`, `postrouting`, and its own at `egress`. The
/// kernel has asked them before, except for what goes around them. `Traffic::Local` is what the host has made.
pub fn split_leaving<'a>(ruleset: &Ruleset, interface: impl Into<Interface<'a>>) -> Split {
    let interface = interface.into();
    let part = why_part(interface);
    let changed = why_changed(ruleset);
    let unseen = Unseen {
        is_unseen: match changed {
            Some(_) => |_| true,
            // What chains before the last have seen may not be what goes out.
            None => |base| base.hook != "egress",
        },
        why: changed.or(part).or_else(|| why_translated(ruleset)),
    };
    fill(Split::default(), ruleset, interface.name, &unseen, true)
}

/// Chains that see other packets than the fast path.
struct Unseen {
    /// Why; absent: there are none.
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
        "input" | "output" => Traffic::Local,
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

/// When a packet that comes in by the interface, or goes out, meets a chain. `None`: never, or behind the last that can drop it
/// unseen.
fn order(table: &Table, base: &Base, interface: &str, leaving: bool) -> Option<(u8, i64)> {
    let is_own = || base.devices.iter().any(|device| device == interface);
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

/// Why chains see packets of an interface under another name, or not at all.
fn why_part(interface: Interface<'_>) -> Option<String> {
    let whole = interface.part_of?;
    Some(format!(
        "{} is a part of {whole}: chains see its packets under that name, or not at all",
        interface.name
    ))
}

/// Why packets may go out with other headers than chains have seen: a rule writes some.
fn why_changed(ruleset: &Ruleset) -> Option<String> {
    let mut chains = ruleset.chains.iter();
    let found = chains.find(|(_, chain)| {
        let mut statements = chain.rules.iter().flat_map(|(_, statements)| statements);
        statements.any(|statement| {
            let key = &statement["mangle"]["key"];
            // Marks are beside the packet.
            !key.is_null() && key["meta"].is_null() && key["ct"].is_null()
        })
    });
    found.map(|((table, chain), _)| format!("chain {chain} of table {table} changes packets"))
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

    fn rule_at(hook: &str, statements: &serde_json::Value) -> Ruleset {
        let chain = json!({ "family": "inet", "table": "t", "name": "c", "hook": hook, "prio": 0, "type": "filter",
            "policy": "accept" });
        let rule = json!({ "family": "inet", "table": "t", "chain": "c", "handle": 7, "expr": statements });
        let document = json!({ "nftables": [{ "chain": chain }, { "rule": rule }] });
        Ruleset::read(document.to_string().as_bytes()).unwrap()
    }

    fn goes_by(key: &str, name: &str) -> serde_json::Value {
        json!({ "match": { "op": "==", "left": { "meta": { "key": key } }, "right": name } })
    }

    #[test]
    fn on_the_way_out_other_chains_and_the_other_interface_count() {
        for (hook, comes, goes) in [
            ("prerouting", 1, 0),
            ("input", 1, 0),
            ("forward", 1, 1),
            ("output", 0, 1),
            ("postrouting", 0, 1),
        ] {
            let ruleset = base("inet", hook, "drop");
            assert_eq!(split(&ruleset, "eth0").stages.len(), comes, "{hook}");
            assert_eq!(split_leaving(&ruleset, "eth0").stages.len(), goes, "{hook}");
        }
        let drop = json!({ "drop": null });
        let decided = |key: &str, name: &str| {
            let ruleset = rule_at("forward", &json!([goes_by(key, name), drop]));
            let decided = |split: Split| split.lines[0].decided.clone();
            (
                decided(split(&ruleset, "eth0")),
                decided(split_leaving(&ruleset, "eth0")),
            )
        };
        let slow = |what: &str| Decided::Slow(what.to_owned());
        assert_eq!(
            decided("oifname", "eth0"),
            (slow("meta oifname"), Decided::Fast)
        );
        assert_eq!(decided("oifname", "eth1").1, Decided::Never);
        assert_eq!(
            decided("iifname", "eth0"),
            (Decided::Fast, slow("meta iifname"))
        );
    }

    #[test]
    fn what_went_by_a_chain_under_another_name_is_not_asked_again() {
        let payload = json!({ "payload": { "protocol": "ip", "field": "daddr" } });
        let writes = json!({ "mangle": { "key": payload, "value": "10.0.0.2" } });
        let marks = json!({ "mangle": { "key": { "meta": { "key": "mark" } }, "value": 1 } });
        for (statement, is_left) in [(writes, true), (marks, false)] {
            let split = split_leaving(&rule_at("output", &json!([statement])), "eth0");
            assert_eq!(split.all_behind.is_some(), is_left, "{statement}");
            assert_eq!(split.lines.is_empty(), is_left, "{statement}");
        }
    }

    #[test]
    fn a_part_of_a_bridge_is_asked_its_own_chains_only() {
        let port = Interface {
            name: "eth0",
            part_of: Some("br0"),
        };
        for (hook, comes, goes) in [("prerouting", 1, 0), ("forward", 1, 1), ("output", 0, 1)] {
            // Where the port is a router's, this drops all that is not from the bridge.
            let drop = json!({ "drop": null });
            let name = json!({ "match": { "op": "!=", "left": { "meta": { "key": "iifname" } }, "right": "br0" } });
            let ruleset = rule_at(hook, &json!([name, drop]));
            let stages = split(&ruleset, "eth0").stages;
            assert_eq!(stages.len(), comes, "{hook}");
            let stages = split_leaving(&ruleset, "eth0").stages;
            assert_eq!(stages.len(), goes, "{hook}");
            for split in [split(&ruleset, port), split_leaving(&ruleset, port)] {
                let met: Vec<_> = split.stages.iter().flat_map(|one| &one.rules).collect();
                assert!(
                    met.iter().all(|rule| rule.verdict == Verdict::Ask),
                    "{hook}"
                );
            }
        }
        let why = split(&base("inet", "forward", "drop"), port).all_behind;
        assert!(why.is_some_and(|why| why.contains("eth0 is a part of br0")));
        let mut own = base("netdev", "ingress", "drop");
        for chain in own.chains.values_mut() {
            chain.base.as_mut().expect("it is one").devices = vec!["eth0".to_owned()];
        }
        let drops = |split: Split| split.stages[0].rules[0].verdict == Verdict::Drop;
        assert!(drops(split(&own, port)), "its own chain comes first");
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
