//! A rule of the kernel's as one of the fast path's.

use super::condition::{Condition, Fields, Place, and};
use super::split::Decided;
use crate::firewall::rules::{Family, Rule, Verdict};
use serde_json::Value;

/// Translates a rule, and returns the rule of the fast path, if there is one. `families`: the packets that the rule's
/// chain sees; `policy`: the policy at the end of the chain.
pub fn translate(
    place: &Place<'_>,
    statements: &[Value],
    families: &[Family],
    policy: Verdict,
) -> (Decided, Option<Rule>) {
    let mut fields = vec![Fields::default()];
    // The reason why the kernel must see the packets that the rule may match.
    let mut condition = None;
    let mut statement = None;
    let mut verdict = None;
    for found in statements {
        // nft prints statements without a JSON form as text, as version 1.0.6 does with `add @map { ... : ... }`.
        let Some((kind, value)) = found.as_object().and_then(|object| object.iter().next()) else {
            statement = Some(format!("statement {found}"));
            continue;
        };
        match kind.as_str() {
            "match" => match place.condition(value) {
                Condition::AnyOf(more) => match and(&fields, &more) {
                    Some(both) => fields = both,
                    None => condition = Some("too many combinations".to_owned()),
                },
                Condition::Unknown(why) => condition = Some(why),
                // The kernel must evaluate the rule although the rule has no verdict.
                Condition::Stateful(why) => statement = Some(why),
            },
            // The fast path counts its own drops. But a counter out of a map ends the rule for packets that the map
            // has not.
            "counter" if value["map"].is_null() => {}
            "accept" => verdict = Some(Verdict::Accept),
            "drop" => verdict = Some(Verdict::Drop),
            "return" => verdict = Some(policy),
            "continue" => {}
            other => statement = Some(format!("statement {other}")),
        }
    }
    if fields.iter().any(Fields::asks_for_unread_ports) {
        condition.get_or_insert_with(|| "ports of whichever protocol".to_owned());
        fields = fields.iter().map(Fields::whatever_ports).collect();
    }
    let patterns = fields.iter().flat_map(Fields::patterns);
    let patterns: Vec<_> = patterns
        .filter(|pattern| families.contains(&pattern.family))
        .collect();
    let rule = |verdict| {
        Some(Rule {
            patterns: patterns.clone(),
            verdict,
        })
    };
    match (statement, condition, verdict) {
        _ if patterns.is_empty() => (Decided::Never, None),
        (Some(why), ..) | (None, Some(why), Some(_)) => (Decided::Slow(why), rule(Verdict::Ask)),
        (None, None, Some(verdict)) => (Decided::Fast, rule(verdict)),
        (None, _, None) => (Decided::NoEffect, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::condition::testing::at_eth1;
    use super::super::ruleset::Ruleset;
    use super::*;
    use serde_json::json;

    fn translated(statements: &Value) -> (Decided, Option<Rule>) {
        let statements = statements.as_array().expect("a list");
        at_eth1(&Ruleset::default(), "ip", |place| {
            translate(place, statements, &[Family::V4], Verdict::Drop)
        })
    }

    // Catches: statements skipped as text; a counter's map ignored.
    // promise: 15.71
    #[test]
    fn a_statement_that_may_end_a_rule_is_the_kernels_however_nft_prints_it() {
        let drop = json!({ "drop": null });
        let saddr = json!({ "payload": { "protocol": "ip", "field": "saddr" } });
        let by_map = |data: Value| json!({ "counter": { "map": { "key": saddr, "data": data } } });
        for statement in [
            json!("add @m { ip saddr : tcp dport }"),
            by_map(json!("@m")),
            by_map(json!({ "set": [["10.0.0.2", "a"]] })),
            json!({ "match": { "op": "==", "left": saddr,
                "right": { "set": [{ "elem": { "val": "10.0.0.2", "quota": { "val": 1 } } }] } } }),
            json!({ "quota": "q" }),
            json!({ "limit": { "rate": 1, "per": "second", "inv": true } }),
            json!({ "ct count": { "val": 3, "inv": true } }),
            json!({ "set": { "op": "delete", "elem": saddr, "set": "@k" } }),
            json!({ "meter": { "key": saddr, "stmt": { "limit": { "rate": 1 } }, "name": "m" } }),
        ] {
            for rule in [json!([statement]), json!([statement, drop])] {
                let (decided, made) = translated(&rule);
                assert!(matches!(decided, Decided::Slow(_)), "{rule}: {decided}");
                assert_eq!(made.expect("it may match").verdict, Verdict::Ask);
            }
        }
        for counter in [json!(null), json!("a"), json!({ "packets": 0, "bytes": 0 })] {
            let (decided, _) = translated(&json!([{ "counter": counter }, drop]));
            assert_eq!(decided, Decided::Fast, "{counter}");
        }
    }

    // promise: 15.67
    #[test]
    fn ports_of_protocols_whose_ports_are_not_read_are_the_kernels() {
        let is = |left: Value, right: Value| json!({ "match": { "op": "==", "left": left, "right": right } });
        let port = is(
            json!({ "payload": { "protocol": "th", "field": "dport" } }),
            json!(53),
        );
        let protocol = |names: Value| is(json!({ "meta": { "key": "l4proto" } }), names);
        let accept = json!({ "accept": null });
        let known = protocol(json!({ "set": ["tcp", "udp"] }));
        let (decided, rule) = translated(&json!([known, port, accept]));
        assert_eq!(decided, Decided::Fast);
        let patterns = rule.expect("it has one").patterns;
        assert!(patterns.len() == 2 && patterns.iter().all(|pattern| pattern.ports));

        // UDP-Lite has a port there too, which the fast path does not see.
        for rest in [
            json!([port, accept]),
            json!([protocol(json!("udplite")), port, accept]),
        ] {
            let (decided, rule) = translated(&rest);
            assert!(matches!(decided, Decided::Slow(_)), "{rest}: {decided}");
            let rule = rule.expect("what it may match is the kernel's");
            assert_eq!(rule.verdict, Verdict::Ask);
            assert!(rule.patterns.iter().all(|pattern| !pattern.ports));
        }
    }
}
