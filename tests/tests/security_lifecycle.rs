//! The promise: instances outlive the daemon and are found again; everything else that a start makes, ends; and a start
//! that fails says why and leaves nothing.

use nfluid_sandbox::seccomp::Policy;
use nfluid_sandbox::{
    Ended, InheritedFd, Instance, InstanceError, Launch, Linkage, NetNs, ProcessIdentity, Program,
    Root, Shell, ShellSpec, Signal, SpawnError, Zygote,
};
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::sandboxed::{LEVEL, Sandboxes, Setup};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A daemon in its own process, and its output.
struct Daemon {
    child: Child,
    said: Vec<String>,
}

impl Daemon {
    fn start(what: &str, sandboxes: &Sandboxes) -> Self {
        let directory = sandboxes.cgroups().v2_directory();
        let cgroup = directory
            .and_then(Path::file_name)
            .expect("the tests' hosts have v2");
        let user = sandboxes.next_cgroup().1.raw().to_string();
        let mut command = Command::new(program("nfluid-test-parent"));
        command.arg(what).arg(cgroup).arg(user);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the daemon starts");
        let output = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("the daemon tells");
        let said = line.split_whitespace().map(str::to_owned).collect();
        Self { child, said }
    }

    fn kill(&mut self) {
        self.child.kill().expect("the daemon lives");
        self.child.wait().expect("it is our child");
    }
}

fn parent_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
    parent.expect("every process has a parent").to_owned()
}

// promise: 5.1
#[test]
fn an_instance_outlives_its_daemon_and_is_adopted() {
    let Some(sandboxes) = Sandboxes::new("an_instance_outlives_its_daemon_and_is_adopted") else {
        return;
    };
    let mut daemon = Daemon::start("instance", &sandboxes);
    let [pid, start_time, boot_id] = &daemon.said[..] else {
        panic!("{:?}", daemon.said)
    };
    let identity = ProcessIdentity {
        pid: pid.parse().unwrap(),
        start_time: start_time.parse().unwrap(),
        boot_id: boot_id.clone(),
    };
    assert_eq!(parent_of(identity.pid), daemon.child.id().to_string());
    daemon.kill();

    let cgroup = sandboxes.cgroups().open("daemon").unwrap();
    assert_ne!(parent_of(identity.pid), daemon.child.id().to_string());
    let before = cgroup.stats().unwrap().cpu_usage_ns;
    while cgroup.stats().unwrap().cpu_usage_ns == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let adopted = Instance::adopt(&identity).unwrap();
    assert_eq!(adopted.try_wait().unwrap(), None);
    adopted.kill().unwrap();
    assert_eq!(adopted.wait().unwrap(), Ended::Unknown);
    assert!(matches!(
        Instance::adopt(&identity),
        Err(InstanceError::Gone { .. })
    ));
}

// promise: 5.2
#[test]
fn a_shell_ends_with_its_daemon() {
    let Some(sandboxes) = Sandboxes::new("a_shell_ends_with_its_daemon") else {
        return;
    };
    let mut daemon = Daemon::start("shell", &sandboxes);
    let pid = daemon.said[0].parse().ok().and_then(Pid::from_raw).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    daemon.kill();
    let mut polled = [rustix::event::PollFd::new(
        &pidfd,
        rustix::event::PollFlags::IN,
    )];
    assert_eq!(rustix::event::poll(&mut polled, None), Ok(1), "it is over");
}

#[test]
fn what_a_zygote_makes_is_the_daemons_own_child() {
    let test = "what_a_zygote_makes_is_the_daemons_own_child";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let zygote = Zygote::start().unwrap();
    let setup = Setup {
        zygote: Some(&zygote),
        ..Setup::default()
    };
    let sandboxed = sandboxes.start(&["burn-until"], setup);
    let pid = sandboxed.instance.pid();
    assert_eq!(parent_of(pid), std::process::id().to_string());
    let processes = sandboxed.cgroup.processes().unwrap();
    assert_eq!(
        processes,
        BTreeSet::from([pid]),
        "the zygote itself stays outside"
    );
    drop(zygote);
    assert_eq!(
        sandboxed.instance.try_wait().unwrap(),
        None,
        "it outlives it"
    );
    sandboxed.instance.kill().unwrap();
    let ended = sandboxed.instance.wait().unwrap();
    assert_eq!(ended, Ended::Killed(libc::SIGKILL), "and its end is told");
}

