//! The promise: an instance uses the memory, tasks and CPU time that it was given, and no more; who asks for more hurts
//! himself alone.

use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot, Controller, Share};
use nfluid_sandbox::{Ended, Limits, NetNs, Root, Shell, ShellSpec, Zygote};
use nfluid_tests::harness::attempt::Answer::{Done, Fatal, Refused};
use nfluid_tests::harness::measure::{cpu_time, load_of, one_holds, part_of};
use nfluid_tests::harness::sandboxed::{Sandboxed, Sandboxes, Setup};
use nfluid_tests::harness::skip::skip;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::{Duration, Instant};

const KILLED: Ended = Ended::Killed(libc::SIGKILL);

/// Returns the platform, or `None`, after a report, if the host lacks root or a controller that the test needs.
fn sandboxes_with(test: &str, controllers: &[Controller]) -> Option<Sandboxes> {
    let sandboxes = Sandboxes::new(test)?;
    let missing = sandboxes.cgroups().missing();
    match controllers
        .iter()
        .find(|controller| missing.contains(controller))
    {
        Some(controller) => {
            skip(
                test,
                &format!("this host has no cgroup controller {controller}"),
            );
            None
        }
        None => Some(sandboxes),
    }
}

fn percent(percent: u32) -> Share {
    Share::from_percent(percent).expect("a legal share")
}

// promise: 4.1
#[test]
fn who_exceeds_the_memory_limit_is_killed_alone() {
    let test = "who_exceeds_the_memory_limit_is_killed_alone";
    let Some(sandboxes) = sandboxes_with(test, &[Controller::Memory]) else {
        return;
    };
    let (keep, end) = std::io::pipe()
        .map(|(reader, writer)| (writer, reader))
        .unwrap();
    let fds = [(std::os::fd::AsFd::as_fd(&end), 4)];
    let waiting = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let neighbour = sandboxes.start(&["eat-memory:8000000", "wait-for-end:4"], waiting);

    let eat = "eat-memory:100000000";
    let (cgroup, id) = sandboxes.next_cgroup();
    cgroup.set_memory(32 << 20).unwrap();
    let mut glutton = sandboxes.start_in(&[eat], Setup::default(), cgroup, id);
    assert_eq!(
        glutton.reports().next_answer(),
        Some((eat.to_owned(), Fatal))
    );
    assert_eq!(glutton.instance.wait().unwrap(), KILLED);
    let stats = glutton.cgroup.stats().unwrap();
    assert!(stats.oom_kills.unwrap() >= 1, "{stats:?}");
    if let Some(peak) = stats.memory_bytes_peak {
        assert!(peak <= 32 << 20, "{stats:?}");
    }
    assert_eq!(
        neighbour.instance.try_wait().unwrap(),
        None,
        "the neighbour lives"
    );
    drop((keep, end));
    let (report, ended) = neighbour.finish();
    assert!(matches!(report.of("eat-memory:8000000"), Done(_)));
    assert_eq!(ended, Ended::Exited(0));

    // The control: with enough memory, the same program survives.
    let (cgroup, id) = sandboxes.next_cgroup();
    cgroup.set_memory(200 << 20).unwrap();
    let (report, ended) = sandboxes
        .start_in(&[eat], Setup::default(), cgroup, id)
        .finish();
    assert!(matches!(report.of(eat), Done(_)));
    assert_eq!(ended, Ended::Exited(0));
}

#[test]
fn a_memory_limit_can_be_lowered_and_raised_again() {
    let test = "a_memory_limit_can_be_lowered_and_raised_again";
    let Some(sandboxes) = sandboxes_with(test, &[Controller::Memory]) else {
        return;
    };
    let (cgroup, id) = sandboxes.next_cgroup();
    for megabytes in [64, 16, 256, 200] {
        cgroup.set_memory(megabytes << 20).unwrap();
    }
    let eat = "eat-memory:100000000";
    let (report, _) = sandboxes
        .start_in(&[eat], Setup::default(), cgroup, id)
        .finish();
    assert!(matches!(report.of(eat), Done(_)));
}

