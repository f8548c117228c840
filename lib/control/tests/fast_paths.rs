//! Instances of tier `xdp`: documents, and the resulting plans.

mod support;

use nfluid_control::document::read_unchecked;
use nfluid_control::fast::Attach;
use nfluid_control::inventory::Inventory;
use nfluid_control::model::Deployment;
use nfluid_control::plan::plan;
use nfluid_control::tier::Tier;
use support::{check, deployment, lines};

const BOTH: &str = "
version: 1
instances:
  fw: { tier: xdp, nf: efw, interface: eth1, mode: generic }
  lb: { tier: xdp, nf: elb, interface: [eth2, eth3], netns: blue, config: { services: {} } }
";

fn errors(instances: &str) -> String {
    match check(&format!("version: 1\ninstances:\n{instances}")) {
        Err(errors) => lines(&errors),
        Ok(checked) => panic!("accepted: {:?}", checked.deployment),
    }
}

#[track_caller]
fn says(instances: &str, what: &[&str]) {
    let found = errors(instances);
    for part in what {
        assert!(found.contains(part), "{part} is not in:\n{found}");
    }
}

fn steps(from: &Deployment, to: &Deployment) -> Vec<String> {
    let actions = plan(&Inventory::of(from), &Inventory::of(to));
    actions.iter().map(ToString::to_string).collect()
}

#[test]
fn a_fast_path_has_interfaces_and_nothing_of_a_process() {
    let both = deployment(BOTH);
    let lb = both.instances.get("lb").expect("it is there");
    assert_eq!(lb.tier, Tier::XDP);
    assert!(lb.ports.is_empty());
    let attach = lb.attach.as_ref().expect("it is somewhere");
    assert_eq!(attach.interfaces, ["eth2", "eth3"]);
    assert_eq!(attach.netns.as_deref(), Some("blue"));
    let written = serde_json::to_string(&both).expect("it serializes");
    let again =
        read_unchecked(&written, None).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    assert_eq!(both, again);
}

// promise: 15.18
#[test]
fn at_tc_a_fast_path_is_beside_what_others_have_at_xdp() {
    let beside = "  fw: { tier: xdp, nf: efw, interface: busy0, mode: tc }\n";
    let accepted = check(&format!("version: 1\ninstances:\n{beside}"));
    assert!(accepted.is_ok(), "{}", lines(&accepted.unwrap_err()));
}

// promise: 15.69
#[test]
fn in_libxdps_dispatcher_a_row_is_beside_what_others_have_at_xdp() {
    let both = "version: 1\ninstances:\n  fw: { tier: xdp, nf: efw, interface: busy0, beside: libxdp, priority: 20, order: 1 }\n  \
                lb: { tier: xdp, nf: elb, interface: busy0, beside: libxdp, priority: 20, order: 2, config: { services: {} } }\n";
    let both = check(both).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    let written = serde_json::to_string(&both.deployment).expect("it serializes");
    let again = read_unchecked(&written, None).expect("it is as it was written");
    assert_eq!(both.deployment, again);
    let priority = |instance: &str| {
        let deployment = deployment(&format!(
            "version: 1\ninstances:\n  fw: {{ tier: xdp, nf: efw, interface: eth1{instance} }}\n"
        ));
        let fw = deployment.instances.get("fw").expect("it is there");
        fw.attach.as_ref().and_then(Attach::run_priority)
    };
    assert_eq!(priority(""), None);
    assert_eq!(priority(", beside: libxdp"), Some(50));
    assert_eq!(priority(", beside: libxdp, priority: 7"), Some(7));

    let fw = |more: &str| format!("  fw: {{ tier: xdp, nf: efw, interface: eth1{more} }}\n");
    says(&fw(", beside: tc"), &["there is no beside 'tc'", "libxdp"]);
    says(&fw(", priority: 7"), &["fw.priority", "'beside: libxdp'"]);
    says(
        &fw(", beside: libxdp, mode: tc"),
        &["fw.beside", "is at XDP"],
    );
    let two = |second: &str| {
        let first = fw(", beside: libxdp, order: 1");
        format!(
            "{first}  lb: {{ tier: xdp, nf: elb, interface: eth1, order: 2{second}, config: {{ services: {{}} }} }}\n"
        )
    };
    says(&two(""), &["lb.beside", "instance 'fw'", "the same"]);
    says(
        &two(", beside: libxdp, priority: 7"),
        &["lb.priority", "instance 'fw'"],
    );
}

