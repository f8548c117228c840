//! Instances of tier `xdp`: documents, and the plans that they lead to.

mod support;

use nfluid_control::document::read_unchecked;
use nfluid_control::inventory::Inventory;
use nfluid_control::model::{Deployment, Tier};
use nfluid_control::plan::plan;
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
    assert_eq!(lb.tier, Tier::Xdp);
    assert!(lb.ports.is_empty());
    let attach = lb.attach.as_ref().expect("it is somewhere");
    assert_eq!(attach.interfaces, ["eth2", "eth3"]);
    assert_eq!(attach.netns.as_deref(), Some("blue"));
    let written = serde_json::to_string(&both).expect("it serializes");
    let again =
        read_unchecked(&written, None).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    assert_eq!(both, again);
}

#[test]
fn what_a_fast_path_cannot_be_is_said_with_a_remedy() {
    says(
        "  fw: { tier: xdp, nf: efw, interface: eth1, share: 10%, ports: [a] }\n",
        &["unknown key 'share'", "unknown key 'ports'"],
    );
    says(
        "  fw: { tier: xdp, nf: efw }\n",
        &["does not say its interface"],
    );
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
        &["has an XDP program already: xdp_filter (id 7)"],
    );
    says(
        "  lb: { tier: xdp, nf: elb, interface: eth1 }\n",
        &["instances.lb.config: it has no 'services'"],
    );
    says(
        "  fw: { tier: xdp, nf: efw, interface: eth1 }\n  lb: { tier: xdp, nf: efw, interface: [eth2, eth1] }\n",
        &["instance 'fw' has the interface 'eth1' already"],
    );
    let found = check(
        "version: 1\nuplinks: { wan: { interface: eth1 } }\ninstances:\n  fw: { tier: xdp, nf: efw, interface: eth1 }\n",
    );
    let found = lines(&found.expect_err("one program has room"));
    assert!(found.contains("uplink 'wan' has the interface"), "{found}");
}

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
