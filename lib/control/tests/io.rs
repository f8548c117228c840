//! I/O models in documents: valid ones, refused ones, and changes of a model, which change nothing else.

#[path = "support/random.rs"]
mod random;
mod support;

use nfluid_api::types::ApplyRequest;
use nfluid_control::action::Action;
use nfluid_control::controller::Controller;
use nfluid_control::document::read;
use nfluid_control::host::{Host, InterfaceFact};
use nfluid_control::inventory::Inventory;
use nfluid_control::io::{IoIdle, IoModel};
use nfluid_control::model::Deployment;
use nfluid_control::plan::plan;
use nfluid_control::quantity::Share;
use nfluid_control::setting::{PlatformSetting, Setting};
use nfluid_control::validate::Environment;
use proptest::prelude::*;
use support::{
    ENVIRONMENT, MemoryStore, ModelPlatform, TestCatalogue, check, deployment, lines, request,
};

fn errors(text: &str) -> String {
    match check(text) {
        Err(errors) => lines(&errors),
        Ok(checked) => panic!("accepted: {:?}", checked.deployment),
    }
}

fn instances(io: &str) -> String {
    format!(
        "version: 1\n{io}instances:\n  fw: {{ nf: firewall, share: 20% }}\n  own: {{ nf: bridge, share: 20%, io: mix }}\n"
    )
}

fn model(deployment: &Deployment, name: &str) -> IoModel {
    Inventory::of(deployment).instances[name].io
}

#[test]
fn a_word_or_a_mapping_and_an_instance_may_differ() {
    let inline = deployment(&instances(""));
    assert_eq!(model(&inline, "fw"), IoModel::Inline);
    assert_eq!(model(&inline, "own"), IoModel::Mix);
    let merge = deployment(&instances("io: merge\n"));
    assert_eq!(model(&merge, "fw"), IoModel::Merge);
    let split = deployment(&instances(
        "io: { model: split, cores: [1], idle: poll, cap: 50% }\n",
    ));
    assert_eq!(model(&split, "fw"), IoModel::Split);
    assert_eq!(model(&split, "own"), IoModel::Mix);
    let settings = Inventory::of(&split).io;
    assert_eq!(settings.cores, [1]);
    assert_eq!(settings.idle, IoIdle::Poll);
    assert_eq!(settings.cap.map(Share::percent), Some(50.0));
}

#[test]
fn without_cores_the_worker_has_the_last_one() {
    let settings = Inventory::of(&deployment("version: 1\nio: split\n")).io;
    assert_eq!(settings.worker_cores(&[0, 1, 5].into()), [5]);
}

// promise: 7.31
#[test]
fn what_is_wrong_has_its_place_and_remedy() {
    for (text, expected) in [
        (
            "version: 1\nio: merg\n",
            "test.yaml:2:5: error: io: there is no I/O model 'merg'\n  help: did you mean 'merge'?",
        ),
        (
            "version: 1\nio: { model: vhost }\n",
            "test.yaml:2:14: error: io.model: there is no I/O model 'vhost'\n  help: there are: inline, split, merge, mix",
        ),
        (
            "version: 1\nio:\n  model: split\n  cores: [0, 9]\n",
            "test.yaml:4:14: error: io.cores[1]: the host has no CPU 9\n  help: it has 0, 1",
        ),
        (
            "version: 1\nio: { model: split, cores: [] }\n",
            "test.yaml:2:28: error: io.cores: the list is empty\n  help: name at least one CPU, or remove the key",
        ),
        (
            "version: 1\nio: { model: merge, cores: [1] }\n",
            "test.yaml:2:21: error: io.cores: 'cores' are those of split workers, and the model is 'merge'\n  help: write 'model: split', or remove 'cores'",
        ),
        (
            "version: 1\nio: { cap: 50% }\n",
            "test.yaml:2:12: error: io.cap: 'cap' has no effect with the model 'inline', which has no I/O threads\n  help: choose another model, or remove it",
        ),
        (
            "version: 1\nio: { model: mix, idle: spin }\n",
            "test.yaml:2:25: error: io.idle: there is no idle 'spin'\n  help: there are: sleep, poll",
        ),
        (
            "version: 1\nio: { model: mix, cap: 101% }\n",
            "test.yaml:2:24: error: io.cap: 101% is outside of 0.01% to 100%\n  help: write a share of one core from 0.01% to 100%, for example 30%",
        ),
        (
            "version: 1\nio: [merge]\n",
            "test.yaml:2:5: error: io: wrong type: this is a list\n  help: write a mapping (key: value)",
        ),
        (
            "version: 1\nio: { modle: mix }\n",
            "test.yaml:2:7: error: io.modle: unknown key 'modle'\n  help: did you mean 'model'?",
        ),
        (
            "version: 1\ninstances:\n  fw: { nf: firewall, io: inlin }\n",
            "test.yaml:3:27: error: instances.fw.io: there is no I/O model 'inlin'\n  help: did you mean 'inline'?",
        ),
        (
            "version: 1\ninstances:\n  b: { nf: bridge, io: merge, ports: { a: { queues: 2 }, b: { queues: 2 } } }\n",
            "test.yaml:3:24: error: instances.b.io: an instance whose ports have queues has a thread for each queue: 'merge' cannot follow several cores\n  help: give the instance 'io: mix', 'io: split' or 'io: inline', or remove 'queues'",
        ),
    ] {
        assert_eq!(errors(text), expected, "{text}");
    }
}