// promise: 15.14, 15.63
#[test]
fn what_a_fast_path_cannot_be_is_said_with_a_remedy() {
    says(
        "  fw: { tier: xdp, nf: efw, interface: eth1, share: 10%, ports: [a] }\n",
        &["unknown key 'share'", "unknown key 'ports'"],
    );
    says("  fw: { tier: xdp, nf: efw }\n", &["has no interface"]);
    says(
        "  fw: { tier: xdp, nf: bridge, interface: eth1 }\n",
        &[
            "instances.fw.nf: the NF 'bridge' has no fast path",
            "efw, elb",
        ],
    );
    says(
        "  fw: { tier: xdp, nf: efw, interface: eth7 }\n",
        &["instances.fw.interface: there is no interface 'eth7'"],
    );
    says(
        "  fw: { tier: xdp, nf: efw, interface: busy0 }\n",
        &[
            "has an XDP program already: xdp_filter (id 7)",
            "or write 'mode: tc'",
        ],
    );
    says(
        "  lb: { tier: xdp, nf: elb, interface: eth1 }\n",
        &["instances.lb.config: it has no 'services'"],
    );
    says(
        "  fw: { tier: xdp, nf: efw, interface: eth1 }\n  lb: { tier: xdp, nf: efw, interface: [eth2, eth1] }\n",
        &[
            "instance 'fw' has the interface 'eth1' already",
            "'order: 10'",
        ],
    );
    let chain = |second: &str| {
        format!(
            "  fw: {{ tier: xdp, nf: efw, interface: eth1, order: 10 }}\n  lb: {{ tier: xdp, nf: efw, interface: [eth2, eth1], {second} }}\n"
        )
    };
    says(
        &chain("order: 10"),
        &["instances.lb.order: instance 'fw' has this position"],
    );
    says(
        &chain("order: 20, mode: native"),
        &["instances.lb.mode: instance 'fw' wants another mode of the interface 'eth1'"],
    );
    says(&chain("order: 0"), &["0 is out of range"]);
    for mode in ["native", "generic"] {
        says(
            &format!(
                "  fw: {{ tier: xdp, nf: efw, interface: eth1, mode: {mode}, direction: egress }}\n"
            ),
            &[
                "instances.fw.direction: XDP sees only what comes in",
                "'mode: tc'",
            ],
        );
    }
    says(
        "  lb: { tier: xdp, nf: elb, interface: eth1, mode: tc, direction: egress, config: { services: {} } }\n",
        &["instances.lb.direction: 'elb' has no form for what goes out"],
    );
    says(
        "  fw: { tier: xdp, nf: efw, interface: eth1, direction: out }\n",
        &["instances.fw.direction", "ingress, egress"],
    );
    says(
        "  fw: { tier: xdp, nf: efw, interface: [eth1, eth1], order: 10 }\n",
        &["'eth1' is in the list twice"],
    );
    let found = check(
        "version: 1\nuplinks: { wan: { interface: eth1 } }\ninstances:\n  fw: { tier: xdp, nf: efw, interface: eth1 }\n",
    );
    let found = lines(&found.expect_err("one program has room"));
    assert!(found.contains("uplink 'wan' has the interface"), "{found}");
}

// promise: 15.63
#[test]
fn ingress_and_egress_have_fast_paths_of_their_own() {
    let both = deployment(
        "version: 1\ninstances:\n  in: { tier: xdp, nf: efw, interface: eth1 }\n  out: { tier: xdp, nf: efw, interface: eth1, mode: tc, direction: egress }\n",
    );
    assert_eq!(
        steps(&Deployment::default(), &both),
        ["create instance in", "create instance out"]
    );
    says(
        "  a: { tier: xdp, nf: efw, interface: eth1, mode: tc, direction: egress }\n  b: { tier: xdp, nf: efw, interface: eth1, mode: tc, direction: egress }\n",
        &["instances.b.interface: instance 'a' has the interface 'eth1' already"],
    );
}

