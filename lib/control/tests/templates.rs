//! Templates: valid ones, and every fault that one can have.

mod support;

use nfluid_control::model::{Deployment, PortRef};
use nfluid_control::template::Guest;
use nfluid_control::wiring::{Destination, wiring};
use support::{check, deployment, lines};

const GROUND: &str = "version: 1
uplinks: { a: { interface: eth1 }, b: { interface: eth2 } }
pool: { p: { flavor: small, ports: 2, size: 4 } }
";

fn with(templates: &str) -> String {
    format!("{GROUND}templates:\n{templates}")
}

#[track_caller]
fn refused(templates: &str, wanted: &[&str]) {
    let found = match check(&with(templates)) {
        Err(errors) => lines(&errors),
        Ok(checked) => panic!("accepted: {:?}", checked.deployment.templates),
    };
    for words in wanted {
        assert!(found.contains(words), "'{words}' is not in:\n{found}");
    }
}

const RIGHT: &str = "  t: { activate: on-demand, from: a, to: b, match: [{ src: 10.0.0.0/8 }], instance: { nf: bridge, flavor: small } }\n";

#[test]
fn a_template_has_its_defaults_and_survives_being_written() {
    let whole = deployment(&with(RIGHT));
    let template = whole.templates.get("t").expect("it is there");
    assert_eq!((template.most, template.per_second), (1000, 100));
    assert_eq!(template.idle.to_string(), "2s");
    let text = serde_json::to_string(&whole).expect("it can be written");
    assert_eq!(deployment(&text), whole);
}

#[test]
fn a_template_is_a_rule_on_either_side_behind_the_chains() {
    let whole = deployment(&with(RIGHT));
    let wires = wiring(&whole);
    for (uplink, back) in [("a", false), ("b", true)] {
        let to = &wires[&PortRef::Uplink(uplink.into())];
        let Destination::Classify(entries) = to else {
            panic!("{to}");
        };
        let clients = entries[0].clients.as_ref().expect("clients");
        assert_eq!((clients.template.as_str(), clients.back), ("t", back));
        let rule = &entries[0].rules[0];
        let net = if back { rule.dst } else { rule.src };
        assert_eq!(
            net.map(|net| net.to_string()).as_deref(),
            Some("10.0.0.0/8")
        );
    }
}

#[test]
fn a_guest_has_a_name_of_its_own_and_its_variables() {
    let whole = deployment(&with(
        "  t: { activate: on-demand, from: a, to: b, instance: { nf: firewall, flavor: small, config: { rules: ['from ${client} by ${name} of ${template}'] } } }\n",
    ));
    let guest = Guest {
        template: "t".into(),
        client: "2001:db8::7".into(),
    };
    assert_eq!(guest.name(), "t@2001-db8--7");
    let template = whole.templates.get("t").expect("it is there");
    let made = template.resolve(&whole, &guest).expect("known variables");
    let (name, spec) = &made.instances[0];
    assert_eq!((name.as_str(), made.instances.len()), ("t@2001-db8--7", 1));
    assert_eq!(
        spec.config["rules"][0],
        "from 2001:db8::7 by t@2001-db8--7 of t"
    );
    let leads = |wire: usize| made.wires[wire].1.clone();
    assert_eq!(made.wires[0].0.to_string(), "t@2001-db8--7.in");
    assert_eq!(leads(1), Destination::Port(PortRef::Uplink("b".into())));
}

const CHAIN: &str = "  c: { activate: on-demand, from: a, to: b, via: [{ instance: { nf: bridge, flavor: small } }, { in: x, out: y, instance: { nf: bridge, flavor: small, ports: [x, y], config: { a: 'by ${name}' } } }] }\n";

/// The same document with `chains` in the place of `templates`.
fn with_chains(chains: &str) -> String {
    format!("{GROUND}chains:\n{chains}")
}

