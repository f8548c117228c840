//! Changes that fail and change nothing.

use super::support::{MemoryStore, ModelPlatform, deployment};
use super::{BASE, TestController, apply, assert_consistent, controller, empty};
use nfluid_control::controller::Controller;
use nfluid_control::inventory::Inventory;

// promise: 6.5
#[test]
fn an_error_in_the_document_changes_nothing() {
    let mut controller = controller(BASE);
    let calls = controller.platform().calls;
    let wrong = BASE.replace("nf: bridge", "nf: bridg").replace("20%", "0%");
    let problem = apply(&mut controller, &wrong).expect_err("wrong");
    assert_eq!(problem.status, 422);
    assert_eq!(
        problem.detail,
        "test.yaml has 3 errors; nothing was changed"
    );
    assert_eq!(problem.errors.len(), 3);
    assert_eq!(controller.platform().calls, calls);
    assert_consistent(&mut controller);
}

#[test]
fn a_failing_action_is_undone_and_named() {
    let mut controller = empty();
    controller.platform_mut().fail_at = Some(5);
    let problem = apply(&mut controller, BASE).expect_err("told to fail");
    assert_eq!(problem.status, 500);
    assert_eq!(
        problem.detail,
        "cannot create instance nat: told to fail; everything done before was undone; \
         nothing was changed"
    );
    assert_eq!(problem.remedy, "do not tell it to");
    assert_eq!(controller.platform().inventory, Inventory::default());
    assert_consistent(&mut controller);
}

/// Returns a controller with a committed deployment and a store that `fail` changes.
fn with_store(fail: impl FnOnce(&mut MemoryStore)) -> TestController {
    let deployment = deployment(BASE);
    let mut store = MemoryStore {
        committed: Some(deployment),
        ..MemoryStore::default()
    };
    fail(&mut store);
    let mut controller =
        Controller::load(ModelPlatform::default(), store, Inventory::default()).expect("loads");
    assert!(controller.restore().is_empty());
    controller
}

// promise: 6.5
#[test]
fn a_full_disk_changes_nothing() {
    let mut controller = with_store(|store| store.is_full = true);
    let calls = controller.platform().calls;
    let problem = apply(&mut controller, "version: 1").expect_err("full");
    assert_eq!(problem.status, 507);
    assert!(problem.remedy.contains("make room"), "{problem}");
    assert_eq!(
        controller.platform().calls,
        calls,
        "the platform was not touched"
    );
    assert_eq!(*controller.deployment(), deployment(BASE));
    assert_consistent(&mut controller);
}

#[test]
fn a_state_that_cannot_be_committed_is_taken_back() {
    let mut controller = with_store(|store| store.commits_fail = true);
    let problem = apply(&mut controller, "version: 1").expect_err("cannot commit");
    assert_eq!(problem.status, 507);
    assert_eq!(*controller.deployment(), deployment(BASE));
    assert_consistent(&mut controller);
}

#[test]
fn an_interface_that_vanished_does_not_hinder_other_changes() {
    let vanished = BASE.replace("interface: eth1", "interface: eth99");
    let store = MemoryStore {
        committed: Some(
            nfluid_control::document::read_unchecked(&vanished, None).expect("can be read"),
        ),
        ..MemoryStore::default()
    };
    let mut controller =
        Controller::load(ModelPlatform::default(), store, Inventory::default()).expect("loads");
    assert!(controller.restore().is_empty());
    let changed = vanished.replace("rules: [a]", "rules: [a, b]");
    let response = apply(&mut controller, &changed).expect("eth99 is no news");
    assert_eq!(response.changes.len(), 1);
    let fresh = changed.replace("interface: eth99", "interface: eth98");
    assert_eq!(
        apply(&mut controller, &fresh).expect_err("missing").status,
        422
    );
}