// promise: 15.15
#[test]
fn an_interface_is_let_go_before_others_take_it_and_a_configuration_changes_in_place() {
    let nothing = Deployment::default();
    let both = deployment(BOTH);
    assert_eq!(
        steps(&nothing, &both),
        ["create instance fw", "create instance lb"]
    );
    let uplink = deployment("version: 1\nuplinks: { wan: { interface: eth1 } }\n");
    let taken_over = steps(&both, &uplink);
    assert_eq!(
        taken_over,
        [
            "remove instance fw",
            "remove instance lb",
            "create uplink wan on eth1"
        ]
    );
    let changed = BOTH.replace("services: {}", "services: { web: {} }");
    assert_eq!(
        steps(&both, &deployment(&changed)),
        ["reconfigure instance lb"]
    );
    let moved = BOTH.replace("[eth2, eth3]", "eth4");
    assert_eq!(steps(&both, &deployment(&moved)), ["replace instance lb"]);
    let placed = BOTH.replace("version: 1", "version: 1\nplacement: spread\nio: split");
    assert_eq!(
        steps(&both, &deployment(&placed))
            .iter()
            .filter(|step| step.contains("instance"))
            .count(),
        0,
        "what processes are told does not concern it"
    );
}

/// Fast paths on one interface, each with its order.
fn row(members: &[(&str, u16)]) -> Deployment {
    let instance = |(name, order): &(&str, u16)| {
        format!("  {name}: {{ tier: xdp, nf: efw, interface: eth1, order: {order} }}\n")
    };
    let instances: String = members.iter().map(instance).collect();
    deployment(&format!("version: 1\ninstances:\n{instances}"))
}

// promise: 15.16
#[test]
fn members_of_a_chain_come_in_their_order_and_go_the_last_one_first() {
    let nothing = Deployment::default();
    let two = row(&[("b", 10), ("a", 20)]);
    assert_eq!(
        steps(&nothing, &two),
        ["create instance b", "create instance a"]
    );
    assert_eq!(
        steps(&two, &nothing),
        ["remove instance a", "remove instance b"]
    );
    let three = row(&[("b", 10), ("a", 20), ("c", 15)]);
    assert_eq!(steps(&two, &three), ["create instance c"]);
    assert_eq!(steps(&three, &two), ["remove instance c"]);
    // No fast path overtakes another in between.
    let shifted = row(&[("b", 20), ("a", 30), ("c", 10)]);
    assert_eq!(
        steps(&two, &shifted),
        [
            "move instance a to place 30 of its interfaces",
            "move instance b to place 20 of its interfaces",
            "create instance c"
        ]
    );
    assert_eq!(
        steps(&shifted, &two),
        [
            "remove instance c",
            "move instance b to place 10 of its interfaces",
            "move instance a to place 20 of its interfaces"
        ]
    );
    let alone =
        deployment("version: 1\ninstances:\n  b: { tier: xdp, nf: efw, interface: eth1 }\n");
    assert_eq!(
        steps(&alone, &two),
        [
            "move instance b to place 10 of its interfaces",
            "create instance a"
        ],
        "who was alone stays where it is"
    );
}

const BESIDE: &str = "
version: 1
instances:
  fw: { tier: xdp, nf: efw, interface: eth1, slow: { port: rest.in, back: rest.out } }
  rest: { nf: firewall }
";

