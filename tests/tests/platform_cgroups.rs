//! The promise: a host that cannot limit instances is told what it lacks, at the start and at each change, and what
//! runs goes on as it was.

use nfluid_tests::harness::command::must;
use nfluid_tests::harness::mounts::has_own_mounts;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{BRIDGES as CHAIN, SERVER, two_hosts};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Where a controller's own hierarchy is mounted; `None`: the unified one has it.
fn hierarchy_of(controller: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let is_its = kind == "cgroup" && options.split(',').any(|option| option == controller);
        is_its.then(|| left.split(' ').nth(4).map(str::to_owned))?
    };
    mounts.lines().find_map(mount)
}

fn unified() -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let place = line.and_then(|line| line.split(' ').nth(4));
    place.expect("there is a hierarchy").to_owned()
}

/// Returns the state that must not change.
fn state(platform: &Platform) -> (BTreeMap<String, u32>, Value, Vec<PathBuf>) {
    let inside = |place: PathBuf| {
        let entries = fs::read_dir(place).expect("it is there").flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
    };
    let mut cgroups: Vec<PathBuf> = platform.cgroups().into_iter().flat_map(inside).collect();
    cgroups.sort();
    (
        platform.pids(),
        platform.ask(&["get", "deployment"]),
        cgroups,
    )
}

fn running(test: &str) -> Option<Platform> {
    let platform = two_hosts(test)?;
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    Some(platform)
}

// promise: 4.14
#[test]
fn a_hierarchy_that_becomes_read_only_changes_nothing_and_is_named() {
    let test = "a_hierarchy_that_becomes_read_only_changes_nothing_and_is_named";
    if !has_own_mounts(test) {
        return;
    }
    let Some(mut platform) = running(test) else {
        return;
    };
    let before = state(&platform);
    let resized = CHAIN.replace(
        "  b: { nf: bridge }",
        "  b: { nf: bridge, share: 20%, memory: 48MiB }",
    );
    let longer = CHAIN
        .replace(
            "  b: { nf: bridge }",
            "  b: { nf: bridge }\n  c: { nf: bridge }",
        )
        .replace("[a, b]", "[a, b, c]");
    assert!(resized != CHAIN && longer != CHAIN);
    for controller in ["cpu", "memory"] {
        let place = hierarchy_of(controller).unwrap_or_else(unified);
        must(&format!("mount -o remount,bind,ro {place}"));
        for change in [&resized, &longer] {
            let refused = platform.try_apply(change);
            assert_eq!(refused.code, Some(1), "{controller}: {refused:?}");
            for word in ["Read-only file system", place.as_str(), "mounted writable"] {
                assert!(refused.stderr.contains(word), "{word}: {refused:?}");
            }
            assert_eq!(state(&platform), before, "{controller}");
            assert!(platform.reaches("client", SERVER), "it forwards still");
        }
        // A daemon that cannot limit what runs leaves it alone.
        platform.kill_daemon();
        let refused = platform.second_daemon();
        assert!(!refused.succeeded(), "{refused:?}");
        for word in ["Read-only file system", place.as_str(), "nothing ended"] {
            assert!(refused.stderr.contains(word), "{word}: {refused:?}");
        }
        assert!(platform.reaches("client", SERVER), "it forwards still");
        must(&format!("mount -o remount,bind,rw {place}"));
        platform.start();
        assert_eq!(state(&platform), before, "{controller}");
    }
    platform.apply(&resized);
}

// promise: 4.14
#[test]
fn a_controller_that_is_not_mounted_is_named_at_the_start() {
    let test = "a_controller_that_is_not_mounted_is_named_at_the_start";
    if !has_own_mounts(test) {
        return;
    }
    let Some(place) = hierarchy_of("cpu") else {
        skip(test, "the controllers of this host are those of cgroup v2");
        return;
    };
    let Some(mut platform) = running(test) else {
        return;
    };
    let before = state(&platform);
    platform.kill_daemon();
    must(&format!("umount -l {place}"));
    let refused = platform.second_daemon();
    assert!(!refused.succeeded(), "{refused:?}");
    for word in ["`cpu`", "mount -t cgroup -o cpu", "nothing ended"] {
        assert!(refused.stderr.contains(word), "{word}: {refused:?}");
    }
    assert!(platform.reaches("client", SERVER), "it forwards still");
    must(&format!("mount -t cgroup -o cpu none {place}"));
    platform.start();
    assert_eq!(state(&platform), before);
}
