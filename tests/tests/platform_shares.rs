//! Groups of tenants and placement on the real daemon: cgroups as the document says, changed and moved while instances
//! run, found again by the next daemon, and gone when they are deleted.

use nfluid_ring::slice;
use nfluid_testbed::process::Background;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{BRIDGE_AND_FIREWALL, SERVER, two_hosts};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const TENANTS: &str = "\
version: 1
groups:
  gold: { share: 60%, cap: 150% }
  alice: { group: gold, share: 30%, guarantee: 20% }
instances:
  fw: { nf: firewall, group: alice, share: 70%, cap: 50% }
  br: { nf: bridge, group: alice, share: 30% }
  own: { nf: bridge, share: 20% }
";

/// Returns the directory of the cgroup with an instance's CPU weight, by the kernel's record of its process.
fn cpu_group(pid: u32) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    let of = |wanted: &str| {
        let mut lines = text.lines().map(|line| line.splitn(3, ':'));
        lines.find_map(|mut parts| {
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            controllers
                .split(',')
                .any(|controller| controller == wanted)
                .then(|| path.trim_start_matches('/').to_owned())
        })
    };
    match of("cpu") {
        Some(path) => PathBuf::from("/sys/fs/cgroup/cpu").join(path),
        None => PathBuf::from("/sys/fs/cgroup").join(of("").expect("a cgroup of v2")),
    }
}

/// Where an instance is below the platform's own cgroup.
fn place(platform: &Platform, name: &str) -> String {
    let group = cpu_group(platform.pids()[name]);
    let text = group.to_string_lossy().into_owned();
    let mark = text
        .find("/nfluid-test-")
        .expect("in the platform's cgroup");
    let below = text[mark + 1..].split_once('/').expect("below it").1;
    below.to_owned()
}

/// The weight of a cgroup in per-mille of a core, and its cap in percent of one.
fn limits(group: &std::path::Path) -> (u64, Option<u64>) {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let number = |text: String| text.trim().parse::<i64>().expect("a number");
    if let Some(weight) = read("cpu.weight") {
        let max = read("cpu.max").expect("beside the weight");
        let (quota, period) = max.trim().split_once(' ').expect("two numbers");
        let cap = quota.parse::<u64>().ok();
        let cap = cap.map(|quota| quota * 100 / period.parse::<u64>().expect("a number"));
        return (number(weight) as u64, cap);
    }
    let shares = number(read("cpu.shares").expect("v1 has shares"));
    let quota = number(read("cpu.cfs_quota_us").expect("and quotas"));
    let period = number(read("cpu.cfs_period_us").expect("and periods"));
    let cap = (quota > 0).then(|| (quota * 100 / period) as u64);
    ((shares as f64 / 10.24).round() as u64, cap)
}

fn refused(platform: &Platform, right: &str, wrong: &str, named: &str) {
    let outcome = platform.try_apply(&TENANTS.replacen(right, wrong, 1));
    assert_eq!(outcome.code, Some(1), "{wrong}: {outcome:?}");
    assert!(outcome.stderr.contains(named), "{wrong}: {outcome:?}");
}

