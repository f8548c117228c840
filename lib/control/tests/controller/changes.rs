//! The changes that a document causes, and the objects that stay.

use super::support::{ENVIRONMENT, request};
use super::{BASE, apply, assert_consistent, changes, controller, delete, empty};
use nfluid_api::types::{ApplyRequest, Kind};
use nfluid_control::single::proposal::Proposal;

// promise: 7.41
#[test]
fn what_is_desired_is_read_while_a_change_is_carried_out_and_changes_with_its_end() {
    let mut controller = controller(BASE);
    let desired = controller.desired();
    controller.platform_mut().reader = Some(desired.clone());
    let new = BASE.replace("rules: [a]", "rules: [b]");
    let another = "version: 1\ninstances:\n  lone: { nf: bridge }\n";
    let texts = [(new.as_str(), false), (another, true)];
    for (text, merge) in texts {
        let before = controller.deployment().clone();
        let request = ApplyRequest {
            merge,
            ..request(text)
        };
        let proposal = Proposal::of(&request).filter(|_| merge);
        match proposal.and_then(|proposal| controller.add(proposal, ENVIRONMENT)) {
            Some(added) => drop(added.unwrap_or_else(|problem| panic!("{problem}"))),
            None => drop(controller.apply(&request, ENVIRONMENT).expect("valid")),
        }
        let read = std::mem::take(&mut controller.platform_mut().read);
        assert!(!read.is_empty() && read.iter().all(|it| *it == before));
        assert!(*desired.read() != before);
        assert_eq!(*desired.read(), *controller.deployment());
    }
}

// promise: 6.1
#[test]
fn a_second_apply_of_the_same_file_does_nothing() {
    let mut controller = controller(BASE);
    assert_consistent(&mut controller);
    let calls = controller.platform().calls;
    let response = apply(&mut controller, BASE).expect("right");
    assert!(response.changes.is_empty());
    assert_eq!(controller.platform().calls, calls);
}

#[test]
fn the_first_apply_names_everything() {
    let mut controller = empty();
    let response = apply(&mut controller, BASE).expect("right");
    assert_eq!(
        changes(&response),
        [
            "uplink wan created",
            "uplink lan created",
            "instance fw created",
            "instance nat created",
            "chain web created",
        ]
    );
}

// promise: 6.2
#[test]
fn a_changed_file_changes_only_what_differs() {
    let mut controller = controller(BASE);
    controller.platform_mut().log.clear();
    let changed = BASE.replace("rules: [a]", "rules: [a, b]").replace(
        "nat: { nf: bridge, share: 20%",
        "nat: { nf: bridge, share: 35%",
    );
    let response = apply(&mut controller, &changed).expect("right");
    assert_eq!(
        changes(&response),
        [
            "instance fw changed (config.rules: [a] -> [a, b])",
            "instance nat changed (share: 20% -> 35%)",
        ]
    );
    assert_eq!(
        controller.platform().log,
        ["reconfigure instance fw", "resize instance nat"]
    );
    assert_consistent(&mut controller);
}

#[test]
fn another_flavor_or_program_replaces_the_instance() {
    let mut controller = controller(BASE);
    controller.platform_mut().log.clear();
    let changed = BASE.replace("nat: { nf: bridge", "nat: { nf: bridge, flavor: small");
    let response = apply(&mut controller, &changed).expect("right");
    assert_eq!(
        changes(&response),
        [
            "instance nat replaced (flavor: medium -> small, memory: 64MiB -> 16MiB, ring: 256 -> 64)"
        ]
    );
    assert_eq!(
        controller.platform().log,
        [
            "disconnect port lan",
            "disconnect port fw.out",
            "disconnect port nat.in",
            "disconnect port nat.out",
            "replace instance nat",
            "connect port lan to port nat.out",
            "connect port fw.out to port nat.in",
            "connect port nat.in to port fw.out",
            "connect port nat.out to port lan",
        ]
    );
    assert_consistent(&mut controller);
}

// promise: 5.8
#[test]
fn another_nf_on_the_same_ports_takes_them_over_while_they_stay_wired() {
    let mut controller = controller(BASE);
    controller.platform_mut().log.clear();
    let changed = BASE.replace("nat: { nf: bridge", "nat: { nf: router");
    apply(&mut controller, &changed).expect("right");
    assert_eq!(controller.platform().log, ["upgrade instance nat in place"]);
    assert_consistent(&mut controller);
}

#[test]
fn an_instance_is_taken_into_a_chain_without_a_gap() {
    let mut controller = controller(BASE);
    controller.platform_mut().log.clear();
    let changed = BASE
        .replace("via: [fw, nat]", "via: [fw, extra, nat]")
        .replace("chains:", "  extra: { nf: bridge }\nchains:");
    apply(&mut controller, &changed).expect("right");
    assert_eq!(
        controller.platform().log,
        [
            "create instance extra",
            "connect port extra.in to port fw.out",
            "connect port extra.out to port nat.in",
            "connect port fw.out to port extra.in",
            "connect port nat.in to port extra.out",
            "watch chains for congestion",
        ]
    );
    assert_consistent(&mut controller);
}