// promise: 15.66
#[test]
fn a_port_as_slow_path_is_short_for_uplinks_with_taps_and_links() {
    let beside = deployment(BESIDE);
    let slow = |deployment: &Deployment| {
        let fw = deployment.instances.get("fw").expect("it is there");
        fw.attach.clone().expect("it is somewhere").slow
    };
    let taps = slow(&beside).expect("it has one of its own");
    let uplinks: Vec<_> = beside.uplinks.iter().collect();
    let interfaces: Vec<_> = uplinks.iter().map(|(_, it)| it.interface.clone()).collect();
    assert_eq!(interfaces, [taps.tap, taps.back.expect("another one")]);
    let links: Vec<String> = beside.links.iter().map(|link| link.name()).collect();
    assert_eq!(links, ["fw-slow--rest.in", "fw-back--rest.out"]);
    // The expanded form is saved, and has the same meaning.
    let written = serde_json::to_string(&beside).expect("it serializes");
    assert!(!written.contains("port\":\"rest"), "{written}");
    let again = read_unchecked(&written, None);
    assert_eq!(again.expect("it is right"), beside);
    let kernel = BESIDE.replace("{ port: rest.in, back: rest.out }", "kernel");
    let kernel = deployment(&kernel);
    assert_eq!((slow(&kernel), kernel.uplinks.len()), (None, 0));
    let steps = steps(&kernel, &beside);
    let position = |step: &str| steps.iter().position(|one| one.starts_with(step));
    assert!(
        position("create uplink fw-slow") < position("replace instance fw"),
        "{steps:?}"
    );
}

// promise: 15.66
#[test]
fn what_cannot_be_a_slow_path_is_said_with_a_remedy() {
    let fw = |more: &str| format!("  fw: {{ tier: xdp, nf: efw, interface: eth1, {more} }}\n");
    for (more, what) in [
        ("slow: user", "write 'kernel', {tap: NAME}"),
        ("slow: {}", "either a tap or a port"),
        ("slow: { tap: a, port: b.in }", "either a tap or a port"),
        ("slow: { tap: a, on: b }", "unknown key 'on'"),
        ("slow: { port: wan }", "'wan' is no port of an instance"),
        ("slow: { port: nobody.in }", "there is no instance 'nobody'"),
        ("slow: { tap: eth1 }", "a loop: name a tap"),
        ("slow: { tap: a, back: a }", "taps of its own"),
        ("slow: { tap: 'a/b' }", "cannot be an interface"),
        (
            "slow: { tap: a }, mode: generic",
            "instances.fw.mode: packets from the slow path",
        ),
        (
            "slow: { tap: a }, mode: tc",
            "instances.fw.mode: packets from the slow path",
        ),
    ] {
        says(&fw(more), &[what]);
    }
    says(
        "  fw: { tier: xdp, nf: efw, interface: [eth1, eth2], slow: { tap: a } }\n",
        &["this fast path has several"],
    );
    says(
        "  lb: { tier: xdp, nf: elb, interface: eth1, slow: { tap: a }, config: { services: {} } }\n",
        &[
            "'elb' has no slow path but the kernel",
            "an instance of efw in front of it",
        ],
    );
    let rest = "  rest: { nf: firewall }\n";
    says(
        &format!("{}{rest}", fw("slow: { port: rest.in, back: rest.in }")),
        &["port 'rest.in' is used twice"],
    );
    says(
        &format!("{}{rest}", fw("slow: { port: rest.up }")),
        &["the instance 'rest' has no port 'up'"],
    );
    let two = "  fw: { tier: xdp, nf: efw, interface: eth1, slow: { tap: a } }\n  \
               gw: { tier: xdp, nf: efw, interface: eth2, slow: { tap: a } }\n";
    says(
        two,
        &["instances.gw.slow: 'a' is in the slow path of instance 'fw'"],
    );
    let at_xdp = check(
        "version: 1\nuplinks: { up: { interface: eth2 } }\ninstances:\n  \
         fw: { tier: xdp, nf: efw, interface: eth1, slow: { tap: eth2 } }\n",
    );
    let at_xdp = lines(&at_xdp.expect_err("nobody would read it"));
    assert!(at_xdp.contains("write 'kind: tap'"), "{at_xdp}");
    let taken = check(&BESIDE.replace(
        "instances:",
        "uplinks: { fw-slow: { interface: eth3 } }\ninstances:",
    ));
    let taken = lines(&taken.expect_err("the name is taken"));
    assert!(
        taken.contains("its slow path needs the name 'fw-slow' for its uplink"),
        "{taken}"
    );
}
