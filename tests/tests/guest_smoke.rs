//! The kernel has the features that all other tests need. In a guest it is also the requested kernel.

use std::fs;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use nfluid_testbed::namespace::Namespace;

/// Mount points of one kind of file system (proc(5), mountinfo).
fn mounts(kind: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_kind = mounts.lines().filter(|line| {
        let (_, source) = line.split_once(" - ").unwrap();
        source.split(' ').next() == Some(kind)
    });
    of_kind
        .map(|line| line.split(' ').nth(4).unwrap().to_owned())
        .collect()
}

/// Set by the guest harness.
fn guest_kernel() -> Option<String> {
    std::env::var("NFLUID_GUEST_KERNEL").ok()
}

#[test]
fn a_guest_runs_the_kernel_that_was_asked_for() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    println!("kernel {release}");
    if let Some(series) = guest_kernel() {
        assert!(
            release.starts_with(&format!("{series}.")),
            "{release} is not of series {series}"
        );
    }
}

#[test]
fn cgroup_v2_is_mounted_and_in_a_guest_it_is_alone() {
    let v2 = mounts("cgroup2");
    assert!(!v2.is_empty(), "no cgroup v2 hierarchy");
    if guest_kernel().is_some() {
        assert_eq!(v2, ["/sys/fs/cgroup"]);
        assert!(mounts("cgroup").is_empty());
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").unwrap();
        for controller in ["cpu", "memory", "pids"] {
            assert!(
                controllers.split_whitespace().any(|one| one == controller),
                "{controllers}"
            );
        }
    }
}

#[test]
fn the_bpf_system_call_makes_a_map_that_keeps_a_value() {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some("nfl_smoke"), 4, 8, 1, &options).unwrap();
    let (key, value) = (0u32.to_ne_bytes(), 0x0102_0304_0506_0708u64.to_ne_bytes());
    map.update(&key, &value, MapFlags::ANY).unwrap();
    assert_eq!(map.lookup(&key, MapFlags::ANY).unwrap().unwrap(), value);
}

#[test]
fn a_network_namespace_with_a_veth_pair_can_be_made() {
    let namespace = Namespace::new().unwrap();
    namespace
        .ip("link add left type veth peer name right")
        .unwrap();
    namespace.ip("link set left up").unwrap();
    let links = namespace.ip("-brief link").unwrap();
    assert!(
        links.contains("left@right") && links.contains("right@left"),
        "{links}"
    );
}
