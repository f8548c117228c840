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
        other => panic!("{other:?}"),
    }
}

fn tcp_dport(op: &str, right: Value) -> Value {
    json!({ "op": op, "left": { "payload": { "protocol": "tcp", "field": "dport" } }, "right": right })
}

// promise: 15.3
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

// promise: 15.3
#[test]
fn what_cannot_be_read_is_unknown_by_name() {
    let state = json!({ "op": "in", "left": { "ct": { "key": "state" } }, "right": "established" });
    assert_eq!(read(state), Condition::Unknown("ct state".into()));
    let odd = tcp_dport("==", json!("http"));
    assert_eq!(
        read(odd),
        Condition::Unknown("tcp dport in this form".into())
    );
    let missing = tcp_dport("==", json!("@none"));
    assert!(matches!(read(missing), Condition::Unknown(why) if why.contains("none")));
}

// promise: 15.67
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

// Catches: a set that a statement names taken as printed; elements taken without what decides whether they match.
// promise: 15.71
#[test]
fn what_packets_change_is_the_kernels_though_nft_prints_no_flag() {
    let read = |set: Value, statement: Value| {
        let table = json!({ "family": "inet", "table": "t" });
        let with = |mut object: Value| {
            let own = object.as_object_mut().expect("it is one");
            own.extend(table.as_object().expect("it is one").clone());
            object
        };
        let rule = json!({ "chain": "elsewhere", "handle": 1, "expr": [statement] });
        let document = json!({ "nftables": [{ "set": with(set) }, { "rule": with(rule) }] });
        let ruleset = Ruleset::read(document.to_string().as_bytes()).expect("as nft prints it");
        let left = json!({ "payload": { "protocol": "ip", "field": "saddr" } });
        let statement = json!({ "op": "==", "left": left, "right": "@k" });
        at_eth1(&ruleset, "inet", |place| place.condition(&statement))
    };
    let set = |elements: Value, more: Value| json!({ "name": "k", "elem": elements, "stmt": more });
    let one = || set(json!(["10.0.0.1"]), json!(null));
    let other = json!({ "counter": null });
    assert!(matches!(read(one(), other.clone()), Condition::AnyOf(_)));
    let filled = |op: &str| {
        json!({ "set": { "op": op, "elem": { "payload": { "protocol": "ip", "field": "saddr" } },
            "set": "@k" } })
    };
    for statement in [
        filled("add"),
        filled("update"),
        filled("delete"),
        json!("add @k { ip saddr : tcp dport }"),
    ] {
        let found = read(one(), statement.clone());
        assert!(matches!(found, Condition::Unknown(_)), "{statement}");
    }
    let with = |key: &str| json!([{ "elem": { "val": "10.0.0.1", key: null } }]);
    let counters = json!([{ "counter": null }]);
    let found = read(set(with("counter"), counters.clone()), other.clone());
    assert!(matches!(found, Condition::AnyOf(fields) if fields.len() == 1));
    for (elements, more) in [
        (with("counter"), json!(null)),
        (with("limit"), json!(null)),
        (with("quota"), counters),
        (
            with("counter"),
            json!([{ "counter": null }, { "quota": { "val": 1 } }]),
        ),
        (json!([]), json!([{ "ct count": { "val": 2 } }])),
    ] {
        let found = read(set(elements.clone(), more.clone()), other.clone());
        assert!(
            matches!(found, Condition::Stateful(_)),
            "{elements} {more}: {found:?}"
        );
    }
}

// Catches: a field of a header within, or a number with its bytes swapped, taken for the packet's own.
// promise: 15.71
#[test]
fn what_only_looks_like_a_known_field_is_unknown() {
    let is = |left: Value, right: Value| read(json!({ "op": "==", "left": left, "right": right }));
    let meta = |key: &str| json!({ "meta": { "key": key } });
    let known = is(meta("nfproto"), json!(2));
    assert!(matches!(known, Condition::AnyOf(_)));
    let saddr = json!({ "payload": { "protocol": "ip", "field": "saddr", "tunnel": "vxlan" } });
    for (left, right) in [
        (saddr, json!("10.0.0.3")),
        (meta("protocol"), json!(2)),
        (meta("iifname"), json!("eth\\*")),
    ] {
        let found = is(left.clone(), right);
        assert!(matches!(found, Condition::Unknown(_)), "{left}: {found:?}");
    }
}

// promise: 15.3
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
