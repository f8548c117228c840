//! A failed apply is undone: a late failure leaves nothing, and does not hinder a later apply.

use nfluid_tests::harness::mounts::{Mount, has_own_mounts};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::two_hosts::{BRIDGES as CHAIN, SERVER, two_hosts};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ENDS: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
";

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Returns all traces of an instance `name`: files, pins, cgroups.
fn traces(platform: &Platform, name: &str) -> Vec<PathBuf> {
    let run = platform.run_dir();
    let mut places = vec![
        run.join("instances").join(format!("{name}.json")),
        run.join("instances").join(format!("{name}.new")),
        run.join("bells").join(name),
        run.join("control").join(name),
        run.join("logs").join(format!("{name}.pipe")),
        platform.pins().join("instances").join(name),
    ];
    let cgroups = platform.cgroups().into_iter();
    places.extend(cgroups.map(|cgroup| cgroup.join(format!("i-{name}"))));
    places.retain(|place| place.exists());
    places
}

/// Numbers of the ports and of the pool that an instance has.
fn numbers(platform: &Platform, name: &str) -> (u64, u64) {
    let record = platform
        .run_dir()
        .join("instances")
        .join(format!("{name}.json"));
    let record = fs::read(record).expect("it is written down");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    let number = |key: &str| record[key].as_u64().expect("a number");
    (number("first_port"), number("pool"))
}

/// Applies the chain, which must fail; leaves the two uplinks as they are, and nothing of the instances.
fn fails_and_leaves_nothing(platform: &Platform, why: &str) {
    let refused = platform.try_apply(CHAIN);
    assert!(!refused.succeeded(), "{why}: {refused:?}");
    let said = refused.stderr;
    assert!(said.contains("nothing was changed"), "{why}: {said}");
    for name in ["a", "b"] {
        assert_eq!(
            traces(platform, name),
            Vec::<PathBuf>::new(),
            "{why}: {said}"
        );
    }
    assert_eq!(platform.instance_processes(), [0; 0], "{why}");
    assert!(platform.pids().is_empty(), "{why}");
    assert_eq!(platform.apply(ENDS), [""; 0], "{why}: as before");
}

/// The same chain is accepted now, works, and has the numbers that it would have had at once: what had them before
/// gives them back soon, when its maps are gone.
fn works_now(platform: &Platform, why: &str) {
    let apply = || {
        let changes = platform.apply(CHAIN);
        assert_eq!(changes.len(), 3, "{why}: {changes:?}");
    };
    let remove = || {
        let changes = platform.apply(ENDS);
        assert_eq!(changes.len(), 3, "{why}: {changes:?}");
    };
    eventually("its numbers are free again", || {
        apply();
        let taken: BTreeSet<_> = ["a", "b"].map(|name| numbers(platform, name)).into();
        let is_so = taken == BTreeSet::from([(3, 3), (5, 4)]);
        if !is_so {
            remove();
        }
        is_so
    });
    eventually("a ping crosses", || platform.pings("client", SERVER));
    remove();
}

// promise: 7.19
#[test]
fn a_file_in_the_way_of_any_step_undoes_all_steps() {
    let Some(platform) = two_hosts("a_file_in_the_way_of_any_step_undoes_all_steps") else {
        return;
    };
    platform.apply(ENDS);
    for directory in ["instances", "bells", "logs", "control"] {
        let place = platform.run_dir().join(directory);
        let aside = platform.run_dir().join("aside");
        fs::rename(&place, &aside).expect("it is ours");
        fs::write(&place, "in the way").expect("it is ours");
        fails_and_leaves_nothing(&platform, directory);
        fs::remove_file(&place).expect("it is ours");
        // Logs of former instances of these names stay readable.
        let mut left = names_in(&aside);
        left.retain(|name| !name.ends_with(".log"));
        assert_eq!(left, BTreeSet::new(), "{directory}");
        fs::rename(&aside, &place).expect("it is ours");
        works_now(&platform, directory);
    }
}

// promise: 7.19
#[test]
fn a_cgroup_that_the_kernel_refuses_undoes_all_steps() {
    let Some(platform) = two_hosts("a_cgroup_that_the_kernel_refuses_undoes_all_steps") else {
        return;
    };
    platform.apply(ENDS);
    let cgroups = platform.cgroups();
    let limits = cgroups
        .iter()
        .map(|path| path.join("cgroup.max.descendants"));
    let limit = limits.into_iter().find(|path| path.exists());
    let limit = limit.expect("the platform has a directory in cgroup v2");
    let there = fs::read_to_string(limit.with_file_name("cgroup.stat")).expect("it can be read");
    let there = there
        .lines()
        .find_map(|line| line.strip_prefix("nr_descendants "));
    let there: u32 = there.expect("a count").parse().expect("a number");
    // Room for none of the two instances, and for one.
    for room in 0..2 {
        fs::write(&limit, (there + room).to_string()).expect("it is ours");
        fails_and_leaves_nothing(&platform, "no room for cgroups");
    }
    fs::write(&limit, "max").expect("it is ours");
    works_now(&platform, "room for cgroups");
}

