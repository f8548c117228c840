//! Groups of tenants, parts of the platform and placement in documents: valid ones, refused ones, and the order of the
//! steps of a change.

mod support;

use nfluid_control::inventory::Inventory;
use nfluid_control::placement::Placement;
use nfluid_control::plan::plan;
use support::{check, deployment, lines};

const TENANTS: &str = "\
version: 1
groups:
  gold: { share: 60%, cap: 150%, guarantee: 50% }
  alice: { group: gold, share: 30%, guarantee: 20% }
  silver: { share: 10% of platform }
instances:
  fw: { nf: firewall, group: alice, share: 70% }
  nat: { nf: bridge, group: alice, share: 30%, guarantee: 5% }
  own: { nf: bridge, share: 20% }
";

fn errors(text: &str) -> String {
    match check(text) {
        Err(errors) => lines(&errors),
        Ok(checked) => panic!("accepted: {:?}", checked.deployment),
    }
}

fn refused(right: &str, wrong: &str, named: &str) {
    assert!(TENANTS.contains(right), "{right}");
    let text = errors(&TENANTS.replacen(right, wrong, 1));
    assert!(text.contains(named), "{wrong}: {text}");
}

#[test]
fn groups_are_read_and_written_back() {
    let read = deployment(TENANTS);
    let text = nfluid_control::yaml::to_text(&serde_json::to_value(&read).unwrap());
    assert_eq!(deployment(&text), read);
    let inventory = Inventory::of(&read);
    assert_eq!(inventory.groups["alice"].group.as_deref(), Some("gold"));
    let nat = &inventory.instances["nat"].resources;
    assert_eq!(nat.group.as_deref(), Some("alice"));
    assert_eq!(nat.guarantee.map(|it| it.percent(2)), Some(5.0));
    assert_eq!(
        inventory.groups["silver"].share.map(|it| it.percent(2)),
        Some(20.0)
    );
}

// promise: 4.9
#[test]
fn what_does_not_add_up_is_refused() {
    refused("group: gold", "group: gild", "there is no group 'gild'");
    refused(
        "group: alice, share: 70%",
        "group: bob",
        "instances.fw.group: there is no group 'bob'",
    );
    refused(
        "share: 60%, cap",
        "share: 260%, cap",
        "is below the share of 260%",
    );
    refused(
        "share: 60%, cap: 150%",
        "share: 260%",
        "more than the 200% of 2 CPUs",
    );
    refused("cap: 150%", "cap: 40%", "is below the share of 60%");
    refused(
        "guarantee: 50%",
        "guarantee: 160%",
        "a cap of 150% is below the guarantee of 160%",
    );
    refused(
        "share: 70% }",
        "share: 70%, cap: 80% }\n  x: { nf: bridge, group: tiny, cap: 50% }",
        "there is no group 'tiny'",
    );
    refused(
        "share: 30%, guarantee: 20%",
        "share: 30%, cap: 160%",
        "a cap of 160% is above the 150% that all of group 'gold' get",
    );
}

// promise: 4.9
#[test]
fn absurd_parts_are_refused() {
    refused("share: 60%", "share: -60%", "-60% is outside");
    refused("share: 60%", "share: 60", "is not a percentage");
    refused(
        "share: 60%",
        "share: 100001%",
        "outside of 0.01% to 100000%",
    );
    refused(
        "10% of platform",
        "101% of platform",
        "outside of 0.01% to 100%",
    );
    refused(
        "10% of platform",
        "10% of moon",
        "there is no part of 'moon'",
    );
    refused("share: 20% }", "share: 120% }", "outside of 0.01% to 100%");
    refused("guarantee: 5%", "guarantee: 0%", "outside of 0.01% to 100%");
    refused("share: 60%", "weight: 60%", "unknown key 'weight'");
}

// promise: 4.9
#[test]
fn a_guarantee_that_the_weights_do_not_give_is_refused_or_told() {
    // The members want 90 of the 60 that gold weighs.
    let greedy = TENANTS.replace("guarantee: 20%", "guarantee: 200%");
    let text = errors(&greedy);
    assert!(
        text.contains("groups.alice.guarantee: a guarantee of 200% does not hold"),
        "{text}"
    );
    let checked = check(&greedy.replace("version: 1\n", "version: 1\novercommit: true\n"));
    let told = lines(&checked.expect("admitted").warnings);
    assert!(told.contains("warning: groups.alice.guarantee"), "{told}");
    // A neighbour with a far larger share leaves a group less than its guarantee.
    let beside = TENANTS.replace(
        "  own: { nf: bridge, share: 20% }",
        "  own: { nf: bridge, share: 20% }\n  big: { nf: bridge, group: alice, share: 100% }\n  small: { nf: bridge, group: alice, share: 1%, guarantee: 80% }",
    );
    let text = errors(&beside);
    assert!(text.contains("instances.small.guarantee"), "{text}");
}

