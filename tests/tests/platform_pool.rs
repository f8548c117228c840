//! Instances that are made from shells are instances like any other, and leave as little.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nfluid_testbed::process::signal;
use nfluid_tests::harness::attempt::{Answer, Report, Reports};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::{Platform, list};
use nfluid_tests::harness::pools::{await_shells, pool};
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::soak;
use nfluid_tests::harness::two_hosts::{BRIDGE_AND_FIREWALL, SERVER, two_hosts};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Instances that are made and ended before counting, so that objects that are made once exist.
const WARM_UP: u32 = 50;
/// Number of clients that make and end instances at the same time.
const CLIENTS: u32 = 4;
/// How much more memory the daemon may have after all others: for events, and for what the allocator keeps for its
/// threads. 28 KiB for each of 300, 84 bytes for each of 100,000 (`NFLUID_CYCLES`).
const MEMORY_MAX: u64 = 8 << 20;

const POOL: &str = "pool: { medium: { size: 3 } }\n";

/// The kernel's memory of the whole host, in KiB, by kind.
fn kernel_kib() -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string("/proc/meminfo").expect("what memory there is");
    let kinds = [
        "SUnreclaim",
        "KReclaimable",
        "Percpu",
        "KernelStack",
        "PageTables",
    ];
    let line = |line: &str| {
        let (kind, rest) = line.split_once(':')?;
        let kib = rest.split_whitespace().next()?.parse().ok()?;
        kinds.contains(&kind).then(|| (kind.to_owned(), kib))
    };
    text.lines().filter_map(line).collect()
}

/// Returns the names in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(name).collect()
}

/// Everything that belongs to instances and shells: files, pinned maps, cgroups.
fn belongings(platform: &Platform) -> BTreeSet<String> {
    let run = platform.run_dir();
    let folders = ["bells", "control", "instances"].map(|name| run.join(name));
    let mut found: BTreeSet<String> = folders.iter().flat_map(|folder| names(folder)).collect();
    found.extend(names(&platform.pins().join("instances")));
    let logs = names(&run.join("logs")).into_iter();
    found.extend(logs.filter(|name| name.ends_with(".pipe")));
    let cgroups = platform.cgroups();
    let cgroups = cgroups.iter().flat_map(|folder| names(folder));
    found.extend(cgroups.filter(|name| name.starts_with("i-")));
    found
}

// promise: 5.11
#[test]
fn an_instance_from_a_shell_is_like_any_other() {
    let Some(mut platform) = two_hosts("an_instance_from_a_shell_is_like_any_other") else {
        return;
    };
    // Shells have memory for long frames where there is an uplink.
    let (uplinks, _) = BRIDGE_AND_FIREWALL.split_once("instances:").expect("some");
    platform.apply(&format!("{uplinks}{POOL}"));
    await_shells(&platform, 3);
    assert!(platform.pids().is_empty(), "shells are no instances");
    let document = format!("{BRIDGE_AND_FIREWALL}{POOL}");
    platform.apply(&document);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    assert_eq!(pool(&platform)["taken"], 2);
    let firewall = platform.nfluid(&["command", "fw", "no-such-command"]);
    assert!(!firewall.succeeded(), "its own NF answers: {firewall:?}");

    // The instance is restarted unchanged, and taken over by the next daemon, which makes new shells.
    let before = platform.pids();
    signal(before["fw"], Signal::KILL);
    eventually("it runs again", || {
        platform
            .pids()
            .get("fw")
            .is_some_and(|pid| *pid != before["fw"])
    });
    eventually("a ping crosses again", || platform.pings("client", SERVER));
    let before = platform.pids();
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), before);
    assert!(platform.reaches("client", SERVER));
    await_shells(&platform, 3);

    // Shells that have died are of no use, and do no harm.
    kill_shells(&platform);
    let added = "version: 1\ninstances: { more: { nf: bridge } }\n";
    let file = platform.directory().join("more.yaml");
    std::fs::write(&file, added).expect("a file");
    let more = platform.nfluid(&["apply", "--add", "-f", &file.display().to_string()]);
    assert!(more.succeeded(), "{more:?}");
    eventually("it runs", || {
        platform.instance("more")["state"] == "running"
    });
    assert!(platform.nfluid(&["delete", "instance", "more"]).succeeded());

    // Its group is changed while it runs: its cgroup is another then.
    let grouped = document.replace("br: { nf: bridge }", "br: { nf: bridge, group: us }");
    platform.apply(&format!("{grouped}groups: {{ us: {{ share: 50% }} }}\n"));
    assert!(platform.reaches("client", SERVER));
    assert_eq!(platform.pids()["br"], before["br"]);

    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    eventually("nothing is left", || left(&platform).is_empty());
}

