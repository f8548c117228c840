//! Valid documents: their meaning, and that they can be written and read again.

mod support;

use nfluid_api::types::ApplyRequest;
use nfluid_control::document::{read, read_unchecked};
use nfluid_control::model::{Deployment, PortApi, PortRef, Program};
use nfluid_control::wiring::{Destination, wiring};
use nfluid_control::yaml::Node;
use support::{check, deployment, lines};

const EXAMPLE: &str = include_str!("support/example.yaml");

fn port(name: &str) -> PortRef {
    name.parse().expect("a valid name")
}

#[test]
fn the_example_is_read_without_errors() {
    let checked = check(EXAMPLE).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    let deployment = checked.deployment;
    assert_eq!(deployment.instances.len(), 5);
    let fw1 = deployment.instances.get("fw1").expect("it is there");
    assert_eq!(fw1.share.map(|share| share.percent(1)), Some(30.0));
    assert_eq!(fw1.config["rules"][1], "deny ip from any to any");
    let warnings = lines(&checked.warnings);
    assert!(
        warnings.contains("port 'mine.two' is not connected"),
        "{warnings}"
    );
    assert!(
        warnings.contains("port 'tail.out' is not connected"),
        "{warnings}"
    );
    assert_eq!(checked.warnings.len(), 2, "{warnings}");
}

// promise: 6.11
#[test]
fn a_deployment_is_written_in_the_syntax_in_which_it_is_read() {
    let first = deployment(EXAMPLE);
    let json = serde_json::to_string_pretty(&first).expect("serializes");
    let second = read_unchecked(&json, None).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    assert_eq!(first, second);
    let value = serde_json::to_value(&first).expect("serializes");
    assert_eq!(Node::from_json(&value).to_json(), value);
}

#[test]
fn chains_become_destinations_in_both_directions() {
    let wiring = wiring(&deployment(EXAMPLE));
    let plain = |name: &str| Destination::Port(port(name));
    assert_eq!(wiring[&port("fw1.in")], plain("wan"));
    assert_eq!(wiring[&port("fw1.out")], plain("nat1.in"));
    assert_eq!(wiring[&port("nat1.in")], plain("fw1.out"));
    assert_eq!(wiring[&port("nat1.out")], plain("r1.a"));
    assert_eq!(wiring[&port("r1.a")], plain("nat1.out"));
    assert_eq!(wiring[&port("r1.b")], plain("lan0"));
    assert_eq!(wiring[&port("mine.one")], plain("tail.in"));
    assert_eq!(wiring[&port("tail.in")], plain("mine.one"));
    assert_eq!(wiring[&port("r1.c")].to_string(), "switch lan vlan 10");
    let Destination::Classify(entries) = &wiring[&port("wan")] else {
        panic!("wan has two chains");
    };
    let targets: Vec<_> = entries.iter().map(|entry| entry.to.clone()).collect();
    assert_eq!(targets, [Some(port("fw1.in")), Some(port("lan0"))]);
    assert_eq!(entries[0].rules.len(), 2);
    let Destination::Classify(entries) = &wiring[&port("lan0")] else {
        panic!("lan0 has two chains");
    };
    assert_eq!(entries[0].rules[0].to_string(), "proto tcp sport 80-90");
    assert_eq!(entries[0].to, Some(port("r1.b")));
    assert!(!wiring.contains_key(&port("mine.two")));
}

#[test]
fn a_single_chain_for_everything_needs_no_classifier() {
    let wiring = wiring(&deployment(
        "version: 1\n\
         uplinks: { a: { interface: eth1 }, b: { interface: eth2 } }\n\
         instances: { fw: { nf: firewall } }\n\
         chains: { c: { from: a, to: b, via: [fw] } }\n",
    ));
    assert_eq!(wiring[&port("a")], Destination::Port(port("fw.in")));
    assert_eq!(wiring[&port("b")], Destination::Port(port("fw.out")));
}

#[test]
fn json_is_read_by_the_same_code() {
    let json = r#"{"version": 1, "instances": {"a": {"nf": "bridge", "share": "5%"}}}"#;
    assert_eq!(deployment(json).instances.len(), 1);
}

#[test]
fn aliases_within_reason_are_fine() {
    let text = "version: 1\ninstances:\n  a: &fw { nf: firewall, share: 1% }\n  b: *fw\n";
    let deployment = deployment(text);
    assert_eq!(deployment.instances.get("a"), deployment.instances.get("b"));
}