// promise: 4.9
#[test]
fn groups_within_themselves_and_too_deep_are_refused() {
    let circle = "\
version: 1
groups:
  a: { group: b }
  b: { group: c }
  c: { group: a }
  outside: { group: a }
";
    let text = errors(circle);
    assert!(
        text.contains("groups.a.group: the group is within itself: a in b in c in a"),
        "{text}"
    );
    assert!(!text.contains("outside"), "{text}");
    let alone = errors("version: 1\ngroups: { a: { group: a } }\n");
    assert!(alone.contains("a in a"), "{alone}");
    let deep = "\
version: 1
groups:
  a: {}
  b: { group: a }
  c: { group: b }
  d: { group: c }
  e: { group: d }
";
    let text = errors(deep);
    assert!(
        text.contains("groups.e.group: 5 groups are nested"),
        "{text}"
    );
    assert!(!text.contains("groups.d"), "{text}");
}

#[test]
fn placement_is_of_the_deployment_or_the_instance() {
    let text = "\
version: 1
placement: spread
instances:
  a: { nf: bridge }
  b: { nf: bridge, placement: pinned, cpus: [1] }
";
    let inventory = Inventory::of(&deployment(text));
    assert_eq!(
        inventory.instances["a"].resources.placement,
        Placement::Spread
    );
    assert_eq!(
        inventory.instances["b"].resources.placement,
        Placement::Pinned
    );
    let unknown = errors(&text.replace("spread", "sprad"));
    assert!(
        unknown.contains("there is no placement 'sprad'"),
        "{unknown}"
    );
    let without = Inventory::of(&deployment(&text.replace("placement: spread\n", "")));
    assert_eq!(without.instances["a"].resources.placement, Placement::Free);
}

// promise: 4.13
#[test]
fn a_slice_is_one_that_the_kernel_has() {
    let text = "version: 1\ninstances:\n  a: { nf: bridge, slice: 500us }\n";
    let read = Inventory::of(&deployment(text));
    assert_eq!(
        read.instances["a"].resources.slice.map(|it| it.0),
        Some(500)
    );
    for bad in ["99us", "101ms", "-1us", "5", "0us"] {
        let found = errors(&text.replace("500us", bad));
        assert!(found.contains("instances.a.slice"), "{bad}: {found}");
    }
}

fn steps(from: &str, to: &str) -> Vec<String> {
    let (from, to) = (deployment(from), deployment(to));
    let actions = plan(&Inventory::of(&from), &Inventory::of(&to));
    actions.iter().map(ToString::to_string).collect()
}

#[test]
fn places_are_there_before_who_comes_and_go_after_who_leaves() {
    assert_eq!(
        steps("version: 1\n", TENANTS)[..3],
        [
            "create group gold",
            "create group silver",
            "create group alice"
        ]
    );
    let all = steps(TENANTS, "version: 1\n");
    assert_eq!(
        all[all.len() - 3..],
        [
            "remove group alice",
            "remove group silver",
            "remove group gold"
        ]
    );
    let moved = TENANTS.replace(
        "nat: { nf: bridge, group: alice",
        "nat: { nf: bridge, group: silver",
    );
    assert_eq!(
        steps(TENANTS, &moved).len(),
        1,
        "the instance is moved, nothing else"
    );
    let turned = TENANTS
        .replace("gold: { share: 60%", "gold: { group: alice, share: 60%")
        .replace(
            "alice: { group: gold, share: 30%, guarantee: 20%",
            "alice: { share: 30%",
        )
        .replace("cap: 150%, guarantee: 50%", "cap: 150%");
    assert_eq!(
        steps(TENANTS, &turned),
        ["change group alice", "change group gold"]
    );
}

// promise: 4.15
#[test]
fn a_guarantee_of_more_than_its_cores_is_refused() {
    let of = |instance: &str| {
        format!(
            "version: 1\ninstances:\n  a: {{ nf: bridge, guarantee: 75% of platform, {instance} }}\n"
        )
    };
    for one_core in ["placement: pinned", "placement: spread", "cpus: [1]"] {
        let text = match check(&of(one_core)) {
            Err(errors) => lines(&errors),
            Ok(_) => panic!("accepted: {one_core}"),
        };
        assert!(text.contains("instances.a.guarantee"), "{one_core}: {text}");
        assert!(
            text.contains("100.00% of a core is left"),
            "{one_core}: {text}"
        );
    }
    assert!(check(&of("placement: free")).is_ok());
    let queues = "placement: spread, ports: { in: { queues: 2 }, out: { queues: 2 } }";
    assert!(check(&of(queues)).is_ok());
}

#[test]
fn pools_of_groups_are_read_written_back_and_checked() {
    let pools = "pool:\n  p: { flavor: small, size: 4, for: programs, group: alice, trust: us }\n";
    let read = deployment(&format!("{TENANTS}{pools}"));
    let text = nfluid_control::yaml::to_text(&serde_json::to_value(&read).unwrap());
    assert_eq!(deployment(&text), read);
    for (wrong, named) in [
        ("group: alic", "there is no group 'alic'"),
        ("for: program", "there is no for 'program'"),
        ("trust: '../x'", "pool.p.trust"),
        ("trust: us, ports: 64, size: 4096", "slots"),
    ] {
        let pool = if wrong.contains("size") {
            ""
        } else {
            "size: 4, "
        };
        let text = format!("{TENANTS}pool: {{ p: {{ flavor: small, {pool}{wrong} }} }}\n");
        let found = errors(&text);
        assert!(found.contains(named), "{wrong}: {found}");
    }
}