/// Returns the leftovers of instances and shells.
fn left(platform: &Platform) -> Vec<String> {
    let is_left = |name: &String| name.starts_with('_') || name.starts_with("i-");
    let files = belongings(platform).into_iter().filter(is_left);
    let processes = platform.instance_processes().into_iter();
    files.chain(processes.map(|pid| pid.to_string())).collect()
}

/// Kills the processes of all shells, and waits until they have ended: on a busy host that is not at once.
fn kill_shells(platform: &Platform) {
    let instances: Vec<u32> = platform.pids().into_values().collect();
    let mut shells = platform.instance_processes();
    shells.retain(|pid| !instances.contains(pid));
    for pid in &shells {
        signal(*pid, Signal::KILL);
    }
    let has_ended = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        // The process has not been asked to end, or it is gone.
        stat.map_or(true, |stat| {
            let state = stat.rsplit_once(") ");
            state.is_some_and(|(_, rest)| rest.starts_with('Z'))
        })
    };
    eventually("the shells have ended", || shells.iter().all(has_ended));
}

/// Attempts of a program, as in the tests of the sandbox's barriers; the last one kills it.
const ATTEMPTS: [&str; 18] = [
    "open:/etc/passwd",
    "open:/dev/null",
    "list-root",
    "create:/x",
    "create:/usr/lib/x",
    "mkdir:/x",
    "socket:2:1",
    "socket:1:1",
    "socket:17:3",
    "become-root",
    "capabilities",
    "bounding",
    "no-new-privileges",
    "dumpable",
    "pid",
    "uid",
    "list-descriptors",
    "trace:1",
];
/// So many of them are refused; only a look at the root may not be.
const REFUSED: usize = 10;

/// Returns the report of an instance's program; `None` until it has been killed for its last attempt.
fn report(platform: &Platform, name: &str) -> Option<Report> {
    let path = platform.run_dir().join("logs").join(name);
    let path = path.with_extension("log");
    let text = std::fs::read_to_string(&path).ok()?;
    let last = ATTEMPTS.last().expect("attempts");
    let is_over = text.contains(&format!("begin {last}\n")) && !platform.pids().contains_key(name);
    is_over.then(|| Reports::new(std::fs::File::open(&path).expect("a log").into()).rest())
}

fn await_report(platform: &Platform, name: &str) -> Report {
    eventually("it has made all attempts", || {
        report(platform, name).is_some()
    });
    report(platform, name).expect("a report")
}