// promise: 4.7
#[test]
fn groups_are_nested_cgroups_that_change_under_running_instances() {
    let Some(platform) =
        Platform::new("groups_are_nested_cgroups_that_change_under_running_instances")
    else {
        return;
    };
    let changes = platform.apply(TENANTS);
    assert!(
        changes.contains(&"created group gold".to_owned()),
        "{changes:?}"
    );
    assert_eq!(place(&platform, "fw"), "g-gold/g-alice/i-fw");
    assert_eq!(place(&platform, "own"), "i-own");
    let before = platform.pids();
    let fw = cpu_group(before["fw"]);
    assert_eq!(limits(&fw), (700, Some(50)));
    let alice = fw.parent().expect("its group").to_owned();
    assert_eq!(limits(&alice), (300, None));
    assert_eq!(limits(alice.parent().expect("its group")), (600, Some(150)));

    // Caps go below one around them and above it again, which cgroup v1 takes only in some order.
    let lower = TENANTS
        .replace("cap: 150%", "cap: 20%")
        .replace("share: 60%", "share: 15%")
        .replace(", guarantee: 20%", "")
        .replace("cap: 50%", "cap: 10%");
    platform.apply(&lower);
    assert_eq!(limits(&fw), (700, Some(10)));
    platform.apply(TENANTS);
    assert_eq!(limits(&fw), (700, Some(50)));

    // To another group, out of all groups, and a group into another one: no instance is restarted.
    let used = |name: &str| {
        let stats = platform.ask(&["stats"]);
        let found = list(&stats["instances"]).find(|it| it["name"] == name);
        found.expect("it is there")["cpu_ns"]
            .as_u64()
            .expect("a number")
    };
    let was = used("br");
    let moved = TENANTS.replace(
        "br: { nf: bridge, group: alice",
        "br: { nf: bridge, group: gold",
    );
    assert_eq!(platform.apply(&moved), ["changed instance br"]);
    assert_eq!(place(&platform, "br"), "g-gold/i-br");
    assert!(used("br") >= was, "what it used is not forgotten");
    let out = TENANTS.replace(
        "br: { nf: bridge, group: alice, share: 30%",
        "br: { nf: bridge, share: 10%",
    );
    platform.apply(&out);
    assert_eq!(place(&platform, "br"), "i-br");
    let turned = "\
version: 1
groups:
  alice: { share: 30% }
  gold: { group: alice, share: 60%, cap: 100% }
instances:
  fw: { nf: firewall, group: gold, share: 70% }
  br: { nf: bridge, group: alice, share: 30% }
  own: { nf: bridge, share: 20% }
";
    platform.apply(turned);
    assert_eq!(place(&platform, "fw"), "g-alice/g-gold/i-fw");
    assert_eq!(place(&platform, "br"), "g-alice/i-br");
    platform.apply(TENANTS);
    assert_eq!(place(&platform, "fw"), "g-gold/g-alice/i-fw");
    assert_eq!(platform.pids(), before);
    let groups: Vec<String> = list(&platform.ask(&["get", "groups"]))
        .map(|group| group["name"].to_string())
        .collect();
    assert_eq!(groups, ["\"alice\"", "\"gold\""]);
    assert!(
        platform
            .nfluid(&["describe", "group", "alice"])
            .stdout
            .contains("fw")
    );
    let top = platform.nfluid(&["top", "--once"]).stdout;
    assert!(top.contains("GROUP") && top.contains("alice"), "{top}");
    platform.apply("version: 1\n");
    let left: Vec<PathBuf> = platform
        .cgroups()
        .into_iter()
        .map(|group| group.join("g-gold"))
        .filter(|group| group.exists())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

// promise: 4.9
#[test]
fn what_does_not_add_up_changes_nothing() {
    let Some(platform) = Platform::new("what_does_not_add_up_changes_nothing") else {
        return;
    };
    platform.apply(TENANTS);
    let state = || {
        let pids = platform.pids();
        let limits = limits(&cpu_group(pids["fw"]));
        (pids, limits, platform.ask(&["get", "deployment"]))
    };
    let before = state();
    refused(&platform, "share: 60%", "share: -60%", "groups.gold.share");
    refused(
        &platform,
        "share: 60%",
        "share: 9999999%",
        "groups.gold.share",
    );
    refused(
        &platform,
        "gold: { share",
        "gold: { group: alice, share",
        "within itself",
    );
    refused(
        &platform,
        "group: alice, share: 70%",
        "group: nobody",
        "instances.fw.group",
    );
    refused(
        &platform,
        "guarantee: 20%",
        "guarantee: 9000%",
        "groups.alice.guarantee",
    );
    refused(
        &platform,
        "cap: 50%",
        "cap: 50%, cpus: [4000]",
        "instances.fw.cpus",
    );
    refused(
        &platform,
        "cap: 50%",
        "cap: 50%, placement: best",
        "instances.fw.placement",
    );
    assert_eq!(state(), before);
    let outcome = platform.nfluid(&["delete", "group", "alice"]);
    assert_eq!(outcome.code, Some(1), "somebody is in it: {outcome:?}");
    assert_eq!(state(), before);
}

// promise: 4.8
#[test]
fn the_next_daemon_finds_the_groups_and_who_is_in_them() {
    let Some(mut platform) = Platform::new("the_next_daemon_finds_the_groups_and_who_is_in_them")
    else {
        return;
    };
    platform.apply(TENANTS);
    let before = platform.pids();
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), before);
    assert_eq!(place(&platform, "fw"), "g-gold/g-alice/i-fw");
    assert_eq!(platform.apply(TENANTS), [""; 0]);
    // A daemon that was killed between the move of an instance and the record of it.
    platform.kill_daemon();
    for own in platform.cgroups() {
        let astray = own.join("g-stray").join("i-fw");
        fs::create_dir_all(&astray).expect("a cgroup");
        fs::write(astray.join("cgroup.procs"), before["fw"].to_string()).expect("it moves");
    }
    platform.start();
    assert_eq!(platform.pids(), before);
    assert_eq!(place(&platform, "fw"), "g-gold/g-alice/i-fw");
    assert!(
        platform
            .cgroups()
            .iter()
            .all(|own| !own.join("g-stray").exists())
    );
}