// promise: 5.2
#[test]
fn a_killed_zygote_is_reported_and_replaced() {
    let Some(sandboxes) = Sandboxes::new("a_killed_zygote_is_reported_and_replaced") else {
        return;
    };
    let zygote = Zygote::start().unwrap();
    rustix::process::pidfd_send_signal(&zygote, Signal::KILL).unwrap();
    let mut polled = [rustix::event::PollFd::new(
        &zygote,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut polled, None).unwrap();
    let (cgroup, id) = sandboxes.next_cgroup();
    let mut spec = ShellSpec {
        name: "unborn".to_owned(),
        id,
        cgroup: &cgroup,
        root: Root::Empty,
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: Some(&zygote),
    };
    let text = Shell::prepare(&spec).unwrap_err().to_string();
    assert!(
        text.contains("unborn") && text.contains("start another one"),
        "{text}"
    );
    let another = Zygote::start().unwrap();
    spec.zygote = Some(&another);
    assert!(Shell::prepare(&spec).is_ok());
}

// promise: 5.2
#[test]
fn a_dropped_shell_leaves_no_process() {
    let Some(sandboxes) = Sandboxes::new("a_dropped_shell_leaves_no_process") else {
        return;
    };
    let (cgroup, id) = sandboxes.next_cgroup();
    let shell = Shell::prepare(&ShellSpec {
        name: "unused".to_owned(),
        id,
        cgroup: &cgroup,
        root: Root::Empty,
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: None,
    });
    let pid = shell.as_ref().unwrap().pid();
    assert!(cgroup.processes().unwrap().contains(&pid));
    drop(shell);
    assert_eq!(cgroup.processes().unwrap(), BTreeSet::new());
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "not even a zombie"
    );
}

#[test]
fn how_an_instance_ended_is_told() {
    let Some(sandboxes) = Sandboxes::new("how_an_instance_ended_is_told") else {
        return;
    };
    assert_eq!(
        sandboxes.run(&["exit:7"], Setup::default()).1,
        Ended::Exited(7)
    );
    let (_, ended) = sandboxes.run(&["crash"], Setup::default());
    assert!(matches!(ended, Ended::Killed(_)), "{ended}");
    let sandboxed = sandboxes.start(&["burn-until"], Setup::default());
    // As process 1 of its namespace it ignores signals without a handler.
    sandboxed.instance.signal(Signal::TERM).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(sandboxed.instance.try_wait().unwrap(), None);
    sandboxed.instance.kill().unwrap();
    assert_eq!(
        sandboxed.instance.wait().unwrap(),
        Ended::Killed(libc::SIGKILL)
    );
    assert!(matches!(
        sandboxed.instance.signal(Signal::TERM),
        Err(InstanceError::Gone { .. })
    ));
}

#[test]
fn instances_start_while_other_threads_allocate_and_start_too() {
    let test = "instances_start_while_other_threads_allocate_and_start_too";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let zygote = Zygote::start().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // Holds the allocator's locks at most moments that a fork could hit.
                while !done.load(Ordering::Relaxed) {
                    let text: Vec<String> = (0..100).map(|n| format!("{n:>200}")).collect();
                    std::hint::black_box(text);
                }
            });
        }
        let starters: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for round in 0..20 {
                        let zygote = (round % 2 == 0).then_some(&zygote);
                        let setup = Setup {
                            zygote,
                            ..Setup::default()
                        };
                        let (report, ended) = sandboxes.run(&["pid"], setup);
                        assert_eq!(report.value("pid"), 1);
                        assert_eq!(ended, Ended::Exited(0));
                    }
                })
            })
            .collect();
        let results: Vec<_> = starters.into_iter().map(|starter| starter.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
}

/// Tries to launch, in a new shell with this root, and returns the error's text. No process may be left.
fn launch_error(sandboxes: &Sandboxes, root: Root, launch: &Launch<'_>) -> String {
    let (cgroup, id) = sandboxes.next_cgroup();
    let shell = Shell::prepare(&ShellSpec {
        name: "failing".to_owned(),
        id,
        cgroup: &cgroup,
        root,
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: None,
    });
    let error: SpawnError = shell
        .expect("a shell")
        .launch(launch)
        .expect_err("it must fail");
    assert_eq!(
        cgroup.processes().expect("a list"),
        BTreeSet::new(),
        "{error}"
    );
    error.to_string()
}

// promise: 5.3
#[test]
fn an_impossible_launch_says_why_and_leaves_nothing() {
    let test = "an_impossible_launch_says_why_and_leaves_nothing";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let hostile = sandboxes.hostile();
    let filter = sandboxes.filter(false);
    let root = || Root::for_linkage(hostile.linkage());
    let fails = |launch: Launch<'_>, part: &str| {
        let text = launch_error(&sandboxes, root(), &launch);
        assert!(
            text.contains(part) && text.contains("failing"),
            "{text:?} lacks {part:?}"
        );
    };
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = |number| InheritedFd {
        fd: null.as_fd(),
        number,
    };
    let plain = || Launch::new(hostile, &filter);

    fails(
        Launch {
            fds: vec![fd(5), fd(5)],
            ..plain()
        },
        "number 5 twice",
    );
    fails(
        Launch {
            fds: vec![fd(512)],
            ..plain()
        },
        "512",
    );
    fails(
        Launch {
            fds: vec![fd(-1)],
            ..plain()
        },
        "-1",
    );
    fails(
        Launch {
            fds: (0..250).map(fd).collect(),
            ..plain()
        },
        "250 descriptors",
    );
    fails(
        Launch {
            argv: Vec::new(),
            ..plain()
        },
        "argv",
    );
    fails(
        Launch {
            argv: vec![CString::default(); 2000],
            ..plain()
        },
        "2000 arguments",
    );
    let long = CString::new(vec![b'x'; 70_000]).unwrap();
    fails(
        Launch {
            env: vec![long],
            ..plain()
        },
        "70",
    );
    let mut few = plain();
    few.limits.descriptors = 2;
    fails(few, "limit of 2 descriptors");
    if let Linkage::Dynamic { interpreter } = hostile.linkage() {
        let text = launch_error(&sandboxes, Root::Empty, &plain());
        assert!(text.contains(&interpreter.display().to_string()), "{text}");
    }
}

