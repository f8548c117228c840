//! Daemons that start again, and find a part of the desired objects.

use super::support::{MemoryStore, ModelPlatform, deployment};
use super::{BASE, apply, assert_consistent, changes};
use nfluid_control::controller::Controller;
use nfluid_control::inventory::Inventory;

// promise: 6.6
#[test]
fn after_a_restart_running_instances_are_left_alone_and_missing_ones_made() {
    let saved = deployment(BASE);
    let mut adopted = Inventory::of(&saved);
    // The daemon died, and then an instance as well.
    adopted.instances.remove("nat");
    adopted.wires.retain(|port, to| {
        port.owner() != Some("nat") && to.targets().all(|target| target.owner() != Some("nat"))
    });
    let platform = ModelPlatform {
        inventory: adopted.clone(),
        ..ModelPlatform::default()
    };
    let store = MemoryStore {
        committed: Some(saved),
        ..MemoryStore::default()
    };
    let mut controller = Controller::load(platform, store, adopted).expect("loads");
    assert!(controller.restore().is_empty());
    let log = &controller.platform().log;
    assert_eq!(log.first().map(String::as_str), Some("create instance nat"));
    assert!(
        log.iter().skip(1).all(|line| line.starts_with("connect")),
        "{log:?}"
    );
    assert_consistent(&mut controller);
}

// promise: 6.6
#[test]
fn what_cannot_be_restored_keeps_nothing_else_from_working_nor_lets_traffic_around_it() {
    let text = "version: 1\nuplinks: { a: { interface: eth1 }, b: { interface: eth2 } }\n\
                instances: { x: { nf: bridge }, y: { nf: bridge } }\nchains:\n\
                \x20 one: { from: a, to: b, via: [x], match: { vlan: 1 } }\n\
                \x20 all: { from: a, to: b, via: [y] }\n";
    let platform = ModelPlatform {
        // What uplinks let in, uplinks a and b, then instance x.
        fail_at: Some(4),
        ..ModelPlatform::default()
    };
    let store = MemoryStore {
        committed: Some(deployment(text)),
        ..MemoryStore::default()
    };
    let mut controller = Controller::load(platform, store, Inventory::default()).expect("loads");
    let failures = controller.restore();
    let failed: Vec<String> = failures.iter().map(|f| f.action.to_string()).collect();
    assert_eq!(failed, ["create instance x"]);
    let a = "a".parse().expect("valid");
    let nfluid_control::wiring::Destination::Classify(entries) =
        &controller.platform().inventory.wires[&a]
    else {
        panic!("two chains start there");
    };
    let targets: Vec<bool> = entries.iter().map(|entry| entry.to.is_some()).collect();
    assert_eq!(
        targets,
        [false, true],
        "frames for x are dropped, not sent to y"
    );
    // The reason is gone: a second restore creates the rest.
    assert!(controller.restore().is_empty());
    assert_consistent(&mut controller);
}

#[test]
fn objects_that_were_missing_are_made_by_the_next_apply_and_reported() {
    let platform = ModelPlatform {
        fail_at: Some(4),
        ..ModelPlatform::default()
    };
    let store = MemoryStore {
        committed: Some(deployment(BASE)),
        ..MemoryStore::default()
    };
    let mut controller = Controller::load(platform, store, Inventory::default()).expect("loads");
    assert_eq!(controller.restore().len(), 1);
    let response = apply(&mut controller, BASE).expect("right");
    assert_eq!(changes(&response), ["instance fw created (it was missing)"]);
    assert_consistent(&mut controller);
}
