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
    let rule =
        json!({ "family": "inet", "table": "t", "chain": "c", "handle": 7, "expr": statements });
    let document = json!({ "nftables": [{ "chain": chain }, { "rule": rule }] });
    Ruleset::read(document.to_string().as_bytes()).unwrap()
}

fn goes_by(key: &str, name: &str) -> serde_json::Value {
    json!({ "match": { "op": "==", "left": { "meta": { "key": key } }, "right": name } })
}

// promise: 15.63
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

// promise: 15.63
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

// promise: 15.67
#[test]
fn a_part_of_a_bridge_is_asked_its_own_chains_only() {
    let port = Interface {
        name: "eth0",
        part_of: Some("br0"),
    };
    for (hook, comes, goes) in [("prerouting", 1, 0), ("forward", 1, 1), ("output", 0, 1)] {
        // If the port is a router's, this drops all packets that are not from the bridge.
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

// Catches: an ingress chain without devices skipped, though it may write what later chains are asked about.
// promise: 15.71
#[test]
fn a_chain_of_some_interface_is_asked_by_the_kernel() {
    let payload = json!({ "payload": { "protocol": "ip", "field": "daddr" } });
    let writes = json!({ "mangle": { "key": payload, "value": "10.0.0.2" } });
    let mut ruleset = rule_at("ingress", &json!([writes]));
    let key = (
        ruleset.chains.keys().next().expect("one").0.clone(),
        "c".to_owned(),
    );
    let first = |ruleset: &Ruleset| {
        split(ruleset, "eth0")
            .stages
            .first()?
            .rules
            .first()
            .map(|rule| rule.verdict)
    };
    assert_eq!(first(&ruleset), Some(Verdict::Ask), "it may be at eth0");
    for (devices, expected) in [("eth1", None), ("eth*", Some(Verdict::Ask))] {
        let chain = ruleset.chains.get_mut(&key).expect("it is there");
        chain.base.as_mut().expect("it is one").devices = vec![devices.to_owned()];
        assert_eq!(first(&ruleset), expected, "{devices}");
    }
    let drops = base("netdev", "ingress", "drop");
    assert_eq!(first(&drops), Some(Verdict::Ask), "it may drop");
    let accepts = base("netdev", "ingress", "accept");
    assert_eq!(
        first(&accepts),
        Some(Verdict::Accept),
        "it passes either way"
    );
}

// promise: 15.10
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
