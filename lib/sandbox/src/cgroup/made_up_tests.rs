//! What is written where, on hosts of every layout: against made-up hierarchies of ordinary files. (That the kernel takes
//! it, on the layouts that there are, the repository's tests/tests/security_limits.rs shows.)

use super::root::CgroupRoot;
use super::{Cgroup, CgroupError, Controller, Hierarchy, Share};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const NAME: &str = "nfluid";

/// A directory as the kernel would show it after mkdir: with these files.
fn directory(path: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(path).unwrap();
    for (name, content) in files {
        std::fs::write(path.join(name), content).unwrap();
    }
}

fn unified(place: &Path, controllers: &str) -> Hierarchy {
    let files = [
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", controllers),
    ];
    directory(place, &files);
    directory(&place.join(NAME), &files);
    Hierarchy {
        v2: Some(place.to_owned()),
        v2_controllers: BTreeSet::from(Controller::LIMITS),
        v1: BTreeMap::new(),
    }
}

fn legacy(place: &Path) -> Hierarchy {
    let controllers = Controller::LIMITS.into_iter().chain([Controller::CpuAcct]);
    let mounts = controllers.map(|controller| (controller, place.join(controller.name())));
    let hierarchy = Hierarchy {
        v2: None,
        v2_controllers: BTreeSet::new(),
        v1: mounts.collect(),
    };
    hierarchy.v1.values().for_each(|path| directory(path, &[]));
    hierarchy
}

fn cell(hierarchy: &Hierarchy) -> Cgroup {
    let root = CgroupRoot::at(hierarchy, Path::new(NAME)).unwrap();
    root.create("cell").unwrap()
}

/// Makes the file, lets `act` write it, and returns what it then holds.
fn written(path: &Path, act: impl FnOnce() -> Result<(), CgroupError>) -> String {
    std::fs::write(path, "").unwrap();
    act().unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn v2_limits_are_written_as_documented() {
    let place = tempfile::tempdir().unwrap();
    let cell = cell(&unified(place.path(), "cpuset cpu io memory pids"));
    let file = |name| place.path().join(NAME).join("cell").join(name);
    let half = Share::from_percent(50).unwrap();
    assert_eq!(
        written(&file("cpu.weight"), || cell.set_weight(half)),
        "500"
    );
    assert_eq!(
        written(&file("cpu.max"), || cell.set_cap(Some(half))),
        "5000 10000"
    );
    assert_eq!(written(&file("cpu.max"), || cell.set_cap(None)), "max");
    assert_eq!(written(&file("pids.max"), || cell.set_pids(7)), "7");
    std::fs::write(file("memory.max"), "").unwrap();
    assert_eq!(
        written(&file("memory.swap.max"), || cell.set_memory(4096)),
        "0"
    );
    assert_eq!(std::fs::read_to_string(file("memory.max")).unwrap(), "4096");
}

#[test]
fn v1_limits_are_written_as_documented() {
    let place = tempfile::tempdir().unwrap();
    let cell = cell(&legacy(place.path()));
    let file = |controller: &str, name| {
        place
            .path()
            .join(controller)
            .join(NAME)
            .join("cell")
            .join(name)
    };
    let half = Share::from_percent(50).unwrap();
    assert_eq!(
        written(&file("cpu", "cpu.shares"), || cell.set_weight(half)),
        "5120"
    );
    std::fs::write(file("cpu", "cpu.cfs_period_us"), "").unwrap();
    let quota = file("cpu", "cpu.cfs_quota_us");
    assert_eq!(written(&quota, || cell.set_cap(Some(half))), "5000");
    assert_eq!(written(&quota, || cell.set_cap(None)), "-1");
    let limit = file("memory", "memory.limit_in_bytes");
    assert_eq!(written(&limit, || cell.set_memory(8192)), "8192");
    assert_eq!(written(&file("pids", "pids.max"), || cell.set_pids(7)), "7");
}

#[test]
fn statistics_come_from_both_kinds() {
    let place = tempfile::tempdir().unwrap();
    let v2 = cell(&unified(&place.path().join("v2"), "cpu memory pids"));
    directory(
        v2.v2_directory().unwrap(),
        &[
            (
                "cpu.stat",
                "usage_usec 5\nnr_throttled 2\nthrottled_usec 3\n",
            ),
            ("memory.current", "10\n"),
            ("memory.events", "oom 4\noom_kill 1\n"),
            ("pids.current", "6\n"),
        ],
    );
    let stats = v2.stats().unwrap();
    assert_eq!(stats.cpu_usage_ns, Some(5000));
    assert_eq!(
        (stats.throttled_periods, stats.throttled_ns),
        (Some(2), Some(3000))
    );
    assert_eq!(
        (stats.memory_bytes, stats.memory_bytes_peak),
        (Some(10), None)
    );
    assert_eq!((stats.oom_kills, stats.pids), (Some(1), Some(6)));

    let v1 = cell(&legacy(&place.path().join("v1")));
    let cell = |controller: &str| place.path().join("v1").join(controller).join("nfluid/cell");
    directory(&cell("cpuacct"), &[("cpuacct.usage", "77\n")]);
    directory(
        &cell("cpu"),
        &[("cpu.stat", "nr_throttled 1\nthrottled_time 9\n")],
    );
    directory(&cell("memory"), &[("memory.usage_in_bytes", "nonsense\n")]);
    let error = v1.stats().unwrap_err();
    assert!(matches!(error, CgroupError::Unexpected { .. }), "{error}");
    directory(&cell("memory"), &[("memory.usage_in_bytes", "12\n")]);
    let stats = v1.stats().unwrap();
    assert_eq!(
        (stats.cpu_usage_ns, stats.memory_bytes),
        (Some(77), Some(12))
    );
    assert_eq!(
        (stats.throttled_periods, stats.throttled_ns),
        (Some(1), Some(9))
    );
}

#[test]
fn a_missing_controller_is_named() {
    let place = tempfile::tempdir().unwrap();
    let hierarchy = unified(place.path(), "cpu pids");
    let root = CgroupRoot::at(&hierarchy, Path::new(NAME)).unwrap();
    assert_eq!(root.missing(), [Controller::Memory]);
    let text = root
        .create("cell")
        .unwrap()
        .set_memory(4096)
        .unwrap_err()
        .to_string();
    assert!(text.contains("`memory`") && text.contains(NAME), "{text}");
}

#[test]
fn paths_that_could_leave_the_hierarchy_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let hierarchy = legacy(place.path());
    for bad in ["", "/", "/etc", "..", "a/../../b", "."] {
        assert!(
            CgroupRoot::at(&hierarchy, Path::new(bad)).is_err(),
            "{bad:?}"
        );
    }
    assert!(CgroupRoot::at(&hierarchy, Path::new("system.slice/x")).is_ok());
}

#[test]
fn half_a_cgroup_is_taken_back() {
    let place = tempfile::tempdir().unwrap();
    let hierarchy = legacy(place.path());
    let root = CgroupRoot::at(&hierarchy, Path::new(NAME)).unwrap();
    // In the last of the hierarchies, the name is taken.
    std::fs::create_dir(place.path().join("pids").join(NAME).join("cell")).unwrap();
    assert!(root.create("cell").is_err());
    assert!(!place.path().join("cpu").join(NAME).join("cell").exists());
    assert!(root.open("cell").is_err(), "it is not whole");
    // A daemon that was killed meanwhile cannot take it back; its successor does.
    root.remove_leftover("cell").unwrap();
    root.remove_leftover("cell").unwrap();
    assert!(root.create("cell").is_ok());
}