/// The CPUs that a process may run on, as the kernel lists them.
fn cpus_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("the kernel says").trim().to_owned()
}

// promise: 4.10, 4.13
#[test]
fn placement_and_cpus_are_carried_out_while_instances_run() {
    let Some(mut platform) =
        Platform::new("placement_and_cpus_are_carried_out_while_instances_run")
    else {
        return;
    };
    let text = "version: 1\ninstances:\n  a: { nf: bridge, share: 30% }\n  b: { nf: bridge, share: 30% }\n";
    platform.apply(text);
    let pids = platform.pids();
    let all = cpus_of(pids["a"]);
    let cpus = || {
        let pids = platform.pids();
        (cpus_of(pids["a"]), cpus_of(pids["b"]))
    };
    platform.apply(&text.replace("a: { nf: bridge,", "a: { nf: bridge, cpus: [0],"));
    assert_eq!(cpus(), ("0".to_owned(), all.clone()));
    platform.apply(&text.replace("version: 1\n", "version: 1\nplacement: pinned\n"));
    let (a, b) = cpus();
    let one_each = a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok();
    assert!(one_each && (a != b || all == "0"), "{a} {b}");
    assert_eq!(platform.instance("a")["core"].to_string(), a);
    assert_eq!(platform.pids(), pids);
    platform.kill_daemon();
    platform.start();
    let pids = platform.pids();
    assert_eq!((cpus_of(pids["a"]), cpus_of(pids["b"])), (a, b));
    // A slice, where the kernel has one, too.
    let sliced =
        platform.try_apply(&text.replace("a: { nf: bridge,", "a: { nf: bridge, slice: 500us,"));
    if sliced.succeeded() {
        assert_eq!(platform.instance("a")["slice_us"], 500);
    } else {
        assert!(sliced.stderr.contains("Linux 6.12"), "{sliced:?}");
    }
    platform.apply(text);
    assert_eq!((cpus_of(pids["a"]), cpus_of(pids["b"])), (all.clone(), all));
    assert_eq!(platform.instance("a")["core"], Value::Null);
}

