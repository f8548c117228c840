//! The files that are written, and their content, on hosts of every layout: against made-up hierarchies of ordinary
//! files. (The repository's tests/tests/security_limits.rs shows that the kernel takes them, on the existing
//! layouts.)

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

/// Makes the file, lets `act` write it, and returns its content.
fn written(path: &Path, act: impl FnOnce() -> Result<(), CgroupError>) -> String {
    std::fs::write(path, "").unwrap();
    act().unwrap();
    std::fs::read_to_string(path).unwrap()
}

// promise: 4.4
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

// promise: 4.4
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

// promise: 4.4
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

// promise: 4.14
#[test]
fn controllers_that_are_not_delegated_or_not_mounted_are_told_before_anything_is_limited() {
    let place = tempfile::tempdir().unwrap();
    let half = unified(&place.path().join("v2"), "memory pids");
    let mut old = legacy(&place.path().join("v1"));
    let at = |hierarchy: &Hierarchy| CgroupRoot::at(hierarchy, Path::new(NAME)).unwrap();
    assert!(at(&old).check_limits().is_ok());
    let whole = unified(&place.path().join("whole"), "cpu memory pids");
    assert!(at(&whole).check_limits().is_ok());
    old.v1.remove(&Controller::Cpu);
    for (hierarchy, remedy) in [(half, "Delegate=cpu"), (old, "mount -t cgroup -o cpu")] {
        let text = at(&hierarchy).check_limits().unwrap_err().to_string();
        assert!(text.contains("`cpu`") && text.contains(remedy), "{text}");
    }
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

// promise: 4.7
#[test]
fn a_group_within_the_platform_has_weight_and_cap_and_cells_inside() {
    let place = tempfile::tempdir().unwrap();
    let hierarchy = unified(place.path(), "cpu memory pids");
    let inside = place.path().join(NAME).join("g-gold").join("g-alice");
    for path in [inside.parent().unwrap(), inside.as_path()] {
        let controllers = ("cgroup.controllers", "cpu memory pids");
        directory(
            path,
            &[controllers, ("cgroup.subtree_control", "cpu memory pids")],
        );
    }
    let root = CgroupRoot::at(&hierarchy, Path::new(NAME)).unwrap();
    let alice = root.within("g-gold").unwrap().within("g-alice").unwrap();
    let two_cores = Share::from_percent(200).unwrap();
    let weight = inside.join("cpu.weight");
    assert_eq!(written(&weight, || alice.set_weight(two_cores)), "2000");
    let cap = inside.join("cpu.max");
    assert_eq!(
        written(&cap, || alice.set_cap(Some(two_cores))),
        "20000 10000"
    );
    let cell = alice.create("cell").unwrap();
    assert_eq!(cell.v2_directory(), Some(inside.join("cell").as_path()));
    assert!(root.within("../other").is_err());
    assert!(alice.remove_empty().is_err(), "the cell is inside");
}

// promise: 4.7
#[test]
fn a_group_on_v1_is_in_every_hierarchy_and_a_missing_controller_is_named() {
    let place = tempfile::tempdir().unwrap();
    let mut hierarchy = legacy(place.path());
    let root = CgroupRoot::at(&hierarchy, Path::new(NAME)).unwrap();
    let group = root.within("g-a").unwrap();
    for controller in ["cpu", "memory", "pids"] {
        let directory = place.path().join(controller).join(NAME).join("g-a");
        assert!(directory.is_dir(), "{controller}");
    }
    group.remove_empty().unwrap();
    assert!(!place.path().join("cpu").join(NAME).join("g-a").exists());
    hierarchy.v1.remove(&Controller::Cpu);
    let without = CgroupRoot::at(&hierarchy, Path::new(NAME)).unwrap();
    let refused = without
        .within("g-a")
        .unwrap()
        .set_weight(Share::from_percent(1).unwrap());
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("`cpu` is not available"), "{text}");
}

#[test]
fn cpu_time_is_read_where_the_layout_has_it() {
    let place = tempfile::tempdir().unwrap();
    let cell_of = |name: &str| place.path().join(name);
    let v2 = cell(&unified(&cell_of("v2"), "cpu memory pids"));
    let mut clock = v2.cpu_clock().unwrap();
    assert_eq!(clock.read_ns(), None, "there is no such file yet");
    let file = cell_of("v2").join(NAME).join("cell/cpu.stat");
    std::fs::write(&file, "usage_usec 17\nuser_usec 9\n").unwrap();
    assert_eq!(clock.read_ns(), Some(17_000));
    std::fs::write(&file, "usage_usec 170\nuser_usec 9\n").unwrap();
    assert_eq!(clock.read_ns(), Some(170_000), "the same descriptor");

    let v1 = cell(&legacy(&cell_of("v1")));
    let file = cell_of("v1")
        .join("cpuacct")
        .join(NAME)
        .join("cell/cpuacct.usage");
    std::fs::write(&file, "1234567\n").unwrap();
    let mut clock = v1.cpu_clock().unwrap();
    assert_eq!(clock.read_ns(), Some(1_234_567));
    std::fs::write(&file, "nonsense").unwrap();
    assert_eq!(clock.read_ns(), None);
    clock.rest();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(clock.read_ns(), None);
}