// promise: 21.2
#[test]
fn a_program_says_how_it_has_its_ports() {
    let text = |keys: &str| format!("version: 1\ninstances:\n  a: {{ {keys} }}\n");
    let api = |keys: &str| match &deployment(&text(keys))
        .instances
        .get("a")
        .expect("there")
        .program
    {
        Program::Path { api, .. } => *api,
        other => panic!("{other:?}"),
    };
    assert_eq!(api("program: /bin/sh"), PortApi::Library);
    assert_eq!(api("program: /bin/sh, api: library"), PortApi::Library);
    assert_eq!(api("program: /bin/sh, api: dpdk"), PortApi::Dpdk);
    for (keys, expected) in [
        (
            "nf: bridge, api: dpdk",
            "only a program of the host has an 'api'",
        ),
        ("program: /bin/sh, api: dpkd", "did you mean 'dpdk'?"),
        (
            "program: /boot/x, api: dpdk, tier: linux",
            "has no ports of the switch",
        ),
        (
            "program: /bin/sh, api: dpdk, ports: { eth0: { kind: interface } }",
            "has no ports of the switch",
        ),
    ] {
        let errors = check(&text(keys)).expect_err(keys);
        let lines = lines(&errors);
        assert!(lines.contains(expected), "{keys}: {lines}");
    }
}

#[test]
fn nothing_at_all_can_be_desired() {
    assert_eq!(deployment("version: 1"), Deployment::default());
}

#[test]
fn thousands_of_instances_are_read_and_checked() {
    let mut text = String::from("version: 1\novercommit: true\nswitches: { s: {} }\ninstances:\n");
    for i in 0..5_000 {
        text += &format!(
            "  t{i}: {{ nf: bridge, flavor: small, share: 1%, ports: {{ in: {{ switch: s }}, \
             out: {{ switch: s }} }} }}\n"
        );
    }
    assert_eq!(deployment(&text).instances.len(), 5_000);
}

/// Applies a document to a deployment; the faults otherwise.
fn apply_to(
    present: &Deployment,
    text: &str,
    merge: bool,
    replaces: Option<&str>,
) -> Result<Deployment, String> {
    let request = ApplyRequest {
        text: text.to_owned(),
        merge,
        replaces: replaces.map(str::to_owned),
        ..ApplyRequest::default()
    };
    let checked = read(&request, present, support::ENVIRONMENT);
    checked
        .map(|checked| checked.deployment)
        .map_err(|errors| lines(&errors))
}

// promise: 6.14
#[test]
fn an_engines_instances_stay_and_are_nobody_elses() {
    let present = deployment(
        "version: 1\nswitches: { lan: {} }\ninstances:\n  own: { nf: bridge }\n  \
         theirs: { nf: bridge, owner: 'nomad:1', ports: { in: { switch: lan }, out: {} } }\n  \
         more: { nf: bridge, owner: 'nomad:2' }\nlinks: [[theirs.out, more.in], [own.in, more.out]]\n",
    );
    let replace =
        |text: &str, merge: bool, replaces: Option<&str>| apply_to(&present, text, merge, replaces);
    let apply = |text: &str, merge: bool| replace(text, merge, None);
    let names = |deployment: &Deployment| {
        deployment
            .instances
            .names()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };

    // A document without them: they stay, with their links.
    let kept = apply(
        "version: 1\nswitches: { lan: {} }\ninstances: { own: { nf: bridge } }\n",
        false,
    )
    .expect("valid");
    assert_eq!(names(&kept), ["own", "theirs", "more"]);
    assert_eq!(kept.links.len(), 2);
    // What they need cannot go.
    let without_switch = apply("version: 1\ninstances: { own: { nf: bridge } }\n", false)
        .expect_err("a port is on it");
    assert!(without_switch.contains("lan"), "{without_switch}");
    let without_own =
        apply("version: 1\nswitches: { lan: {} }\n", false).expect_err("a link has no end");
    assert!(without_own.contains("own"), "{without_own}");

    // Neither an operator nor another engine changes them, nor an engine an operator's.
    for (text, merge) in [
        (
            "version: 1\nswitches: { lan: {} }\ninstances: { own: { nf: bridge }, theirs: { nf: bridge } }\n",
            false,
        ),
        ("version: 1\ninstances: { theirs: { nf: bridge } }\n", true),
        (
            "version: 1\ninstances: { theirs: { nf: bridge, owner: 'nomad:2' } }\n",
            true,
        ),
        (
            "version: 1\ninstances: { own: { nf: bridge, owner: 'nomad:1' } }\n",
            true,
        ),
    ] {
        let refused = apply(text, merge).expect_err("it is somebody else's");
        assert!(refused.contains("the instance exists"), "{refused}");
    }
    // Its owner does.
    let changed = apply(
        "version: 1\ninstances: { theirs: { nf: bridge, owner: 'nomad:1', share: 5% } }\n",
        true,
    );
    assert_eq!(changed.map(|changed| names(&changed).len()), Ok(3));
    // One that knows the owner takes its place, and nobody takes an operator's.
    let next = "version: 1\ninstances: { theirs: { nf: bridge, owner: 'nomad:3' } }\n";
    assert!(replace(next, true, Some("nomad:1")).is_ok());
    for other in ["nomad:2", "nomad:3", ""] {
        replace(next, true, Some(other)).expect_err("it is another's");
    }
    let own = "version: 1\ninstances: { own: { nf: bridge, owner: 'nomad:3' } }\n";
    replace(own, true, Some("")).expect_err("it is the operator's");
    for owner in ["''", "'a b'", &format!("'{}'", "x".repeat(129)), "[]"] {
        let text = format!("version: 1\ninstances: {{ new: {{ nf: bridge, owner: {owner} }} }}\n");
        apply(&text, true).expect_err("no name of an owner");
    }
}