#[test]
fn a_guarantee_that_its_core_does_not_give_is_told_and_queues_get_a_core_each() {
    let test = "a_guarantee_that_its_core_does_not_give_is_told_and_queues_get_a_core_each";
    let Some(platform) = Platform::new(test) else {
        return;
    };
    let text = "version: 1\novercommit: true\nplacement: pinned\ninstances:\n  own: { nf: bridge, guarantee: 50%, cpus: [0] }\n  wide: { nf: counter, share: 10%, ports: { in: { queues: 2 }, out: { queues: 2 } } }\n";
    platform.apply(text);
    let pids = platform.pids();
    assert_eq!(cpus_of(pids["own"]), "0");
    let one_core = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    let wide = cpus_of(pids["wide"]);
    assert!(
        one_core || wide.parse::<u32>().is_err(),
        "more than one: {wide}"
    );
    let beside = "  big: { nf: bridge, share: 90%, cpus: [0] }\n";
    platform.apply(&format!("{text}{beside}"));
    eventually("it is told", || {
        platform.events_of("own").contains(&"warning".to_owned())
    });
    assert_eq!(platform.pids()["own"], pids["own"]);
    // Once, as long as it is so.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let told = platform.events_of("own");
    assert_eq!(
        told.iter().filter(|kind| *kind == "warning").count(),
        1,
        "{told:?}"
    );
}

/// Starts a process of the host, outside of the platform, that wants core 0 for itself.
fn outsider() -> Background {
    let spin = ["-c", "0", "sh", "-c", "while :; do :; done"];
    Background::start(Command::new("taskset").args(spin)).expect("util-linux is installed")
}

/// Returns the CPU time that a process has had, in nanoseconds.
fn cpu_ns(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it runs");
    let first = text.split_whitespace().next().expect("three numbers");
    first.parse().expect("a number")
}

// promise: 4.16
#[test]
fn a_guarantee_is_kept_beside_the_hosts_own_work() {
    let test = "a_guarantee_is_kept_beside_the_hosts_own_work";
    let Some(platform) = Platform::new(test) else {
        return;
    };
    let spinner = nfluid_tests::harness::program::program("nfluid-test-hostile");
    let text = format!(
        "version: 1\ninstances:\n  a: {{ program: {}, args: [burn-until], guarantee: 100%, cpus: [0] }}\n",
        spinner.display()
    );
    platform.apply(&text);
    let pid = platform.pids()["a"];
    let whole = cpu_group(pid).parent().expect("the platform's").to_owned();
    assert_eq!(limits(&whole).0, 1000);

    let outsiders: Vec<_> = (0..3).map(|_| outsider()).collect();
    let had = || {
        let theirs = outsiders.iter().map(|it| cpu_ns(it.pid()));
        (cpu_ns(pid), theirs.sum::<u64>())
    };
    let before = had();
    std::thread::sleep(Duration::from_secs(1));
    let after = had();
    let (own, theirs) = (after.0 - before.0, after.1 - before.1);
    // A guaranteed core weighs as much as ten processes. Without it the platform had a quarter.
    assert!(
        own > 2 * theirs,
        "the instance had {own} ns, three processes beside it {theirs}"
    );
    drop(outsiders);
    platform.apply(&text.replace("guarantee", "share"));
    assert_eq!(
        limits(&whole).0,
        100,
        "what guarantees nothing weighs as any other"
    );
}

// promise: 4.10
#[test]
fn who_wants_a_core_another_has_is_moved() {
    let test = "who_wants_a_core_another_has_is_moved";
    let Some(platform) = Platform::new(test) else {
        return;
    };
    let spinner = nfluid_tests::harness::program::program("nfluid-test-hostile");
    // Instances that burn a core each, put on one core, and then left to the daemon.
    let text = format!(
        "version: 1\novercommit: true\ninstances:\n  a: &burn {{ program: {}, args: [burn-until], share: 10%, cpus: [0], placement: pinned }}\n  b: *burn\n",
        spinner.display()
    );
    platform.apply(&text);
    let pids = platform.pids();
    let cores = || {
        let core = |name: &str| platform.instance(name)["core"].as_u64();
        (core("a"), core("b"))
    };
    assert_eq!(cores(), (Some(0), Some(0)));
    let spread = text.replace(", cpus: [0], placement: pinned", ", placement: spread");
    platform.apply(&spread);
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        nfluid_tests::harness::skip::skip(test, "this host has one CPU");
        return;
    }
    eventually("one of them has a core of its own", || {
        let (a, b) = cores();
        a != b
    });
    let moves = |name: &str| {
        let events = platform.events_of(name);
        events.iter().filter(|kind| *kind == "moved").count()
    };
    assert_eq!(moves("a") + moves("b"), 1);
    assert_eq!(platform.pids(), pids);
}

