//! Instances that are added and removed one by one: the result equals that of a change of the whole deployment.

mod support;

use nfluid_api::types::{ApplyRequest, DeleteRequest, Kind, ObjectName, Problem};
use nfluid_control::capacity::guaranteed;
use nfluid_control::controller::{Controller, Stepped};
use nfluid_control::host::Host;
use nfluid_control::inventory::Inventory;
use nfluid_control::single::proposal::Proposal;
use nfluid_control::state::tidying::Tidying;
use nfluid_control::state::{FileStore, Store};
use std::collections::BTreeMap;
use std::path::Path;
use support::{ENVIRONMENT, MemoryStore, ModelPlatform, TestHost, request};

const BASE: &str = "\
version: 1
groups:
  tenants: { share: 50% }
flavors:
  tiny: { ring: 64, memory: 16MiB }
switches:
  br: {}
uplinks:
  wan: { interface: eth1, super: off }
  lan: { interface: eth2, super: off }
instances:
  probe: { program: /bin/nf, ports: [a, b, c] }
  fw: { nf: bridge, share: 20% }
  edge: { nf: bridge, ports: { in: { switch: br }, out: {} } }
chains:
  web: { from: wan, to: lan, via: [fw] }
";

/// Documents of new instances that need no change of other objects.
const ADDITIONS: [&str; 6] = [
    "version: 1\ninstances: { x: { nf: bridge } }\nlinks: [[x.in, probe.a], [probe.b, x.out]]\n",
    "version: 1\ninstances: { x: { nf: bridge, flavor: tiny, group: tenants, share: 30% } }\n",
    "version: 1\ninstances: { x: { nf: bridge, ports: { in: { switch: br }, out: { switch: br } }, share: 10% } }\n",
    "version: 1\ninstances: { x: { nf: bridge }, y: { nf: bridge } }\nlinks: [[x.in, y.out]]\n",
    "version: 1\ninstances: { x: { nf: bridge, cap: 50%, memory: 64MiB } }\n",
    "version: 1\ninstances: { x: { nf: bridge } }\nlinks: [[x.in, edge.out]]\n",
];

type TestController = Controller<ModelPlatform, MemoryStore>;

fn base() -> TestController {
    let (platform, store) = (ModelPlatform::default(), MemoryStore::default());
    let mut controller =
        Controller::load(platform, store, Inventory::default()).expect("an empty store");
    let applied = controller.apply(&request(BASE), ENVIRONMENT);
    applied.unwrap_or_else(|problem| panic!("{problem}"));
    controller
}

fn merge(text: &str) -> ApplyRequest {
    ApplyRequest {
        merge: true,
        ..request(text)
    }
}

/// Adds a document. `None`: the document is more than an addition.
fn add<S: Store>(
    controller: &mut Controller<ModelPlatform, S>,
    request: &ApplyRequest,
) -> Option<Result<Stepped, Problem>> {
    controller.add(Proposal::of(request)?, ENVIRONMENT)
}

fn delete(with_links: bool, objects: &[(Kind, &str)]) -> DeleteRequest {
    let named = |(kind, name): &(Kind, &str)| ObjectName {
        kind: *kind,
        name: (*name).to_owned(),
    };
    DeleteRequest {
        objects: objects.iter().map(named).collect(),
        with_links,
        ..DeleteRequest::default()
    }
}

/// Checks that the platform, the desired state and the controller's inventory are equal.
#[track_caller]
fn assert_consistent(controller: &TestController) {
    let desired = Inventory::of(&controller.deployment());
    assert_eq!(controller.platform().inventory, desired);
    assert_eq!(*controller.present(), desired);
    let guaranteed = guaranteed(&controller.deployment(), TestHost.cpus().len());
    assert_eq!(controller.platform().guaranteed, guaranteed);
}