// promise: 4.2
#[test]
fn a_fork_bomb_stops_at_the_limit() {
    let Some(sandboxes) = sandboxes_with("a_fork_bomb_stops_at_the_limit", &[Controller::Pids])
    else {
        return;
    };
    // Each bomb where it is possible, and in the ordinary sandbox, where only threads are.
    let forking = Setup {
        processes: true,
        ..Setup::default()
    };
    for (bomb, setup) in [
        ("fork-bomb:200", forking),
        ("thread-bomb:200", Setup::default()),
    ] {
        let (cgroup, id) = sandboxes.next_cgroup();
        cgroup.set_pids(20).unwrap();
        let (report, ended) = sandboxes.start_in(&[bomb], setup, cgroup, id).finish();
        let count = report.value(bomb);
        assert!((10..20).contains(&count), "{bomb}: {count}");
        assert_eq!(ended, Ended::Exited(0));
        let (report, _) = sandboxes.run(&[bomb], setup);
        assert_eq!(report.value(bomb), 200, "the control");
    }
    let (report, _) = sandboxes.run(&["fork-bomb:200"], Setup::default());
    assert_eq!(report.of("fork-bomb:200"), Refused(libc::EPERM));
}

// promise: 4.2
#[test]
fn tasks_are_also_limited_per_user() {
    let Some(sandboxes) = Sandboxes::new("tasks_are_also_limited_per_user") else {
        return;
    };
    let limits = Limits {
        tasks: 10,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        ..Setup::default()
    };
    let (report, _) = sandboxes.run(&["thread-bomb:200"], setup);
    assert_eq!(report.value("thread-bomb:200"), 9, "and the first thread");
}

#[test]
fn a_limit_per_process_cannot_be_raised() {
    let Some(sandboxes) = Sandboxes::new("a_limit_per_process_cannot_be_raised") else {
        return;
    };
    let (report, _) = sandboxes.run(&["raise-limit"], Setup::default());
    assert_eq!(report.of("raise-limit"), Refused(libc::EPERM));
    let (report, _) = sandboxes.run(&["raise-limit"], Setup::without_filter());
    assert_eq!(report.of("raise-limit"), Refused(libc::EPERM));
}

/// An instance that wants all CPU time, under a cap or without one.
fn burner(sandboxes: &Sandboxes, cap: Option<Share>) -> Sandboxed {
    let (cgroup, id) = sandboxes.next_cgroup();
    cgroup.set_cap(cap).expect("a cap");
    sandboxes.start_in(&["burn-until"], Setup::default(), cgroup, id)
}

/// How often it was held back.
fn throttled(burner: &Sandboxed) -> u64 {
    let stats = burner.cgroup.stats().expect("it runs");
    stats.throttled_periods.unwrap_or(0)
}