// promise: 5.20
#[test]
fn programs_and_members_of_groups_come_out_of_pools_behind_the_same_barriers() {
    let test = "programs_and_members_of_groups_come_out_of_pools_behind_the_same_barriers";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let hostile = program("nfluid-test-hostile");
    let hostile = format!(
        "{{ program: {}, args: ['report-to:1', '{}'], ports: [in], restart: never }}",
        hostile.display(),
        ATTEMPTS.join("', '")
    );
    let begin =
        format!("version: 1\ngroups: {{ us: {{ share: 50% }} }}\ninstances:\n  plain: {hostile}\n");
    platform.apply(&begin);
    let plain = await_report(&platform, "plain");
    let refused = |answer: &Answer| matches!(answer, Answer::Refused(_));
    let tries = plain.0[..REFUSED].iter();
    let done: Vec<_> = tries.filter(|(_, answer)| !refused(answer)).collect();
    assert!(done.iter().all(|(name, _)| name == "list-root"), "{done:?}");

    let pools = "pool:\n  own: { size: 1, ports: 1, for: programs }\n  trusting: { size: 1, trust: friends }\n  tenants: { size: 1, group: us }\n";
    let all_ready = |platform: &Platform| {
        let pools = platform.ask(&["get", "pools"]);
        let mut pools = list(&pools);
        pools.all(|pool| pool["ready"] == 1)
    };
    platform.apply(&format!("{begin}{pools}"));
    eventually("the shells are ready", || all_ready(&platform));
    let more = "  friend: { nf: bridge, trust: friends }\n  tenant: { nf: bridge, group: us }\n";
    platform.apply(&format!("{begin}  pooled: {hostile}\n{more}{pools}"));
    let taken = |name: &str, key: &str| {
        let pools = platform.ask(&["get", "pools"]);
        let pool = list(&pools).find(|pool| pool["name"] == name);
        pool.expect("it is there")[key].as_u64()
    };
    for pool in ["own", "trusting", "tenants"] {
        assert_eq!(taken(pool, "taken"), Some(1), "{pool}");
    }
    assert_eq!(await_report(&platform, "pooled"), plain);
    assert_eq!(platform.instance("friend")["trust"], "friends");
    // The next daemon would start ended instances again.
    let begin = begin.replace(&format!("  plain: {hostile}\n"), "");
    platform.apply(&format!("{begin}{more}{pools}"));
    let pids = platform.pids();
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", pids["tenant"]));
    assert!(
        cgroup.expect("it runs").contains("/g-us/i-_"),
        "in its group"
    );

    // The next daemon has them, and makes new shells.
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), pids);
    eventually("there are new shells", || all_ready(&platform));

    // A shell whose process has died is of no use; a group changes without the shells that are in it.
    kill_shells(&platform);
    let late = "  late: { program: /bin/sleep, args: ['1000'], ports: [in] }\n";
    let changed = begin.replace("50%", "30%");
    platform.apply(&format!("{changed}{more}{late}{pools}"));
    assert_eq!(platform.instance("late")["state"], "running");
    eventually("there are shells again", || all_ready(&platform));
    assert!(platform.nfluid(&["delete", "--all"]).succeeded());
    eventually("nothing is left", || left(&platform).is_empty());
}

// promise: 5.12
#[test]
fn a_daemon_that_is_killed_while_shells_are_taken_leaves_one_or_the_other() {
    let test = "a_daemon_that_is_killed_while_shells_are_taken_leaves_one_or_the_other";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.start();
    for round in 0..6u64 {
        platform.apply(&format!(
            "version: 1\n{POOL}instances: {{ stays: {{ nf: bridge }} }}\n"
        ));
        await_shells(&platform, 3);
        let file = platform.directory().join("added.yaml");
        let instances: String = (0..3)
            .map(|n| format!("  x{n}: {{ nf: bridge }}\n"))
            .collect();
        std::fs::write(&file, format!("version: 1\ninstances:\n{instances}")).expect("a file");
        let mut command = platform.nfluid_command();
        command.args(["apply", "--add", "-f"]).arg(&file);
        let mut client = command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it can be started");
        // From before the request to after the answer, in six steps.
        thread::sleep(Duration::from_millis(4 * round));
        platform.kill_daemon();
        let _ended = client.wait();
        platform.start();
        await_shells(&platform, 3);
        let desired = platform.ask(&["get", "deployment"]);
        let wanted = desired["instances"].as_object().expect("instances").len();
        eventually("each that is desired runs, once", || {
            let pids = platform.pids();
            let own: BTreeSet<u32> = pids.values().copied().collect();
            let all = platform.instance_processes().len();
            pids.len() == wanted && own.len() == wanted && all == wanted + 3
        });
        let desired = desired["instances"].as_object().expect("instances");
        let records = names(&platform.run_dir().join("instances"));
        let known = |record: &String| {
            let name = record.trim_end_matches(".json");
            name.starts_with('_') || desired.contains_key(name)
        };
        assert!(records.iter().all(known), "round {round}: {records:?}");
        assert_eq!(records.len(), wanted + 3, "round {round}: {records:?}");
        assert!(platform.nfluid(&["delete", "--all"]).succeeded());
    }
}