// promise: 4.16, 5.15
#[test]
fn a_single_addition_equals_an_apply_and_its_removal_leaves_nothing() {
    for text in ADDITIONS {
        let (mut alone, mut whole) = (base(), base());
        let before = alone.deployment().clone();
        let added = add(&mut alone, &merge(text)).expect(text);
        let added = added.unwrap_or_else(|problem| panic!("{text}: {problem}"));
        let applied = whole.apply(&merge(text), ENVIRONMENT).expect(text);
        assert_eq!(
            Inventory::of(&alone.deployment()),
            Inventory::of(&whole.deployment()),
            "{text}"
        );
        assert_eq!(added.response.changes, applied.changes, "{text}");
        let steps = |controller: &TestController| controller.platform().log.clone();
        assert_eq!(steps(&alone), steps(&whole), "the plan of {text}");
        let told = &added.response.warnings;
        assert!(
            told.iter()
                .all(|warning| applied.warnings.contains(warning)),
            "{text}"
        );
        assert_consistent(&alone);

        let names: Vec<String> = added
            .response
            .changes
            .iter()
            .map(|it| it.name.clone())
            .collect();
        let instances: Vec<_> = names.iter().filter(|name| !name.contains('.')).collect();
        let objects: Vec<_> = instances
            .iter()
            .map(|it| (Kind::Instance, it.as_str()))
            .collect();
        let removed = alone.take_out(&delete(true, &objects)).expect(text);
        let removed = removed.unwrap_or_else(|problem| panic!("{text}: {problem}"));
        assert_eq!(removed.response.changes.len(), names.len(), "{text}");
        assert_eq!(*alone.deployment(), before, "{text}");
        assert_consistent(&alone);
        // The ports and the name are free again.
        assert!(add(&mut alone, &merge(text)).expect(text).is_ok());
    }
}

// promise: 5.15
#[test]
fn changes_that_need_the_whole_deployment_are_left_to_it() {
    for text in [
        // Objects that exist already, or are invalid.
        "version: 1\ninstances: { fw: { nf: bridge } }\n",
        "version: 1\ninstances: { x: { nf: no-such } }\n",
        "version: 1\ninstances: { x: { nf: bridge, flavor: no-such } }\n",
        "version: 1\ninstances: { x: { nf: bridge, memory: 1KiB } }\n",
        "version: 1\ninstances: { x: { nf: bridge, cpus: [99] } }\n",
        "version: 1\ninstances: [\n",
        // References to missing objects, or to objects in use.
        "version: 1\ninstances: { x: { nf: bridge, group: no-such } }\n",
        "version: 1\ninstances: { x: { nf: bridge, ports: { in: { switch: no-such }, out: {} } } }\n",
        "version: 1\ninstances: { x: { nf: bridge } }\nlinks: [[x.in, probe.no-such]]\n",
        "version: 1\ninstances: { x: { nf: bridge } }\nlinks: [[x.in, fw.in]]\n",
        "version: 1\ninstances: { x: { nf: bridge } }\nlinks: [[x.in, wan]]\n",
        "version: 1\ninstances: { x: { nf: bridge } }\nlinks: [[x.in, probe.a], [x.out, probe.a]]\n",
        // Values that depend on all other objects.
        "version: 1\ninstances: { x: { nf: bridge, guarantee: 10% } }\n",
        "version: 1\ninstances: { x: { nf: bridge, trust: us } }\n",
        "version: 1\ninstances: { x: { nf: bridge, share: 100%, cpus: [0] } }\n",
        "version: 1\ninstances: { x: { nf: bridge, group: tenants, cpus: [0] } }\n",
        // A loop without an end point.
        "version: 1\ninstances: { x: { nf: bridge }, y: { nf: bridge } }\nlinks: [[x.in, y.out], [y.in, x.out]]\n",
        // Objects other than instances.
        "version: 1\nswitches: { s: {} }\ninstances: { x: { nf: bridge } }\n",
        "version: 1\nlinks: [[probe.a, probe.b]]\n",
    ] {
        let mut controller = base();
        let before = controller.deployment().clone();
        assert!(add(&mut controller, &merge(text)).is_none(), "{text}");
        assert_eq!(*controller.deployment(), before);
    }
    let mut controller = base();
    let whole = request("version: 1\ninstances: { x: { nf: bridge } }\n");
    assert!(add(&mut controller, &whole).is_none(), "it replaces all");
}