#[test]
fn settings_count_if_one_instance_uses_them() {
    let text = "version: 1\nio: { cores: [1], cap: 50% }\ninstances:\n  a: { nf: bridge, io: split }\n  b: { nf: bridge }\n";
    let inventory = Inventory::of(&deployment(text));
    assert_eq!(inventory.instances["a"].io, IoModel::Split);
    assert_eq!(inventory.instances["b"].io, IoModel::Inline);
}

#[test]
fn an_instance_on_a_workers_core_is_a_warning() {
    let text = "version: 1\nio: split\ninstances:\n  a: { nf: bridge, cpus: [0, 1] }\n  b: { nf: bridge, cpus: [0] }\n";
    let warnings = lines(&check(text).expect("accepted").warnings);
    assert!(
        warnings.contains("instances.a.cpus[1]: CPU 1 belongs to a split worker"),
        "{warnings}"
    );
    assert!(!warnings.contains("instances.b.cpus"), "{warnings}");
}

/// A host with a single core.
struct OneCore;

impl Host for OneCore {
    fn cpus(&self) -> Vec<u32> {
        vec![0]
    }

    fn memory_bytes(&self) -> u64 {
        4 << 30
    }

    fn interface(&self, _: &str, _: Option<&str>) -> InterfaceFact {
        InterfaceFact::Present
    }

    fn image(&self, name: &str) -> Result<(), String> {
        match name.starts_with("oci:/") {
            true => Ok(()),
            false => Err(format!("'{name}' names no image")),
        }
    }