// promise: 4.3
#[test]
fn a_cpu_cap_holds() {
    let Some(sandboxes) = sandboxes_with("a_cpu_cap_holds", &[Controller::Cpu]) else {
        return;
    };
    for cap in [5, 20] {
        let part = f64::from(cap) / 100.0;
        one_holds(
            &format!("under a cap of {part} of a core it got, and was held back"),
            || {
                let burner = burner(&sandboxes, Some(percent(cap)));
                let share = load_of(&burner.cgroup, Duration::from_secs(3));
                (share, throttled(&burner))
            },
            |(share, throttled)| (part * 0.3..=part * 1.15).contains(share) && *throttled > 10,
        );
    }
    // The control wants more than the caps, whatever else runs on the machine, and only other processes keep it from
    // running.
    let free = burner(&sandboxes, None);
    let wanted = || free.instance.cpu_and_wait_time().expect("it runs");
    one_holds(
        "without a cap it wanted of a core, and was held back",
        || {
            let (begin, before) = (Instant::now(), wanted());
            std::thread::sleep(Duration::from_secs(2));
            let share = (wanted() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
            (share, throttled(&free))
        },
        |(share, throttled)| *share > 0.25 && *throttled == 0,
    );
}

// promise: 4.3
#[test]
fn two_that_want_one_cpu_share_it_by_weight() {
    let test = "two_that_want_one_cpu_share_it_by_weight";
    let Some(sandboxes) = sandboxes_with(test, &[Controller::Cpu]) else {
        return;
    };
    let setup = Setup {
        cpus: Some(&[0]),
        ..Setup::default()
    };
    let start = |share| -> Sandboxed {
        let (cgroup, id) = sandboxes.next_cgroup();
        cgroup.set_weight(percent(share)).unwrap();
        sandboxes.start_in(&["burn-until"], setup, cgroup, id)
    };
    let (big, small) = (start(75), start(25));
    one_holds(
        "75 to 25 became, to one",
        || {
            let part = part_of(&big.cgroup, &small.cgroup);
            part / (1.0 - part)
        },
        |ratio| (2.5..3.5).contains(ratio),
    );
}

/// Two of the same weight on one CPU, made anew for each measurement, the second of which is the one in question: it
/// gets half.
fn assert_half(start: impl Fn() -> (Sandboxed, Sandboxed)) {
    one_holds(
        "percent that it got of what two get",
        || {
            let (burner, yielder) = start();
            100.0 * part_of(&yielder.cgroup, &burner.cgroup)
        },
        |part| (45.0..55.0).contains(part),
    );
}

/// Pins this thread to the second CPU, if there is one.
fn go_elsewhere() -> Option<()> {
    let mut second = CpuSet::new();
    second.set(1);
    sched_setaffinity(None, &second).ok()
}

// promise: 4.6
#[test]
fn who_gives_turns_away_has_its_share_of_a_cpu_it_was_started_on_from_elsewhere() {
    let test = "who_gives_turns_away_has_its_share_of_a_cpu_it_was_started_on_from_elsewhere";
    let Some(sandboxes) = sandboxes_with(test, &[Controller::Cpu]) else {
        return;
    };
    let Some(()) = go_elsewhere() else {
        skip(test, "this host has one CPU");
        return;
    };
    // A copy of this thread, which is elsewhere.
    let zygote = Zygote::start().unwrap();
    for zygote in [None, Some(&zygote)] {
        let setup = Setup {
            cpus: Some(&[0]),
            zygote,
            ..Setup::default()
        };
        let start = |attempt| -> Sandboxed {
            let (cgroup, id) = sandboxes.next_cgroup();
            cgroup.set_weight(percent(50)).unwrap();
            sandboxes.start_in(&[attempt], setup, cgroup, id)
        };
        assert_half(|| (start("burn-until"), start("yield-until")));
    }
}

// promise: 4.6
#[test]
fn who_is_moved_to_another_cpu_has_its_share_there() {
    let test = "who_is_moved_to_another_cpu_has_its_share_there";
    let Some(sandboxes) = sandboxes_with(test, &[Controller::Cpu]) else {
        return;
    };
    let Some(()) = go_elsewhere() else {
        skip(test, "this host has one CPU");
        return;
    };
    let start = |attempt, cpus| -> Sandboxed {
        let (cgroup, id) = sandboxes.next_cgroup();
        cgroup.set_weight(percent(50)).unwrap();
        let setup = Setup {
            cpus: Some(cpus),
            ..Setup::default()
        };
        sandboxes.start_in(&[attempt], setup, cgroup, id)
    };
    assert_half(|| {
        let (burner, yielder) = (start("burn-until", &[0]), start("yield-until", &[1]));
        std::thread::sleep(Duration::from_millis(500));
        yielder.instance.pin(&[0]).unwrap();
        (burner, yielder)
    });
}

// promise: 4.13
#[test]
fn an_instance_has_the_slice_that_it_is_given_and_no_other_again() {
    let Some(sandboxes) =
        Sandboxes::new("an_instance_has_the_slice_that_it_is_given_and_no_other_again")
    else {
        return;
    };
    let sandboxed = sandboxes.start(&["burn-until"], Setup::default());
    let before = sandboxed.instance.slice().unwrap();
    let short = Duration::from_micros(100);
    match sandboxed.instance.set_slice(Some(short)) {
        Ok(()) => assert_eq!(sandboxed.instance.slice().unwrap(), short),
        Err(error) => {
            assert!(error.to_string().contains("Linux 6.12"), "{error}");
        }
    }
    sandboxed.instance.set_slice(None).unwrap();
    assert_eq!(sandboxed.instance.slice().unwrap(), before);
}

// promise: 4.3
#[test]
fn an_instance_may_change_its_own_slice_and_nothing_that_takes_time_from_others() {
    let test = "an_instance_may_change_its_own_slice_and_nothing_that_takes_time_from_others";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let attempts = ["own-slice", "slice-of-another", "less-nice", "real-time"];
    let (report, _) = sandboxes.run(&attempts, Setup::default());
    assert_eq!(report.of("own-slice"), Done(0));
    for attempt in &attempts[1..] {
        assert_eq!(report.of(attempt), Refused(libc::EPERM), "{attempt}");
    }
    let (report, _) = sandboxes.run(&attempts, Setup::without_filter());
    assert_eq!(
        report.of("slice-of-another"),
        Done(0),
        "the control: it is its own number, and only the filter keeps it"
    );
    for attempt in &attempts[2..] {
        assert_eq!(
            report.of(attempt),
            Refused(libc::EPERM),
            "{attempt}: its limits"
        );
    }
}

// promise: 4.6
#[test]
fn a_cpu_that_is_not_there_is_told() {
    let Some(sandboxes) = Sandboxes::new("a_cpu_that_is_not_there_is_told") else {
        return;
    };
    let zygote = Zygote::start().unwrap();
    let refusal = |cpu: usize, zygote| {
        let (cgroup, id) = sandboxes.next_cgroup();
        let spec = ShellSpec {
            name: "nowhere".to_owned(),
            id,
            cgroup: &cgroup,
            root: Root::Empty,
            net: NetNs::Own,
            capabilities: nfluid_sandbox::Capabilities::default(),
            sealed: None,
            cpus: Some(vec![cpu]),
            zygote,
        };
        Shell::prepare(&spec).unwrap_err().to_string()
    };
    assert!(refusal(1_000_000, None).contains("no CPU 1000000"));
    for zygote in [None, Some(&zygote)] {
        let text = refusal(1000, zygote);
        assert!(text.contains("none of these CPUs is online"), "{text}");
    }
}

// promise: 4.3
#[test]
fn an_instance_stays_on_its_cpus() {
    let Some(sandboxes) = Sandboxes::new("an_instance_stays_on_its_cpus") else {
        return;
    };
    let pinned = Setup {
        cpus: Some(&[0]),
        ..Setup::default()
    };
    let (report, _) = sandboxes.run(&["set-affinity", "count-cpus"], pinned);
    assert_eq!(report.of("set-affinity"), Refused(libc::EPERM));
    let (report, _) = sandboxes.run(
        &["set-affinity"],
        Setup {
            filter: false,
            ..pinned
        },
    );
    assert_eq!(
        report.of("set-affinity"),
        Done(0),
        "the control: only the filter keeps it"
    );
}

/// The CPU time of a group that is frozen. Linux calls a task frozen just before it leaves its CPU: its last moments
/// are still to be added.
fn settled_cpu_time(cgroup: &Cgroup) -> Duration {
    let mut last = cpu_time(cgroup);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        let now = cpu_time(cgroup);
        if now == last {
            break;
        }
        last = now;
    }
    last
}

