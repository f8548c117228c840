//! Requests from end to end, on a platform and a store in memory.

mod changes;
mod deletions;
mod departures;
mod failures;
mod replicas;
mod restarts;
mod store;
#[path = "../support/mod.rs"]
mod support;

use nfluid_api::types::{ApplyResponse, DeleteRequest, Kind, ObjectName, Problem};
use nfluid_control::controller::Controller;
use nfluid_control::inventory::Inventory;
use support::{ENVIRONMENT, MemoryStore, ModelPlatform, request, without_long};

type TestController = Controller<ModelPlatform, MemoryStore>;

const BASE: &str = "\
version: 1
uplinks:
  wan: { interface: eth1 }
  lan: { interface: eth2 }
instances:
  fw: { nf: firewall, config: { rules: [a] }, share: 20% }
  nat: { nf: bridge, share: 20% }
chains:
  web: { from: wan, to: lan, via: [fw, nat] }
";

fn controller(text: &str) -> TestController {
    let mut controller = empty();
    apply(&mut controller, text).unwrap_or_else(|problem| panic!("{problem}"));
    controller
}

fn empty() -> TestController {
    Controller::load(
        ModelPlatform::default(),
        MemoryStore::default(),
        Inventory::default(),
    )
    .expect("an empty store")
}

fn apply(controller: &mut TestController, text: &str) -> Result<ApplyResponse, Problem> {
    controller.apply(&request(text), ENVIRONMENT)
}

fn changes(response: &ApplyResponse) -> Vec<String> {
    response.changes.iter().map(ToString::to_string).collect()
}

fn with_links(instance: &str) -> DeleteRequest {
    let name = instance.into();
    DeleteRequest {
        objects: vec![ObjectName {
            kind: Kind::Instance,
            name,
        }],
        with_links: true,
        ..DeleteRequest::default()
    }
}

fn delete(
    controller: &mut TestController,
    kind: Kind,
    name: &str,
) -> Result<ApplyResponse, Problem> {
    let name = name.into();
    controller.delete(&DeleteRequest {
        objects: vec![ObjectName { kind, name }],
        ..DeleteRequest::default()
    })
}

/// Checks that the platform, the controller's inventory and the file agree with the desired state.
#[track_caller]
fn assert_consistent(controller: &mut TestController) {
    let desired = without_long(Inventory::of(&controller.deployment()));
    assert_eq!(*controller.present(), controller.platform().inventory);
    assert_eq!(without_long(controller.present().clone()), desired);
    assert!(controller.restore().is_empty());
}
