//! Instances whose flows are divided among several members.

use super::support::{MemoryStore, ModelPlatform, without_long};
use super::{BASE, apply, assert_consistent, controller};
use nfluid_control::controller::Controller;
use nfluid_control::plan::plan;
use nfluid_control::spec::InstanceSpec;

/// Returns [`BASE`] with this number of firewalls.
fn with_members(replicas: u16) -> String {
    let several = format!("fw: {{ replicas: {replicas}, nf: firewall");
    BASE.replace("fw: { nf: firewall", &several)
}

// promise: 7.39
#[test]
fn a_daemon_that_ends_at_any_step_of_a_division_leaves_no_member_with_flows_behind() {
    for (old, new) in [(1, 3), (3, 1), (3, 2)] {
        let inventory = |replicas| {
            let built = controller(&with_members(replicas));
            built.platform().inventory.clone()
        };
        let (before, after) = (inventory(old), inventory(new));
        let steps = plan(&before, &after);
        for done in 0..=steps.len() {
            let mut left = before.clone();
            steps[..done].iter().for_each(|step| left.record(step));
            // The state that the next daemon takes over contains no wires.
            left.instances.retain(|name, spec| {
                let text = |spec: &InstanceSpec| serde_json::to_string(spec).expect("JSON");
                before.spec_left(name).map(text) == Some(text(spec))
            });
            left.wires.clear();
            let platform = ModelPlatform {
                inventory: left.clone(),
                ..ModelPlatform::default()
            };
            let kept = controller(&with_members(old)).deployment().clone();
            let store = MemoryStore {
                committed: Some(kept),
                ..MemoryStore::default()
            };
            let mut next = Controller::load(platform, store, left).expect("a store");
            let failures = next.restore();
            assert!(failures.is_empty(), "{old} to {new}, {done}: {failures:?}");
            let now = without_long(next.platform().inventory.clone());
            let before = without_long(before.clone());
            assert_eq!(now, before, "{old} to {new}, {done}");
        }
    }
}

// promise: 7.40
#[test]
fn members_come_before_flows_and_go_after_them() {
    let mut controller = controller(BASE);
    let with = with_members;
    assert_ne!(with(3), BASE);
    controller.platform_mut().log.clear();
    apply(&mut controller, &with(3)).expect("right");
    let log = std::mem::take(&mut controller.platform_mut().log);
    let place = |what: &str| {
        let found = log.iter().position(|line| line == what);
        found.unwrap_or_else(|| panic!("no '{what}' in {log:?}"))
    };
    let scaled = place("divide the flows of instance fw among 3 instead of 1");
    assert!(place("create instance fw@r1") < scaled && place("create instance fw@r2") < scaled);
    let led = |line: &&String| line.starts_with("connect port fw@");
    assert_eq!(log[..scaled].iter().filter(led).count(), 4, "{log:?}");
    assert_consistent(&mut controller);

    apply(&mut controller, &with(2)).expect("right");
    let log = std::mem::take(&mut controller.platform_mut().log);
    assert_eq!(
        log,
        [
            "divide the flows of instance fw among 2 instead of 3",
            "disconnect port fw@r2.in",
            "disconnect port fw@r2.out",
            "remove instance fw@r2",
        ]
    );
    // An action that removes ports first brings all flows together.
    let removed = apply(&mut controller, "version: 1\n").expect("right");
    assert!(!removed.changes.is_empty());
    let log = std::mem::take(&mut controller.platform_mut().log);
    assert_eq!(
        log[0],
        "divide the flows of instance fw among 1 instead of 2"
    );
    assert_consistent(&mut controller);
}