#[test]
fn a_frozen_instance_stands_still_and_goes_on() {
    let Some(sandboxes) = Sandboxes::new("a_frozen_instance_stands_still_and_goes_on") else {
        return;
    };
    let burner = sandboxes.start(&["burn-until"], Setup::default());
    std::thread::sleep(Duration::from_millis(100));
    burner.cgroup.freeze().unwrap();
    let frozen = settled_cpu_time(&burner.cgroup);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(cpu_time(&burner.cgroup), frozen);
    burner.cgroup.thaw().unwrap();
    while cpu_time(&burner.cgroup) == frozen {
        std::thread::sleep(Duration::from_millis(1));
    }
    burner.cgroup.freeze().unwrap();
    burner.cgroup.kill_all().unwrap();
    assert_eq!(burner.instance.wait().unwrap(), KILLED, "also while frozen");
}

// promise: 4.5
#[test]
fn a_cgroup_is_removed_with_everything_inside() {
    let Some(sandboxes) = Sandboxes::new("a_cgroup_is_removed_with_everything_inside") else {
        return;
    };
    let (cgroup, id) = sandboxes.next_cgroup();
    let name = cgroup.name().to_owned();
    let forking = Setup {
        processes: true,
        ..Setup::default()
    };
    let sandboxed = sandboxes.start_in(&["burn-until"], forking, cgroup, id);
    assert!(
        sandboxes.cgroups().create(&name).is_err(),
        "the name is taken"
    );
    let found = sandboxes.cgroups().open(&name).unwrap();
    assert!(
        found
            .processes()
            .unwrap()
            .contains(&sandboxed.instance.pid())
    );
    assert!(sandboxes.cgroups().names().unwrap().contains(&name));
    found.remove().unwrap();
    assert_eq!(sandboxed.instance.wait().unwrap(), KILLED);
    assert!(sandboxes.cgroups().open(&name).is_err());
    assert!(!sandboxes.cgroups().names().unwrap().contains(&name));
}

#[test]
fn leftovers_are_found_by_their_prefix() {
    let Some(sandboxes) = Sandboxes::new("leftovers_are_found_by_their_prefix") else {
        return;
    };
    let prefix = format!("nfluid-test-left-{}", std::process::id());
    let left = CgroupRoot::new(&format!("{prefix}-a")).unwrap();
    let cgroup = left.create("inside").unwrap();
    let sandboxed = sandboxes.start_in(
        &["burn-until"],
        Setup::default(),
        cgroup,
        sandboxes.next_cgroup().1,
    );
    let removed = CgroupRoot::remove_leftovers(&prefix).unwrap();
    assert_eq!(removed.len(), 1);
    assert_eq!(sandboxed.instance.wait().unwrap(), KILLED);
    assert!(CgroupRoot::remove_leftovers(&prefix).unwrap().is_empty());
    assert!(
        CgroupRoot::remove_leftovers("nf").is_err(),
        "too short to be ours"
    );
    assert!(CgroupRoot::remove_leftovers("../x").is_err());
}
