//! `nfluid doctor` on an incomplete host: it names the missing feature and the remedy, and its exit code shows the
//! result.

use nfluid_tests::harness::command::{Outcome, must, run};
use nfluid_tests::harness::mounts::{Mount, has_own_mounts};
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::skip::is_root;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A check: its status, what was found, and the remedy.
struct Check {
    status: String,
    detail: String,
    remedy: String,
}

/// Returns the doctor's result of one check, in an environment that `wrapper` makes.
fn ask(wrapper: &str, name: &str) -> (Outcome, Check) {
    ask_program(&program("nfluid"), wrapper, name)
}

fn ask_program(nfluid: &Path, wrapper: &str, name: &str) -> (Outcome, Check) {
    let line = format!(
        "{wrapper} {} --socket /nowhere/nfluidd.sock doctor -o json",
        nfluid.display()
    );
    let outcome = run(&line);
    let report: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{line}: {error}: {outcome:?}"));
    let check = list(&report["checks"]).find(|check| check["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no check '{name}': {report:#}"));
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let check = Check {
        status: text("status"),
        detail: text("detail"),
        remedy: text("remedy"),
    };
    (outcome, check)
}

/// The doctor must find that this is missing, say so in `detail`, and what to do in `remedy`.
fn finds(wrapper: &str, name: &str, status: &str, detail: &str, remedy: &str) {
    let (_, whole) = ask("", name);
    assert_eq!(whole.status, "ok", "{name} is here: {}", whole.detail);
    let (outcome, check) = ask(wrapper, name);
    assert_eq!(check.status, status, "{name}: {}", check.detail);
    assert!(check.detail.contains(detail), "{name}: {}", check.detail);
    assert!(check.remedy.contains(remedy), "{name}: {}", check.remedy);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}

// promise: 8.7
#[test]
fn root_without_capabilities_and_ebpf_is_told_so() {
    if !is_root("root_without_capabilities_and_ebpf_is_told_so") {
        return;
    }
    // As root of a container that is not privileged.
    let bare = "setpriv --bounding-set -all --inh-caps -all";
    finds(
        bare,
        "privileges",
        "fail",
        "root without CAP_SYS_ADMIN, CAP_NET_ADMIN",
        "privileged",
    );
    let unprivileged = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    if unprivileged.is_ok_and(|value| value.trim() != "0") {
        finds(bare, "eBPF", "fail", "not permitted", "CAP_SYS_ADMIN");
    }
    let some = "setpriv --bounding-set -net_admin --inh-caps -net_admin";
    finds(
        some,
        "privileges",
        "fail",
        "root without CAP_NET_ADMIN",
        "all of root's capabilities",
    );
}

// promise: 8.7
#[test]
fn a_user_who_is_not_root_is_told_so() {
    if !is_root("a_user_who_is_not_root_is_told_so") {
        return;
    }
    // Where every user may run it.
    let nfluid = std::env::temp_dir().join(format!("nfluid-test-{}", std::process::id()));
    let copied = nfluid_testbed::program::copy(&program("nfluid"), &nfluid);
    copied.expect("the temporary directory can be written");
    let user = "setpriv --reuid 54321 --regid 54321 --clear-groups";
    let (outcome, check) = ask_program(&nfluid, user, "privileges");
    let _removed = fs::remove_file(&nfluid);
    assert_eq!(check.status, "fail", "{}", check.detail);
    assert_eq!(check.detail, "not root");
    assert!(
        check.remedy.contains("run nfluidd as root"),
        "{}",
        check.remedy
    );
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}

// promise: 8.7
#[test]
fn a_host_without_user_namespaces_is_told_so() {
    if !is_root("a_host_without_user_namespaces_is_told_so") {
        return;
    }
    // In a user namespace whose own limit is nought: the host's stays.
    let script = std::env::temp_dir().join(format!("nfluid-test-{}.sh", std::process::id()));
    let text = "echo 0 >/proc/sys/user/max_user_namespaces || exit 99\nexec \"$@\"\n";
    fs::write(&script, text).expect("the temporary directory can be written");
    let wrapper = format!("unshare --user --map-root-user sh {}", script.display());
    finds(
        &wrapper,
        "user namespaces",
        "fail",
        "user.max_user_namespaces is 0",
        "raise sysctl user.max_user_namespaces",
    );
    let _removed = fs::remove_file(&script);
}

// promise: 8.7
#[test]
fn a_host_without_bpf_file_system_is_told_so() {
    let test = "a_host_without_bpf_file_system_is_told_so";
    if !is_root(test) || !has_own_mounts(test) {
        return;
    }
    let name = "BPF file system";
    let (_, before) = ask("", name);
    assert_eq!(before.status, "ok", "{}", before.detail);
    // A kernel without eBPF has no such directory.
    let hidden = Mount::tmpfs(Path::new("/sys/fs"), "size=64k");
    let (outcome, check) = ask("", name);
    assert_eq!(check.status, "fail", "{}", check.detail);
    assert!(check.detail.contains("/sys/fs/bpf"), "{}", check.detail);
    assert!(
        check.remedy.contains("CONFIG_BPF_SYSCALL"),
        "{}",
        check.remedy
    );
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    drop(hidden);
    assert_eq!(ask("", name).1.status, "ok");
}

// promise: 8.7
#[test]
fn a_host_without_a_cgroup_controller_is_told_so() {
    let test = "a_host_without_a_cgroup_controller_is_told_so";
    if !is_root(test) || !has_own_mounts(test) {
        return;
    }
    let name = "cgroup controller pids (number of tasks)";
    let (_, before) = ask("", name);
    assert_eq!(before.status, "ok", "{}", before.detail);
    let hierarchy = Path::new("/sys/fs/cgroup/pids");
    let of_its_own = run(&format!("mountpoint -q {}", hierarchy.display())).succeeded();
    if !of_its_own {
        // With v2 alone all controllers come and go with its one mount.
        must("umount -R /sys/fs/cgroup");
        let (outcome, check) = ask("", "cgroups");
        assert_eq!(check.status, "fail", "{}", check.detail);
        assert!(
            check.remedy.contains("mount -t cgroup2"),
            "{}",
            check.remedy
        );
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        return;
    }
    must(&format!("umount {}", hierarchy.display()));
    let (_, check) = ask("", name);
    // Instances run without, with one limit less.
    assert_eq!(check.status, "warn", "{}", check.detail);
    assert_eq!(check.detail, "absent");
    assert!(check.remedy.contains("pids"), "{}", check.remedy);
    must("umount /sys/fs/cgroup/unified");
    let (outcome, check) = ask("", "cgroups");
    assert_eq!(check.status, "fail", "{}", check.detail);
    assert!(
        check.remedy.contains("mount -t cgroup2"),
        "{}",
        check.remedy
    );
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}

// promise: 8.7
#[test]
fn a_host_that_has_everything_is_told_so_by_the_daemon() {
    let Some(platform) = Platform::new("a_host_that_has_everything_is_told_so_by_the_daemon")
    else {
        return;
    };
    let outcome = platform.nfluid(&["doctor"]);
    assert!(outcome.succeeded(), "{outcome:?}");
    for name in ["switch", "privileges", "eBPF", "BPF file system", "cgroups"] {
        let line = format!("ok    {name}: ");
        assert!(outcome.stdout.contains(&line), "{line}: {outcome:?}");
    }
    assert!(!outcome.stdout.contains("FAIL"), "{outcome:?}");
}