// promise: 5.30
#[test]
fn a_chain_on_demand_is_a_template_whose_clients_get_several_instances() {
    let text = with_chains(CHAIN).replace(", config: { a: 'by ${name}' }", "");
    let whole = deployment(&text);
    assert!(whole.chains.is_empty());
    let template = whole.templates.get("c").expect("it is one");
    let guest = Guest {
        template: "c".into(),
        client: "10.0.0.7".into(),
    };
    let made = template.resolve(&whole, &guest).expect("no variables");
    let names: Vec<&str> = made
        .instances
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["c@10-0-0-7", "c@10-0-0-7@2"]);
    let wires = made.wires.iter();
    let wires: Vec<String> = wires.map(|(port, to)| format!("{port} {to}")).collect();
    let found = wires.join(", ");
    for wire in [
        "c@10-0-0-7.out port c@10-0-0-7@2.x",
        "c@10-0-0-7@2.x port c@10-0-0-7.out",
    ] {
        assert!(found.contains(wire), "{found}");
    }
    let (entry, back) = template.ends_of(&guest).expect("it has instances");
    let ends = (entry.to_string(), back.to_string());
    assert_eq!(ends, ("c@10-0-0-7.in".into(), "c@10-0-0-7@2.y".into()));
    // The template is written in its own form, and one with a single instance in the former form.
    let written = serde_json::to_string(&whole).expect("it can be written");
    assert_eq!(deployment(&written), whole);
    assert_eq!(
        deployment(&with(CHAIN).replace(", config: { a: 'by ${name}' }", "")),
        whole
    );
}

// promise: 5.34
#[test]
fn what_is_wrong_with_a_chain_on_demand_is_said_where_it_stands() {
    let refused = |chains: &str, wanted: &str| match check(&with_chains(chains)) {
        Err(errors) => assert!(
            lines(&errors).contains(wanted),
            "{wanted}:\n{}",
            lines(&errors)
        ),
        Ok(checked) => panic!("accepted: {:?}", checked.deployment.templates),
    };
    let unknown = CHAIN.replace("${name}", "${nmae}");
    refused(
        &unknown,
        "chains.c.via[1].instance.config.a: there is no variable 'nmae'",
    );
    refused(
        &CHAIN.replace("in: x", "in: z"),
        "chains.c.via[1].in: its instance has no port 'z'",
    );
    refused(
        &CHAIN.replace("to: b", "to: x"),
        "chains.c.to: there is no uplink 'x'",
    );
    refused(
        &CHAIN.replace("to: b", "to: b, in: x"),
        "chains.c.in: 'in' beside 'via'",
    );
    refused(
        &CHAIN.replace("nf: bridge", "nf: bridge, share: 5%"),
        "chains.c.via[0].instance.share",
    );
    refused(
        &CHAIN.replace("nf: bridge", "nf: bridge, ports: { x: { mtu: 9000 } }"),
        "instance.ports.x.mtu: an instance of a template has no memory for packets above 2018 bytes",
    );
    let named = "  c: { activate: on-demand, from: a, to: b, via: [fw] }\n";
    refused(
        named,
        "chains.c.via[0]: each client gets instances of its own",
    );
    let none = "  c: { activate: on-demand, from: a, to: b, via: [] }\n";
    refused(none, "chains.c.via: 0 instances for each client");
    refused(
        &format!("{CHAIN}templates:\n{RIGHT}").replace("  t:", "  c:"),
        "a template has the name 'c'",
    );
}

#[test]
fn without_a_pool_there_is_a_warning() {
    let text = with(RIGHT).replace("flavor: small, ports", "flavor: medium, ports");
    let checked = check(&text).expect("it works, slower");
    assert!(lines(&checked.warnings).contains("no pool has shells for these instances"));
    let checked = check(&with(RIGHT)).expect("right");
    assert_eq!(lines(&checked.warnings), "");
}

