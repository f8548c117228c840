//! Requests from end to end, on a platform and a store in memory.

mod support;

use nfluid_api::types::{ApplyRequest, ApplyResponse, DeleteRequest, Kind, ObjectName, Problem};
use nfluid_control::controller::Controller;
use nfluid_control::inventory::Inventory;
use nfluid_control::plan::plan;
use nfluid_control::single::proposal::Proposal;
use nfluid_control::state::{FileStore, Store};
use support::{ENVIRONMENT, MemoryStore, ModelPlatform, deployment, request};

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

/// What the platform has is what is desired, what the controller thinks, and what is on disk.
#[track_caller]
fn assert_consistent(controller: &mut TestController) {
    let desired = Inventory::of(&controller.deployment());
    assert_eq!(controller.platform().inventory, desired);
    assert_eq!(*controller.present(), desired);
    assert!(controller.restore().is_empty());
}

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

/// [`BASE`] with so many firewalls.
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
            // What the next one takes over: it knows nothing of wires.
            left.instances
                .retain(|name, spec| before.spec_left(name) == Some(spec));
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
            assert_eq!(next.platform().inventory, before, "{old} to {new}, {done}");
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
    // What takes ports away brings all flows together first.
    let removed = apply(&mut controller, "version: 1\n").expect("right");
    assert!(!removed.changes.is_empty());
    let log = std::mem::take(&mut controller.platform_mut().log);
    assert_eq!(
        log[0],
        "divide the flows of instance fw among 1 instead of 2"
    );
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
    controller.platform_mut().fail_at = Some(4);
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

/// A controller whose store is told to fail after the first apply.
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
fn who_adds_something_is_not_told_of_what_others_have_brought() {
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
fn who_is_no_object_of_the_deployment_is_told_so() {
    let mut controller = controller(BASE);
    for (name, wanted) in [
        ("t@10-0-0-7", "template 't'"),
        ("t@10-0-0-7@2", "template 't'"),
        ("fw@r1", "nfluid scale fw N"),
        ("nobody", "there is no instance 'nobody'"),
    ] {
        let refused = delete(&mut controller, Kind::Instance, name).expect_err("not there");
        let words = format!("{}; {}", refused.detail, refused.remedy);
        assert!(words.contains(wanted), "{words}");
        assert_eq!(refused.status, 404);
    }
}

// promise: 6.6
#[test]
fn after_a_restart_running_instances_are_left_alone_and_missing_ones_made() {
    let saved = deployment(BASE);
    let mut adopted = Inventory::of(&saved);
    // The daemon died; meanwhile an instance did, too.
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
        // Uplinks a and b, then instance x.
        fail_at: Some(3),
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
    // The reason is gone: a second look makes the rest.
    assert!(controller.restore().is_empty());
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

#[test]
fn objects_that_were_missing_are_made_by_the_next_apply_and_reported() {
    let platform = ModelPlatform {
        fail_at: Some(3),
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

#[test]
fn deleting_what_others_use_is_refused() {
    let mut controller = controller(BASE);
    let problem = delete(&mut controller, Kind::Instance, "fw").expect_err("web uses it");
    assert_eq!(problem.status, 422);
    assert!(
        problem.to_string().contains("chains.web.via[0]"),
        "{problem}"
    );
    delete(&mut controller, Kind::Chain, "web").expect("nothing uses it");
    delete(&mut controller, Kind::Instance, "fw").expect("nothing uses it now");
    assert_eq!(
        delete(&mut controller, Kind::Instance, "fw")
            .expect_err("gone")
            .status,
        404
    );
    assert_eq!(
        delete(&mut controller, Kind::Port, "nat.in")
            .expect_err("no object")
            .status,
        400
    );
    assert_consistent(&mut controller);
}

#[test]
fn everything_or_all_of_a_file_can_be_deleted() {
    let mut first = controller(BASE);
    let response = first.delete(&DeleteRequest {
        text: Some(BASE.into()),
        ..DeleteRequest::default()
    });
    assert_eq!(response.expect("right").changes.len(), 5);
    assert_eq!(first.platform().inventory, Inventory::default());
    let mut second = controller(BASE);
    let everything = DeleteRequest {
        everything: true,
        ..DeleteRequest::default()
    };
    second.delete(&everything).expect("right");
    assert_eq!(second.platform().inventory, Inventory::default());
    assert!(
        second
            .delete(&everything)
            .expect("right")
            .changes
            .is_empty()
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

#[test]
fn the_state_outlives_the_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    let first = deployment(BASE);
    let mut store = FileStore::new(&path);
    assert!(store.load().expect("nothing there").is_none());
    store.stage(&first).expect("room");
    assert!(store.load().expect("staged is not committed").is_none());
    store.commit().expect("commits");
    assert_eq!(
        FileStore::new(&path).load().expect("reads"),
        Some(first.clone())
    );
    store.stage(&Default::default()).expect("room");
    store.discard();
    assert_eq!(store.load().expect("reads"), Some(first));
    let files = std::fs::read_dir(directory.path()).expect("lists").count();
    assert_eq!(files, 1, "nothing is left beside it");
}

// promise: 6.7
#[test]
fn a_damaged_state_is_named_and_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    for text in [
        "",
        "{\"version\": 1",
        "{\"version\": 9}",
        "{\"version\":1,\"x\":{}}",
        "\u{0}",
    ] {
        std::fs::write(&path, text).expect("writes");
        let error = FileStore::new(&path).load().expect_err("damaged");
        assert!(
            error.to_string().contains("is not a saved state"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_store_that_cannot_be_written_says_so_and_keeps_the_old_state() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    let mut store = FileStore::new(&path);
    store.stage(&deployment(BASE)).expect("room");
    store.commit().expect("commits");
    // Nobody, not even root, writes into a directory as if it were a file.
    std::fs::create_dir(directory.path().join("state.json.new")).expect("makes it");
    let error = store.stage(&Default::default()).expect_err("cannot write");
    assert!(error.to_string().contains("cannot write"), "{error}");
    assert_eq!(store.load().expect("reads"), Some(deployment(BASE)));
}

/// A device that is always full.
#[test]
fn a_full_disk_is_recognised() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    std::os::unix::fs::symlink("/dev/full", directory.path().join("state.json.new"))
        .expect("links");
    let error = FileStore::new(&path)
        .stage(&deployment(BASE))
        .expect_err("full");
    assert!(error.is_disk_full(), "{error}");
}