// promise: 6.14
#[test]
fn an_engines_uplinks_and_switches_stay_and_are_nobody_elses() {
    let theirs = "version: 1\nswitches: { pods: { owner: 'cni:1' }, lan: {} }\nuplinks:\n  \
                  leg: { interface: eth2, owner: 'cni:1/c', switch: pods }\n  wan: { interface: eth1, owner: 'cni:1/d' }\n\
                  instances: { own: { nf: bridge } }\nlinks: [[own.in, wan]]\n";
    let present = deployment(theirs);
    let apply = |text: &str, merge: bool| apply_to(&present, text, merge, None);
    let kept = apply("version: 1\ninstances: { own: { nf: bridge } }\n", false).expect("valid");
    assert_eq!(kept.uplinks.names().collect::<Vec<_>>(), ["leg", "wan"]);
    assert_eq!(kept.switches.names().collect::<Vec<_>>(), ["pods"]);
    assert_eq!(kept.links.len(), 1);

    for (text, merge) in [
        ("version: 1\nswitches: { pods: {} }\n", true),
        ("version: 1\nswitches: { pods: { owner: 'cni:2' } }\n", true),
        ("version: 1\nswitches: { lan: { owner: 'cni:1' } }\n", true),
        ("version: 1\nuplinks: { wan: { interface: eth1 } }\n", true),
        (
            "version: 1\ninstances: { own: { nf: bridge } }\nuplinks: { wan: { interface: eth1 } }\n",
            false,
        ),
    ] {
        let refused = apply(text, merge).expect_err("it is somebody else's");
        assert!(refused.contains(" exists and is "), "{refused}");
    }
    let own = "version: 1\nuplinks: { wan: { interface: eth1, mtu: 1, owner: 'cni:1/d' } }\n";
    assert!(
        !apply(own, true)
            .expect_err("no such key")
            .contains(" exists ")
    );
    let own = "version: 1\nuplinks: { wan: { interface: eth1, super: off, owner: 'cni:1/d' } }\n";
    assert!(apply(own, true).is_ok());
}

// What an engine's instance needs of the host stays as long as the instance.
// promise: 6.14
#[test]
fn taps_of_an_engines_fast_path_stay_with_it() {
    let theirs = "version: 1\ninstances:\n  fw: { nf: firewall, owner: 'nomad:1', ports: { in: {}, out: {} } }\n  \
                  own: { nf: bridge }\n  \
                  fast: { nf: efw, tier: xdp, owner: 'nomad:1', interface: eth2, slow: { port: fw.in } }\n";
    let present = deployment(theirs);
    let own = "version: 1\ninstances: { own: { nf: bridge } }\n";
    let kept = apply_to(&present, own, false, None).expect("valid");
    assert_eq!(kept.uplinks, present.uplinks);
    assert_eq!(kept.links, present.links);
}