// promise: 5.15
#[test]
fn an_object_that_is_missing_on_the_platform_is_left_to_the_whole() {
    let desired = base().deployment().clone();
    let mut present = Inventory::of(&desired);
    present.instances.remove("probe");
    let platform = ModelPlatform {
        inventory: present.clone(),
        ..ModelPlatform::default()
    };
    let store = MemoryStore {
        committed: Some(desired),
        ..MemoryStore::default()
    };
    let mut controller = Controller::load(platform, store, present).expect("a store");
    let linked = merge(ADDITIONS[0]);
    assert!(add(&mut controller, &linked).is_none());
    controller.apply(&linked, ENVIRONMENT).expect("it repairs");
    assert_consistent(&controller);
}

#[test]
fn an_instance_in_use_is_not_taken_out() {
    let mut controller = base();
    let linked = ADDITIONS[0];
    assert!(add(&mut controller, &merge(linked)).expect("alone").is_ok());
    let instance = |name| [(Kind::Instance, name)];
    for (why, request) in [
        ("its links stay", delete(false, &instance("x"))),
        ("a chain crosses it", delete(true, &instance("fw"))),
        ("there is none", delete(true, &instance("no-such"))),
        ("it is no instance", delete(true, &[(Kind::Switch, "br")])),
    ] {
        assert!(controller.take_out(&request).is_none(), "{why}");
    }
    let named = [
        (Kind::Instance, "x"),
        (Kind::Link, "probe.a--x.in"),
        (Kind::Link, "probe.b--x.out"),
    ];
    assert!(
        controller
            .take_out(&delete(false, &named))
            .expect("all of it")
            .is_ok()
    );
    assert_consistent(&controller);
}

#[test]
fn a_platform_that_fails_leaves_everything_as_it_was() {
    let mut controller = base();
    let before = controller.deployment().clone();
    let calls = controller.platform().calls;
    for fails_at in 1..=3 {
        controller.platform_mut().fail_at = Some(controller.platform().calls + fails_at);
        let added = add(&mut controller, &merge(ADDITIONS[0])).expect("alone");
        added.expect_err("it fails");
        controller.platform_mut().fail_at = None;
        assert_eq!(*controller.deployment(), before);
        assert_consistent(&controller);
    }
    assert!(controller.platform().calls > calls);
}

// promise: 5.15
#[test]
fn small_changes_survive_on_disk_until_the_whole_is_kept_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.json");
    let load = || FileStore::new(&path).load().expect("readable");
    let mut controller = Controller::load(
        ModelPlatform::default(),
        FileStore::new(&path),
        Inventory::default(),
    )
    .expect("an empty store");
    controller
        .apply(&request(BASE), ENVIRONMENT)
        .expect("right");
    let kept = std::fs::read(&path).expect("it is there");
    for number in 0..20 {
        let text = format!("version: 1\ninstances: {{ i{number}: {{ nf: bridge }} }}\n");
        let added = add(&mut controller, &merge(&text)).expect("alone");
        added.expect("it is made").durable.wait().expect("a disk");
        assert_eq!(load().as_ref(), Some(&*controller.deployment()));
    }
    let gone = delete(true, &[(Kind::Instance, "i3"), (Kind::Instance, "i19")]);
    let removed = controller.take_out(&gone).expect("alone");
    removed.expect("they go").durable.wait().expect("a disk");
    assert_eq!(load().as_ref(), Some(&*controller.deployment()));
    assert_eq!(
        std::fs::read(&path).expect("it is there"),
        kept,
        "the state was rewritten"
    );
    controller
        .apply(&merge("version: 1\nswitches: { s: {} }\n"), ENVIRONMENT)
        .expect("right");
    assert_eq!(load().as_ref(), Some(&*controller.deployment()));
    assert!(!folder.path().join("state.json.journal").exists());
    // A journal of a former state is ignored.
    std::fs::write(
        folder.path().join("state.json.journal"),
        "{\"base\":\"0000000000000001\"}\n{}\n",
    )
    .expect("writable");
    assert_eq!(load().as_ref(), Some(&*controller.deployment()));
}

/// A store whose journal is long after a few changes, and its controller.
struct Kept {
    folder: tempfile::TempDir,
    controller: Controller<ModelPlatform, FileStore>,
    made: u32,
}