// promise: 7.19
#[test]
fn a_disk_that_is_full_when_an_instance_runs_undoes_all_steps() {
    let test = "a_disk_that_is_full_when_an_instance_runs_undoes_all_steps";
    if !has_own_mounts(test) {
        return;
    }
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(ENDS);
    let records = platform.run_dir().join("instances");
    // Two pages: each instance is written down before it is made, and none when it runs.
    let mount = Mount::tmpfs(&records, "size=8k");
    fails_and_leaves_nothing(&platform, "no room for records");
    drop(mount);
    works_now(&platform, "room for records");
}

// promise: 7.19
#[test]
fn a_failed_addition_does_not_disturb_what_runs() {
    let Some(platform) = two_hosts("a_failed_addition_does_not_disturb_what_runs") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let before = platform.pids();
    let more = CHAIN.replace(
        "chains:",
        "  c: { nf: bridge }\n  d: { nf: bridge }\nchains:",
    );
    let control = platform.run_dir().join("control");
    let in_the_way = control.join("d");
    fs::create_dir_all(in_the_way.join("x")).expect("it is ours");
    let refused = platform.try_apply(&more);
    assert!(refused.stderr.contains("create instance d"), "{refused:?}");
    fs::remove_dir_all(&in_the_way).expect("it is ours");
    for name in ["c", "d"] {
        assert_eq!(traces(&platform, name), Vec::<PathBuf>::new());
    }
    assert_eq!(platform.pids(), before);
    assert!(platform.reaches("client", SERVER));
    assert_eq!(platform.apply(&more).len(), 2);
    assert_eq!(platform.pids().len(), 4);
}

// promise: 5.5
#[test]
fn a_restart_that_fails_is_tried_again() {
    let Some(platform) = two_hosts("a_restart_that_fails_is_tried_again") else {
        return;
    };
    platform.apply(CHAIN);
    let before = platform.pids();
    let socket = platform.run_dir().join("control/a");
    fs::remove_file(&socket).expect("it is there");
    fs::create_dir_all(socket.join("x")).expect("it is ours");
    let refused = platform.nfluid(&["restart", "a"]);
    assert!(!refused.succeeded(), "{refused:?}");
    // The instance does not run, and is not reported as running.
    assert_ne!(platform.instance("a")["state"], "running");
    fs::remove_dir_all(&socket).expect("it is ours");
    eventually("it runs again", || {
        platform.instance("a")["state"] == "running"
    });
    assert_ne!(platform.pids()["a"], before["a"]);
    eventually("a ping crosses", || platform.pings("client", SERVER));
}

// promise: 7.23
#[test]
fn a_doorbell_that_is_gone_is_not_relied_on() {
    let Some(platform) = two_hosts("a_doorbell_that_is_gone_is_not_relied_on") else {
        return;
    };
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let bells = || {
        let record = platform.run_dir().join("instances/a.json");
        let record: Value =
            serde_json::from_slice(&fs::read(record).expect("it is there")).expect("JSON");
        record["bells"].clone()
    };
    assert_eq!(
        bells(),
        serde_json::json!(["+lan", "b"]),
        "it was given the bell of its peer"
    );
    let alone = CHAIN
        .replace("  b: { nf: bridge }\n", "")
        .replace("[a, b]", "[a]");
    platform.apply(&alone);
    assert_eq!(bells(), serde_json::json!(["+lan", null]));
    // A new one of that name has another bell: the switch rings it.
    let before = platform.pids();
    platform.apply(CHAIN);
    assert_eq!(platform.pids()["a"], before["a"]);
    assert_eq!(bells(), serde_json::json!(["+lan", null]));
    eventually("a ping crosses", || platform.pings("client", SERVER));
}

// promise: 7.20
#[test]
fn a_clean_end_leaves_no_cgroup_of_the_daemon() {
    let Some(mut platform) = two_hosts("a_clean_end_leaves_no_cgroup_of_the_daemon") else {
        return;
    };
    let own = || {
        let cgroups = platform.cgroups().into_iter();
        cgroups.filter(|path| path.join("daemon").exists()).count()
    };
    assert_eq!(own(), 1);
    assert!(platform.terminate_daemon().success());
    let cgroups = platform.cgroups().into_iter();
    assert_eq!(
        cgroups.filter(|path| path.join("daemon").exists()).count(),
        0
    );
    platform.start();
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
}