// promise: 4.12
#[test]
fn what_is_received_at_uplinks_is_charged_to_who_gets_the_frames() {
    let test = "what_is_received_at_uplinks_is_charged_to_who_gets_the_frames";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(BRIDGE_AND_FIREWALL);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let idle = platform.ask(&["stats"]);
    let sum = |stats: &Value, list_key: &str, key: &str| -> u64 {
        let all = stats[list_key].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|one| one[key].as_u64()).sum()
    };
    assert!(sum(&idle, "instances", "uplink_ns") <= sum(&idle, "uplinks", "receive_ns"));
    let flood = format!("ping -n -q -f -c 2000 {SERVER}");
    eventually("frames have a cost at both uplinks", || {
        assert!(platform.on("client", &flood).succeeded());
        let stats = platform.ask(&["stats"]);
        let uplinks = stats["uplinks"].as_array().cloned().unwrap_or_default();
        uplinks.len() == 2
            && uplinks
                .iter()
                .all(|uplink| uplink["frame_ns"].as_f64() > Some(0.0))
    });
    eventually("all of it is charged to somebody", || {
        assert!(platform.on("client", &flood).succeeded());
        let stats = platform.ask(&["stats"]);
        let spent = sum(&stats, "uplinks", "receive_ns");
        let charged = sum(&stats, "instances", "uplink_ns");
        assert!(charged <= spent, "{stats}");
        spent > 0 && charged * 10 >= spent * 9
    });
    let metrics = platform.nfluid(&["top", "--once"]).stdout;
    assert!(
        metrics.contains("AT UPLINKS") && metrics.contains("NS/FRAME"),
        "{metrics}"
    );
}

/// Returns true if the kernel keeps a slice that is set for a thread.
fn has_slices() -> bool {
    let thread = std::thread::spawn(|| {
        slice::give(None, slice::PLATFORM).expect("an ordinary thread's slice");
        slice::of(None).expect("its own slice") == slice::PLATFORM
    });
    thread.join().expect("it answers")
}

// promise: 4.13
#[test]
fn who_has_little_to_do_has_a_short_slice_unless_its_operator_has_chosen_one() {
    let test = "who_has_little_to_do_has_a_short_slice_unless_its_operator_has_chosen_one";
    if !has_slices() {
        skip(test, "slices of one's own need Linux 6.12");
        return;
    }
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(BRIDGE_AND_FIREWALL);
    let pids = platform.pids();
    let slice_of = |name: &str| {
        let process = rustix::process::Pid::from_raw(pids[name].cast_signed());
        slice::of(process).expect("it runs")
    };
    // No frames have arrived by which it could detect small bursts.
    assert_eq!(slice_of("br"), slice::PLATFORM);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let pings = format!("ping -n -q -i 0.003 -c 60 {SERVER}");
    eventually("its slice is short", || {
        assert!(platform.on("client", &pings).succeeded());
        slice_of("br") < slice::PLATFORM
    });
    let chosen = BRIDGE_AND_FIREWALL.replace("nf: bridge", "nf: bridge, slice: 5ms");
    platform.apply(&chosen);
    assert!(platform.on("client", &pings).succeeded());
    assert_eq!(slice_of("br"), 5_000_000);
    platform.apply(BRIDGE_AND_FIREWALL);
    eventually("its slice is short again", || {
        assert!(platform.on("client", &pings).succeeded());
        slice_of("br") < slice::PLATFORM
    });
}