impl Kept {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileStore::new(folder.path().join("state.json")).with_journal_max(400);
        let platform = ModelPlatform::default();
        let mut controller =
            Controller::load(platform, store, Inventory::default()).expect("an empty store");
        controller
            .apply(&request(BASE), ENVIRONMENT)
            .expect("right");
        Kept {
            folder,
            controller,
            made: 0,
        }
    }

    /// Adds an instance, which is on the disk afterwards.
    fn add(&mut self) -> Option<Tidying> {
        self.made += 1;
        let text = format!(
            "version: 1\ninstances: {{ i{}: {{ nf: bridge }} }}\n",
            self.made
        );
        let added = add(&mut self.controller, &merge(&text));
        let added = added.expect("alone").expect("it is made");
        added.durable.wait().expect("a disk");
        self.check(self.folder.path());
        added.tidying
    }

    /// Adds instances until a merge is due.
    fn add_until_due(&mut self) -> Tidying {
        (0..100)
            .find_map(|_| self.add())
            .expect("the journal is long")
    }

    /// Checks that a power failure now would lose no change.
    fn check(&self, folder: &Path) {
        let loaded = FileStore::new(folder.join("state.json")).load();
        let loaded = loaded.expect("readable");
        assert_eq!(loaded.as_ref(), Some(&*self.controller.deployment()));
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.folder.path()).expect("our folder");
        let file = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().expect("text");
            (name, std::fs::read(entry.path()).expect("readable"))
        };
        entries
            .map(|entry| file(entry.expect("readable")))
            .collect()
    }
}

// promise: 5.15
#[test]
fn a_long_journal_becomes_a_part_of_the_state_while_changes_go_on() {
    let mut kept = Kept::new();
    let state = kept.files()["state.json"].clone();
    for round in 0..3 {
        let work = kept.add_until_due();
        // Requests do not wait for the merge.
        for _ in 0..5 {
            assert!(kept.add().is_none(), "it is under way");
        }
        let before = kept.files();
        work.run().expect("a disk");
        kept.check(kept.folder.path());
        let after = kept.files();
        assert_ne!(after["state.json"], state);
        assert_eq!(after.len(), 2, "round {round}: the state and one journal");
        // A power failure at any time in between.
        let (next, named) = after
            .iter()
            .find(|(name, _)| *name != "state.json")
            .expect("a journal");
        for state in [&before["state.json"], &after["state.json"]] {
            let cut = tempfile::tempdir().expect("a folder");
            for (name, content) in &before {
                std::fs::write(cut.path().join(name), content).expect("writable");
            }
            std::fs::write(cut.path().join(next), named).expect("writable");
            std::fs::write(cut.path().join("state.json"), state).expect("writable");
            kept.check(cut.path());
        }
        kept.add();
        assert_eq!(open_files(kept.folder.path()), 1, "the journal");
    }
}

/// Returns the number of files in a folder that this process has open.
fn open_files(folder: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("a list");
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

// promise: 5.15
#[test]
fn a_state_that_is_committed_meanwhile_and_a_daemon_that_ends_leave_nothing_undone() {
    let mut kept = Kept::new();
    let work = kept.add_until_due();
    kept.add();
    let whole = merge("version: 1\nswitches: { s: {} }\n");
    kept.controller.apply(&whole, ENVIRONMENT).expect("right");
    kept.check(kept.folder.path());
    assert_eq!(kept.files().len(), 1, "no journal");
    work.run().expect("nothing to do");
    kept.check(kept.folder.path());
    assert_eq!(kept.files().len(), 1);

    // The merge was not done, and is due again.
    drop(kept.add_until_due());
    let again = kept.add_until_due();
    // Another daemon continues with both journals.
    let path = kept.folder.path().join("state.json");
    let store = FileStore::new(&path).with_journal_max(400);
    let present = kept.controller.present().clone();
    let next = Controller::load(ModelPlatform::default(), store, present);
    kept.controller = next.expect("readable");
    drop(again);
    assert_eq!(kept.files().len(), 3, "the state and two journals");
    kept.add_until_due().run().expect("a disk");
    kept.check(kept.folder.path());
    assert_eq!(kept.files().len(), 2);
}