/// Counts the kernel's objects of instances: maps in the switch's tables, and mounts in the daemon's namespace. Other
/// platforms of this host have their own tables. Mounts of network namespaces by parallel tests, which the whole host
/// sees, are not counted.
fn kernel_objects(platform: &Platform) -> (usize, usize) {
    let maps = ["nfl_rings", "nfl_pools", "nfl_bells"].map(|name| {
        let table = MapHandle::from_pinned_path(platform.pins().join(name));
        let table = table.expect("the switch is loaded");
        let entries = table.lookup_batch(table.max_entries(), MapFlags::ANY, MapFlags::ANY);
        let entered = entries.expect("it is a table").map(|(_, map)| map);
        entered.collect::<BTreeSet<_>>().len()
    });
    let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", platform.daemon_pid()));
    let mounts = mounts.expect("it runs");
    let other_tests =
        |mount: &&str| mount.contains(" - nsfs ") && !mount.contains(&platform.edge());
    let mounts = mounts.lines().filter(|mount| !other_tests(mount));
    (maps.iter().sum(), mounts.count())
}

/// Returns the memory of a process in bytes: its RAM without file mappings.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|kb| kb.parse::<u64>().ok()).expect("in kB") << 10
}

/// Returns the open descriptors of a process: its own, and those of a thread with its own table, by the thread's name.
fn descriptors(pid: u32) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for task in names(Path::new(&format!("/proc/{pid}/task"))) {
        let folder = format!("/proc/{pid}/task/{task}");
        let name = std::fs::read_to_string(format!("{folder}/comm")).unwrap_or_default();
        if task == pid.to_string() || name.trim() == "logs" {
            let open = names(Path::new(&format!("{folder}/fd"))).len();
            all.insert(name.trim().to_owned(), open);
        }
    }
    all
}

// promise: 5.19
#[test]
fn an_instance_costs_the_daemon_a_descriptor_and_its_log_another() {
    const NAME: &str = "an_instance_costs_the_daemon_a_descriptor_and_its_log_another";
    let Some(mut platform) = Platform::new(NAME) else {
        return;
    };
    let instance = |number: u32| format!("  i{number}: {{ nf: router, ports: [a, b, c, d] }}\n");
    let of = |numbers: std::ops::Range<u32>| -> String { numbers.map(instance).collect() };
    platform.apply(&format!("version: 1\ninstances:\n{}", of(0..1)));
    let daemon = platform.daemon_pid();
    let mut before = descriptors(daemon);
    eventually("nothing changes any more", || {
        thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut before, descriptors(daemon)) == before
    });
    platform.apply(&format!("version: 1\ninstances:\n{}", of(0..9)));
    let expected: BTreeMap<String, usize> = before
        .iter()
        .map(|(name, count)| (name.clone(), count + 8))
        .collect();
    assert_eq!(expected.len(), 2, "{expected:?}");
    eventually("each has one, and its log one", || {
        descriptors(daemon) == expected
    });
    // The next daemon has no more.
    platform.kill_daemon();
    platform.start();
    let daemon = platform.daemon_pid();
    assert_eq!(platform.pids().len(), 9);
    eventually("the next daemon has no more", || {
        let now = descriptors(daemon);
        now.iter().all(|(name, count)| *count <= expected[name] + 2)
    });
}