// promise: 5.34
#[test]
fn what_is_wrong_with_a_template_is_said_with_its_line() {
    refused(
        "  t: {}\n",
        &[
            "test.yaml:5:3: error: templates.t: the template has no 'activate'",
            "has no 'from'",
            "the template has no instance",
        ],
    );
    refused(
        &RIGHT.replace("on-demand", "always"),
        &["there is no activate 'always'"],
    );
    refused(
        &RIGHT.replace("to: b", "to: a"),
        &["templates.t.to: a loop", "test.yaml:5:"],
    );
    refused(
        &RIGHT.replace("to: b", "to: x"),
        &["there is no uplink 'x'"],
    );
    refused(
        &RIGHT.replace("to: b", "to: x.in"),
        &["clients are only at uplinks"],
    );
    for limit in ["most", "per_second"] {
        let zero = RIGHT.replace("to: b", &format!("to: b, {limit}: 0"));
        refused(&zero, &[&format!("templates.t.{limit}: 0 is out of range")]);
    }
    refused(
        &RIGHT.replace("to: b", "to: b, idle: 1ms"),
        &["templates.t.idle: a time of 1ms"],
    );
    refused(
        &RIGHT.replace("to: b", "to: b, client: colour"),
        &["there is no client 'colour'"],
    );
    let wide = RIGHT.replace("nf: bridge", "nf: bridge, ports: [in, out, more]");
    refused(
        &wide.replace("to: b", "to: b, most: 16000"),
        &["ports, more than the 32767"],
    );
    refused(
        &RIGHT.replace("nf: bridge", "nf: bridge, memory: 1MiB"),
        &["templates.t.instance.memory"],
    );
    refused(
        &RIGHT.replace("flavor: small", "flavor: large"),
        &["templates.t.most: 1000 instances need"],
    );
    refused(
        &RIGHT.replace("nf: bridge", "nf: bridge, guarantee: 10%"),
        &["not supported for instances on demand"],
    );
    refused(
        &RIGHT.replace("to: b", "to: b, out: x"),
        &["templates.t.out: its instance has no port 'x'"],
    );
}

// promise: 5.34
#[test]
fn an_unknown_variable_is_named_with_its_line() {
    refused(
        "  t:\n    activate: on-demand\n    from: a\n    to: b\n    instance:\n      nf: firewall\n      flavor: small\n      config:\n        rules: |\n          good\n          from ${clinet}\n",
        &[
            "test.yaml:15:1: error: templates.t.instance.config.rules: there is no variable 'clinet'",
            "did you mean 'client'?",
        ],
    );
    refused(
        &RIGHT.replace(
            "nf: bridge",
            "nf: firewall, config: { rules: ['${client'] }",
        ),
        &["config.rules[0]: there is no variable"],
    );
}

#[test]
fn faults_of_a_configuration_are_found_before_the_first_client() {
    refused(
        &RIGHT.replace("nf: bridge", "nf: firewall, config: { rules: [bad] }"),
        &["'bad' is not a rule"],
    );
    refused(
        &RIGHT.replace("nf: bridge", "nf: brigde"),
        &["unknown NF 'brigde'"],
    );
}

// promise: 5.34
#[test]
fn templates_that_want_the_same_frames_are_refused() {
    let second = RIGHT.replace("  t:", "  u:");
    let both = |second: &str| format!("{RIGHT}{second}");
    refused(
        &both(&second),
        &["templates.u.match: overlap: template 't' matches some of the same frames at 'a'"],
    );
    refused(
        &both(&second.replace("10.0.0.0/8", "10.9.0.0/16")),
        &["overlap"],
    );
    refused(
        &both(&second.replace(", match: [{ src: 10.0.0.0/8 }]", "")),
        &["overlap"],
    );
    let other = both(
        &second
            .replace("10.0.0.0/8", "11.0.0.0/8")
            .replace("to: b", "to: b, most: 10"),
    );
    assert!(check(&with(&other)).is_ok());
}

#[test]
fn without_templates_nothing_is_written_of_them() {
    let text = serde_json::to_string(&Deployment::default()).expect("it can be written");
    assert!(!text.contains("templates"), "{text}");
}