// promise: 5.3
#[test]
fn a_damaged_program_says_why_and_leaves_nothing() {
    let Some(sandboxes) = Sandboxes::new("a_damaged_program_says_why_and_leaves_nothing") else {
        return;
    };
    let path = std::env::temp_dir().join(format!("nfluid-test-damaged-{}", std::process::id()));
    // The head of a program, and nothing behind: it passes for one until the kernel loads it.
    let bytes = std::fs::read(sandboxes.hostile().origin()).unwrap();
    std::fs::write(&path, &bytes[..4096]).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let damaged = Program::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let filter = Policy::new(damaged.linkage(), LEVEL).compile().unwrap();
    let root = Root::for_linkage(damaged.linkage());
    let (cgroup, id) = sandboxes.next_cgroup();
    let spec = ShellSpec {
        name: "damaged".to_owned(),
        id,
        cgroup: &cgroup,
        root,
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: None,
    };
    match Shell::prepare(&spec)
        .unwrap()
        .launch(&Launch::new(&damaged, &filter))
    {
        // The kernel may find out before the point of no return, or kill the process after it.
        Err(error) => assert!(error.to_string().contains("execute"), "{error}"),
        Ok(spawned) => assert!(matches!(spawned.instance.wait().unwrap(), Ended::Killed(_))),
    }
    assert_eq!(cgroup.processes().unwrap(), BTreeSet::new());
}

// promise: 5.3
#[test]
fn a_start_without_memory_or_tasks_says_so() {
    let Some(sandboxes) = Sandboxes::new("a_start_without_memory_or_tasks_says_so") else {
        return;
    };
    let (cgroup, id) = sandboxes.next_cgroup();
    let spec = || ShellSpec {
        name: "starved".to_owned(),
        id,
        cgroup: &cgroup,
        root: Root::Empty,
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: None,
    };
    if cgroup.set_pids(0).is_ok() {
        match Shell::prepare(&spec()) {
            Err(error) => assert!(error.to_string().contains("pids.max"), "{error}"),
            // v1 counts a task when it forks, and this one forks before it enters.
            Ok(shell) => drop(shell),
        }
        cgroup.set_pids(10).unwrap();
    }
    if cgroup.set_memory(4096).is_ok() {
        let started = Shell::prepare(&spec());
        let text = started
            .expect_err("no process fits into a page")
            .to_string();
        assert!(text.contains("starved"), "{text}");
    }
    assert_eq!(cgroup.processes().unwrap(), BTreeSet::new());
}

// promise: 5.4
#[test]
fn a_program_in_c_with_shared_libraries_runs() {
    let Some(sandboxes) = Sandboxes::new("a_program_in_c_with_shared_libraries_runs") else {
        return;
    };
    // Any program of the distribution that needs libraries will do; in a minimal guest there may be none.
    let candidates = ["/usr/bin/true", "/usr/sbin/ip", "/usr/bin/env"].map(std::path::Path::new);
    let is_dynamic = |program: &Program| matches!(program.linkage(), Linkage::Dynamic { .. });
    let mut programs = candidates
        .into_iter()
        .filter_map(|path| Program::open(path).ok());
    let Some(program) = programs.find(is_dynamic) else {
        let reason = "no dynamically linked program of the distribution is here";
        nfluid_tests::harness::skip::skip("a_program_in_c_with_shared_libraries_runs", reason);
        return;
    };
    let filter = Policy::new(program.linkage(), LEVEL).compile().unwrap();
    let (cgroup, id) = sandboxes.next_cgroup();
    let spec = ShellSpec {
        name: "in-c".to_owned(),
        id,
        cgroup: &cgroup,
        root: Root::for_linkage(program.linkage()),
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: None,
    };
    let launch = Launch {
        argv: vec![
            CString::new("program").unwrap(),
            CString::new("--version").unwrap(),
        ],
        ..Launch::new(&program, &filter)
    };
    let spawned = nfluid_sandbox::spawn(&spec, &launch).unwrap_or_else(|error| panic!("{error}"));
    let ended = spawned.instance.wait().unwrap();
    assert!(
        matches!(ended, Ended::Exited(status) if status != 127),
        "{ended}"
    );
}