    fn program(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

// promise: 7.31
#[test]
fn a_host_with_one_core_refuses_split_and_names_the_alternative() {
    let environment = Environment {
        host: &OneCore,
        catalogue: &TestCatalogue,
    };
    let why = "'split' needs a core for its worker beside those of the instances; this host has one\n  help: use 'merge' or 'inline'";
    for (text, place) in [
        ("version: 1\nio: split\n", "test.yaml:2:5: error: io: "),
        (
            "version: 1\ninstances: { a: { nf: bridge, io: split } }\n",
            "test.yaml:2:35: error: instances.a.io: ",
        ),
    ] {
        let found = read(&request(text), &Deployment::default(), environment);
        let found = lines(&found.expect_err("one core"));
        assert_eq!(found, format!("{place}{why}"));
    }
    for model in ["inline", "merge", "mix"] {
        let text = format!("version: 1\nio: {model}\n");
        read(&request(&text), &Deployment::default(), environment).expect("it can");
    }
}

type TestController = Controller<ModelPlatform, MemoryStore>;

fn controller(text: &str) -> TestController {
    let mut controller = Controller::load(
        ModelPlatform::default(),
        MemoryStore::default(),
        Inventory::default(),
    )
    .expect("an empty store");
    controller
        .apply(&request(text), ENVIRONMENT)
        .unwrap_or_else(|problem| panic!("{problem}"));
    controller.platform_mut().log.clear();
    controller
}

fn changes(controller: &mut TestController, request: &ApplyRequest) -> Vec<String> {
    let response = controller.apply(request, ENVIRONMENT).expect("right");
    response.changes.iter().map(ToString::to_string).collect()
}

#[test]
fn another_model_moves_the_instances_that_have_none_of_their_own() {
    let mut controller = controller(&instances(""));
    let merge = request(&instances("io: merge\n"));
    let dry = ApplyRequest {
        dry_run: true,
        ..merge.clone()
    };
    let told = ["instance fw changed (io: inline -> merge)"];
    assert_eq!(changes(&mut controller, &dry), told);
    assert!(controller.platform().log.is_empty());
    assert_eq!(changes(&mut controller, &merge), told);
    let done = ["move I/O of instance fw from inline to merge"];
    assert_eq!(controller.platform().log, done);
}

#[test]
fn settings_are_a_change_of_the_platform() {
    let mut controller = controller(&instances("io: split\n"));
    let other = request(&instances("io: { model: split, cores: [0], cap: 20% }\n"));
    assert_eq!(
        changes(&mut controller, &other),
        ["platform io changed (cap: none -> 20%, cores: none -> [0])"]
    );
    let done = ["change settings of I/O threads"];
    assert_eq!(controller.platform().log, done);
    assert!(controller.restore().is_empty());
}

#[test]
fn a_document_that_is_added_changes_the_model_only_if_it_names_one() {
    let mut controller = controller(&instances("io: merge\n"));
    let added = |text: &str| ApplyRequest {
        merge: true,
        ..request(text)
    };
    let more = added("version: 1\ninstances: { new: { nf: bridge, share: 1% } }\n");
    assert_eq!(changes(&mut controller, &more), ["instance new created"]);
    assert_eq!(model(&controller.deployment(), "new"), IoModel::Merge);
    let back = added("version: 1\nio: inline\n");
    assert_eq!(changes(&mut controller, &back).len(), 2);
    assert_eq!(model(&controller.deployment(), "fw"), IoModel::Inline);
}

// promise: 7.27
#[test]
fn a_move_that_fails_is_undone_with_all_before_it() {
    let mut controller = controller(&instances("io: split\n"));
    let before = controller.present().clone();
    let other = request(&instances("io: { model: mix, cap: 20% }\n"));
    controller.platform_mut().fail_at = Some(controller.platform().calls + 2);
    let problem = controller.apply(&other, ENVIRONMENT).expect_err("it fails");
    let why = "cannot move I/O of instance fw from split to mix";
    assert!(problem.to_string().contains(why), "{problem}");
    assert_eq!(controller.platform().inventory, before);
    assert_eq!(*controller.present(), before);
}

#[test]
fn what_the_last_user_of_a_setting_leaves_behind_is_no_error() {
    let text =
        "version: 1\nio: { cores: [1] }\ninstances: { a: { nf: bridge, io: split, share: 1% } }\n";
    let mut controller = controller(text);
    let delete = nfluid_api::types::DeleteRequest {
        objects: vec![nfluid_api::types::ObjectName {
            kind: nfluid_api::types::Kind::Instance,
            name: "a".into(),
        }],
        ..Default::default()
    };
    controller.delete(&delete).expect("nobody uses it");
    let more = ApplyRequest {
        merge: true,
        ..request("version: 1\ninstances: { b: { nf: bridge, share: 1% } }\n")
    };
    assert_eq!(changes(&mut controller, &more), ["instance b created"]);
}

proptest! {
    // promise: 7.27
    #[test]
    fn a_change_of_models_moves_io_and_does_nothing_else(a in any::<u64>(), b in any::<u64>()) {
        let old = random::deployment(a);
        let other = random::deployment(b);
        let mut new = old.clone();
        new.io = other.io.clone();
        for (name, instance) in other.instances.iter() {
            if let Some(changed) = new.instances.get_mut(name) {
                changed.io = instance.io;
            }
        }
        for action in plan(&Inventory::of(&old), &Inventory::of(&new)) {
            prop_assert!(
                matches!(
                    action,
                    Action::Set { new: Setting::Io(_), .. } | Action::Platform { new: PlatformSetting::Io(_), .. }
                ),
                "{}", action
            );
        }
    }
}