// promise: 5.13
#[test]
fn many_are_made_and_ended_without_a_trace() {
    let Some(platform) = Platform::new("many_are_made_and_ended_without_a_trace") else {
        return;
    };
    let cycles = std::env::var("NFLUID_CYCLES").ok();
    let cycles = cycles.and_then(|text| text.parse().ok());
    let cycles: u32 = cycles.unwrap_or_else(|| soak::choose(300, 100_000));
    platform.apply(&format!("version: 1\n{POOL}"));
    await_shells(&platform, 3);
    let cycle = |name: &str| {
        let one = json!({ "instance": { "nf": "bridge" } });
        let path = format!("/v1/instances/{name}");
        assert!(platform.requests("PUT", &path, &one));
        assert!(platform.requests("DELETE", &format!("{path}?with_links=true"), &Value::Null));
    };
    // Some come from shells, others find none left.
    let cycle_all = |count: u32| {
        let next = AtomicU32::new(0);
        let work = |client: u32| {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                cycle(&format!("one{client}"));
            }
        };
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let work = &work;
                scope.spawn(move || work(client));
            }
        });
    };
    let daemon = || {
        let own: BTreeSet<u32> = platform.instance_processes().into_iter().collect();
        let mut others = platform.processes();
        others.retain(|pid| !own.contains(pid));
        others
    };
    let descriptors = || {
        let of = |pid: &u32| descriptors(*pid).values().sum::<usize>();
        daemon().iter().map(of).sum::<usize>()
    };
    cycle_all(WARM_UP);
    await_shells(&platform, 3);
    let now = || {
        (
            belongings(&platform).len(),
            platform.instance_processes().len(),
            descriptors(),
            kernel_objects(&platform),
        )
    };
    // Resources of ended instances are freed in the background.
    let mut before = now();
    eventually("nothing changes any more", || {
        thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut before, now()) == before
    });
    let memory_before = memory(platform.daemon_pid());
    let kernel_before = kernel_kib();
    let begun = Instant::now();
    cycle_all(cycles);
    let took = begun.elapsed();
    await_shells(&platform, 3);
    eventually(&format!("all is as before, {before:?}"), || now() == before);
    let grown = memory(platform.daemon_pid()).saturating_sub(memory_before);
    assert!(grown < MEMORY_MAX, "{grown} bytes more than before");
    // The figure includes other activity of the machine.
    println!(
        "{cycles} cycles in {took:?}; as before {before:?}; the daemon has {grown} bytes more; kernel's memory in KiB before \
         {kernel_before:?}, after {:?}",
        kernel_kib()
    );
}

// promise: 5.14
#[test]
fn a_pool_that_cannot_be_is_refused_with_a_reason() {
    let Some(mut platform) = Platform::new("a_pool_that_cannot_be_is_refused_with_a_reason") else {
        return;
    };
    platform.start();
    for (pool, reason) in [
        ("{ size: 4096, flavor: large, ports: 64 }", "the host has"),
        ("{ size: 4096, flavor: small, ports: 9 }", "ports"),
        ("{ size: 1, flavor: no-such }", "no-such"),
        ("{ size: 5000 }", "4096"),
        ("{ }", "size"),
        ("{ size: 3, most: 5 }", "rate"),
    ] {
        let refused = platform.try_apply(&format!("version: 1\npool: {{ p: {pool} }}\n"));
        assert!(!refused.succeeded(), "{pool}");
        assert!(refused.stderr.contains(reason), "{pool}: {refused:?}");
    }
    assert_eq!(platform.ask(&["get", "pools"]), Value::Array(Vec::new()));
    platform.apply("version: 1\npool: { p: { size: rate, most: 8, flavor: small } }\n");
    eventually("a few are ready before anybody asks", || {
        pool(&platform)["ready"].as_u64() >= Some(4)
    });
}