#[test]
fn uplinks_can_swap_their_interfaces() {
    let mut controller = controller(BASE);
    let changed = BASE
        .replace("interface: eth1", "interface: ethx")
        .replace("interface: eth2", "interface: eth1")
        .replace("interface: ethx", "interface: eth2");
    let response = apply(&mut controller, &changed).expect("right");
    assert_eq!(
        changes(&response),
        [
            "uplink wan replaced (interface: eth1 -> eth2)",
            "uplink lan replaced (interface: eth2 -> eth1)",
        ]
    );
    assert_consistent(&mut controller);
}

#[test]
fn the_order_of_chains_is_their_precedence() {
    let two = "version: 1\nuplinks: { a: { interface: eth1 }, b: { interface: eth2 } }\n\
               instances: { x: { nf: bridge }, y: { nf: bridge } }\nchains:\n";
    let first = "  one: { from: a, to: b, via: [x], match: { vlan: 1 } }\n";
    let second = "  two: { from: a, to: b, via: [y], match: { vlan: 2 } }\n";
    let mut controller = controller(&format!("{two}{first}{second}"));
    let response = apply(&mut controller, &format!("{two}{second}{first}")).expect("right");
    assert_eq!(
        changes(&response),
        [
            "chain one changed (precedence)",
            "chain two changed (precedence)",
        ]
    );
    assert_consistent(&mut controller);
}

// promise: 6.5
#[test]
fn a_dry_run_reports_and_changes_nothing() {
    let mut controller = empty();
    let dry = ApplyRequest {
        dry_run: true,
        ..request(BASE)
    };
    let response = controller.apply(&dry, ENVIRONMENT).expect("right");
    assert!(response.dry_run);
    assert_eq!(response.changes.len(), 5);
    assert_eq!(controller.platform().calls, 0);
    assert_eq!(*controller.deployment(), Default::default());
    assert_consistent(&mut controller);
}

#[test]
fn pools_and_templates_are_created_changed_and_removed_by_name() {
    let demand = "
pool: { p: { flavor: small, size: 4 } }
templates:
  t: { activate: on-demand, from: wan, to: lan, match: [{ src: 10.0.0.0/8 }], instance: { nf: bridge, flavor: small } }
";
    let ground = "version: 1\nuplinks: { wan: { interface: eth1 }, lan: { interface: eth2 } }\n";
    let mut controller = empty();
    let whole = format!("{ground}{}", demand.trim_start());
    let response = apply(&mut controller, &whole).expect("right");
    let made = changes(&response).join(", ");
    assert!(
        made.contains("pool p") && made.contains("template t"),
        "{made}"
    );
    let larger = whole
        .replace("size: 4", "size: 5")
        .replace("10.0.0.0/8", "11.0.0.0/8");
    let response = apply(&mut controller, &larger).expect("right");
    let verbs = response.changes.iter();
    let verbs: Vec<String> = verbs.map(|it| format!("{} {}", it.verb, it.kind)).collect();
    assert_eq!(verbs, ["changed pool", "changed template"]);
    for (kind, name) in [(Kind::Pool, "p"), (Kind::Template, "t")] {
        delete(&mut controller, kind, name).expect("it is there");
        let gone = delete(&mut controller, kind, name).expect_err("it is gone");
        assert_eq!(gone.status, 404);
    }
    assert_consistent(&mut controller);
}

#[test]
fn an_addition_gets_no_warnings_about_existing_objects() {
    let mut controller = controller("version: 1\ninstances: { a: { nf: bridge } }\n");
    let mut more =
        request("version: 1\nflavors: { f: { ring: 64 } }\ninstances: { b: { nf: bridge } }\n");
    more.merge = true;
    let response = controller.apply(&more, ENVIRONMENT).expect("right");
    let told = response
        .warnings
        .iter()
        .map(|warning| warning.path.as_str());
    let told: Vec<&str> = told.collect();
    assert!(told.contains(&"instances.b.ports.in"), "{told:?}");
    assert!(
        !told.iter().any(|path| path.starts_with("instances.a")),
        "{told:?}"
    );
}

#[test]
fn a_document_can_be_added_to_what_is_there() {
    let mut controller = controller(BASE);
    let added = ApplyRequest {
        merge: true,
        ..request("version: 1\ninstances:\n  more: { nf: bridge }\nlinks: [[more.in, more.out]]\n")
    };
    let problem = controller.apply(&added, ENVIRONMENT).expect_err("a loop");
    assert!(problem.to_string().contains("test.yaml:4:9"), "{problem}");
    let added = ApplyRequest {
        merge: true,
        ..request("version: 1\ninstances:\n  more: { nf: bridge }\n")
    };
    let response = controller.apply(&added, ENVIRONMENT).expect("right");
    assert_eq!(changes(&response), ["instance more created"]);
    assert_eq!(controller.deployment().instances.len(), 3);
    assert_consistent(&mut controller);
}
