//! The promise: an instance of the `process` tier reaches only the objects that it was handed. Each barrier has a
//! test from inside, with a control that shows that the attempt would have worked.
//!
//! Where the system call filter already refuses, the attempt is made once more without it: the barrier behind must hold
//! by itself.

use nfluid_sandbox::{EmptyNetNs, Ended, Linkage, NetNs, Sealed, Zygote};
use nfluid_tests::harness::attempt::Answer::{self, Done, Fatal, Refused};
use nfluid_tests::harness::sandboxed::{LEVEL, Sandboxes, Setup};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const KILLED_BY_FILTER: Ended = Ended::Killed(libc::SIGSYS);

/// Makes an attempt in the full sandbox and checks that the filter kills the process for it.
fn assert_kills(sandboxes: &Sandboxes, attempt: &str) {
    let (report, ended) = sandboxes.run(&[attempt], Setup::default());
    assert_eq!(report.of(attempt), Fatal, "{attempt}");
    assert_eq!(ended, KILLED_BY_FILTER, "{attempt}");
}

/// Makes attempts in the full sandbox and checks that each is refused with this error, and the process lives on.
fn assert_refused(sandboxes: &Sandboxes, attempts: &[&str], errno: i32) {
    let (report, ended) = sandboxes.run(attempts, Setup::default());
    for attempt in attempts {
        assert_eq!(report.of(attempt), Refused(errno), "{attempt}");
    }
    assert_eq!(ended, Ended::Exited(0));
}

fn without_filter(sandboxes: &Sandboxes, attempt: &str) -> Answer {
    sandboxes
        .run(&[attempt], Setup::without_filter())
        .0
        .of(attempt)
}

fn sealed() -> Sealed {
    Sealed::create().expect("root can make namespaces")
}

// promise: 3.1
#[test]
fn another_instances_memory_cannot_be_read() {
    let Some(sandboxes) = Sandboxes::new("another_instances_memory_cannot_be_read") else {
        return;
    };
    let (_keep, end) = std::io::pipe()
        .map(|(reader, writer)| (writer, reader))
        .unwrap();
    let fds = [(end.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let mut victim = sandboxes.start(&["secret", "wait-for-end:4"], setup);
    let (_, address) = victim.reports().next_answer().unwrap();
    let Done(address) = address else {
        panic!("{address:?}")
    };
    let (pid, id) = (victim.instance.pid(), victim.id);
    let read = format!("read-memory:{pid}:{address}");
    let trace = format!("trace:{pid}");
    let open = format!("open:/proc/{pid}/mem");
    let attempts = [read.as_str(), trace.as_str(), open.as_str()];

    assert_kills(&sandboxes, &read);
    assert_kills(&sandboxes, &trace);
    assert_eq!(without_filter(&sandboxes, &read), Refused(libc::ESRCH));
    assert_eq!(without_filter(&sandboxes, &trace), Refused(libc::ESRCH));
    assert_eq!(without_filter(&sandboxes, &open), Refused(libc::ENOENT));

    // Not the numbers alone: seen from the host's own pid namespace, an instance's user may still not.
    let other = sandboxes.next_cgroup().1;
    let report = sandboxes.outside_as(&attempts[..2], other.raw());
    assert_eq!(report.of(&read), Refused(libc::EPERM));
    assert_eq!(report.of(&trace), Refused(libc::EPERM));
    // Nor may a process on the host with the same user number: the victim is of another user namespace.
    let report = sandboxes.outside_as(&attempts, id.raw());
    assert_eq!(report.of(&read), Refused(libc::EPERM));
    assert!(matches!(report.of(&open), Refused(_)));

    let control = sandboxes.outside(&attempts);
    assert_eq!(control.value(&read), 1, "root reads the secret");
    assert!(matches!(control.of(&open), Done(_)));
    assert!(matches!(control.of(&trace), Done(_)));
}

// promise: 3.4
#[test]
fn the_hosts_files_cannot_be_opened() {
    let Some(sandboxes) = Sandboxes::new("the_hosts_files_cannot_be_opened") else {
        return;
    };
    let files = [
        "open:/etc/passwd",
        "open:/proc/self/mem",
        "open:/dev/null",
        "open:/sys/kernel",
        "open:/../../etc/passwd",
    ];
    // A dynamically linked program may open what is there; nothing is.
    let errno = match sandboxes.hostile().linkage() {
        Linkage::Static => libc::EPERM,
        Linkage::Dynamic { .. } => libc::ENOENT,
    };
    assert_refused(&sandboxes, &files, errno);
    let sealed = sealed();
    for namespaces in [None, Some(&sealed)] {
        let setup = Setup {
            namespaces,
            landlock: namespaces.is_none(),
            ..Setup::without_filter()
        };
        let attempts: Vec<&str> = files.iter().copied().chain(["list-root"]).collect();
        let (report, _) = sandboxes.run(&attempts, setup);
        for file in files {
            assert_eq!(report.of(file), Refused(libc::ENOENT), "{file}");
        }
        let entries = report.of("list-root");
        match sandboxes.hostile().linkage() {
            Linkage::Static => assert!(
                matches!(entries, Done(0) | Refused(libc::EACCES)),
                "{entries:?}"
            ),
            Linkage::Dynamic { .. } => assert!(
                matches!(entries, Done(1..=5) | Refused(libc::EACCES)),
                "{entries:?}"
            ),
        }
    }
    let control = sandboxes.outside(&files);
    assert!(
        files.iter().all(|file| matches!(control.of(file), Done(_))),
        "{control:?}"
    );
}

// promise: 3.4, 3.16
#[test]
fn nothing_can_be_written() {
    let Some(sandboxes) = Sandboxes::new("nothing_can_be_written") else {
        return;
    };
    let place = std::env::temp_dir().join(format!("nfluid-test-{}", std::process::id()));
    let file = place.display();
    let attempts = [
        "create:/x".to_owned(),
        "create:/usr/lib/x".to_owned(),
        format!("create:{file}"),
        "mkdir:/x".to_owned(),
    ];
    let attempts: Vec<&str> = attempts.iter().map(String::as_str).collect();
    assert_refused(&sandboxes, &attempts, libc::EPERM);
    // Without the filter, Landlock; without both, the read-only root.
    let sealed = sealed();
    for (landlock, namespaces) in [(true, None), (false, None), (false, Some(&sealed))] {
        let setup = Setup {
            landlock,
            namespaces,
            ..Setup::without_filter()
        };
        let (report, _) = sandboxes.run(&attempts, setup);
        for attempt in &attempts {
            let answer = report.of(attempt);
            let expected = [libc::EROFS, libc::EACCES, libc::ENOENT, libc::EPERM].map(Refused);
            assert!(
                expected.contains(&answer),
                "landlock {landlock}: {attempt}: {answer:?}"
            );
        }
    }
    let control = sandboxes.outside(&[&format!("create:{file}")]);
    assert!(matches!(control.0[0].1, Done(_)));
    std::fs::remove_file(&place).unwrap();
}

// promise: 3.5
#[test]
fn no_socket_of_any_kind_can_be_made() {
    let Some(sandboxes) = Sandboxes::new("no_socket_of_any_kind_can_be_made") else {
        return;
    };
    // inet, inet6, unix, netlink, packet, vsock; stream, datagram, raw.
    let kinds = [
        "socket:2:1",
        "socket:2:2",
        "socket:2:3:1",
        "socket:10:1",
        "socket:1:1",
        "socket:16:3",
        "socket:17:3",
    ];
    assert_refused(&sandboxes, &kinds, libc::EPERM);
    // Without the filter they can, but raw ones not, and no host is reachable: the namespace is empty.
    for raw in ["socket:2:3:1", "socket:17:3"] {
        assert_eq!(
            without_filter(&sandboxes, raw),
            Refused(libc::EPERM),
            "{raw}"
        );
    }
    let control = sandboxes.outside(&kinds[..6]);
    assert!(
        kinds[..6]
            .iter()
            .all(|kind| matches!(control.of(kind), Done(_))),
        "{control:?}"
    );
}

// promise: 3.5
#[test]
fn the_hosts_network_is_out_of_reach() {
    let Some(sandboxes) = Sandboxes::new("the_hosts_network_is_out_of_reach") else {
        return;
    };
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("connect-tcp:4:{port}");
    // An instance that makes a socket by itself, were the filter not there, is alone in its namespace.
    let own = ["socket:2:1", connect.as_str()];
    let (report, _) = sandboxes.run(&own, Setup::without_filter());
    assert_eq!(report.of("socket:2:1"), Done(4));
    assert!(matches!(report.of(&connect), Refused(_)));

    // Even with an unconnected socket of the host's network, handed over by mistake.
    let leaked = || rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let socket = leaked();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    assert_eq!(
        sandboxes.run(&[&connect], setup).0.of(&connect),
        Refused(libc::EPERM)
    );
    let sandboxed = sandboxes.start(
        &[&connect],
        Setup {
            filter: false,
            ..setup
        },
    );
    let abi = sandboxed.barriers.landlock_abi.unwrap_or(0);
    let (report, _) = sandboxed.finish();
    if abi >= 4 {
        assert_eq!(
            report.of(&connect),
            Refused(libc::EACCES),
            "Landlock refuses TCP"
        );
    }
    // The control: this socket, without the barriers, does reach the host.
    let socket = leaked();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        filter: false,
        landlock: false,
        fds: &fds,
        ..Setup::default()
    };
    assert_eq!(sandboxes.run(&[&connect], setup).0.of(&connect), Done(0));
}

// promise: 3.5
#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let Some(sandboxes) = Sandboxes::new("abstract_sockets_of_the_host_are_out_of_reach") else {
        return;
    };
    let name = format!("nfluid-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let host = UnixDatagram::bind_addr(&address).unwrap();
    let connect = format!("connect-abstract:{name}");
    assert_refused(&sandboxes, &[&connect], libc::EPERM);
    assert_eq!(
        without_filter(&sandboxes, &connect),
        Refused(libc::ECONNREFUSED)
    );

    // A datagram socket of the host's namespace, handed over by mistake: the filter allows no address to send to.
    let socket: OwnedFd = UnixDatagram::unbound().unwrap().into();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let send = format!("send-abstract:4:{name}");
    assert_eq!(
        sandboxes.run(&[&send], setup).0.of(&send),
        Refused(libc::EPERM)
    );
    let sandboxed = sandboxes.start(
        &[&send],
        Setup {
            filter: false,
            ..setup
        },
    );
    let abi = sandboxed.barriers.landlock_abi.unwrap_or(0);
    let (report, _) = sandboxed.finish();
    if abi >= 6 {
        assert_eq!(
            report.of(&send),
            Refused(libc::EPERM),
            "Landlock refuses abstract sockets"
        );
    }
    let open = Setup {
        filter: false,
        landlock: false,
        ..setup
    };
    assert_eq!(
        sandboxes.run(&[&send], open).0.of(&send),
        Done(1),
        "the control"
    );
    assert_eq!(
        sandboxes.outside(&[&connect]).of(&connect),
        Done(0),
        "the control"
    );
    drop(host);
}

// promise: 3.5
#[test]
fn a_shared_network_namespace_is_still_empty_and_still_shut() {
    let test = "a_shared_network_namespace_is_still_empty_and_still_shut";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let shared = EmptyNetNs::create().unwrap();
    let setup = Setup {
        net: NetNs::Shared(shared.as_fd()),
        ..Setup::default()
    };
    let sandboxed = sandboxes.start(&["socket:1:1", "pid"], setup);
    assert!(!sandboxed.barriers.own_network);
    let (report, ended) = sandboxed.finish();
    assert_eq!(report.of("socket:1:1"), Refused(libc::EPERM));
    assert_eq!(ended, Ended::Exited(0));
    // The file belongs to the host's user namespace: no way to become privileged in it.
    let open = Setup {
        filter: false,
        ..setup
    };
    let (report, _) = sandboxes.run(&["socket:17:3"], open);
    assert_eq!(report.of("socket:17:3"), Refused(libc::EPERM));
}

// promise: 3.6
#[test]
fn other_processes_cannot_be_signalled_or_seen() {
    let Some(sandboxes) = Sandboxes::new("other_processes_cannot_be_signalled_or_seen") else {
        return;
    };
    let mut target = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let signal = format!("signal:{}:9", target.id());
    assert_refused(&sandboxes, &[&signal, "signal:-1:9"], libc::EPERM);
    let alone = ["pid", "count-processes", signal.as_str(), "signal:-1:9"];
    let (report, ended) = sandboxes.run(&alone, Setup::without_filter());
    assert_eq!(report.value("pid"), 1);
    assert_eq!(report.value("count-processes"), 1, "itself alone");
    assert_eq!(report.of(&signal), Refused(libc::ESRCH));
    assert_eq!(report.of("signal:-1:9"), Refused(libc::ESRCH));
    assert_eq!(ended, Ended::Exited(0));
    // Seen from the host's own pid namespace, an instance's user may still not.
    let user = sandboxes.next_cgroup().1;
    assert_eq!(
        sandboxes.outside_as(&[&signal], user.raw()).of(&signal),
        Refused(libc::EPERM)
    );
    assert_eq!(target.try_wait().unwrap(), None, "it lives");

    let control = sandboxes.outside(&["count-processes", &signal]);
    assert!(control.value("count-processes") > 1);
    assert_eq!(control.of(&signal), Done(0));
    target.wait().unwrap();
}

// promise: 3.6
#[test]
fn instances_do_not_share_a_user() {
    let Some(sandboxes) = Sandboxes::new("instances_do_not_share_a_user") else {
        return;
    };
    let (keep, end) = std::io::pipe()
        .map(|(reader, writer)| (writer, reader))
        .unwrap();
    let fds = [(end.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let sandboxed: Vec<_> = (0..3)
        .map(|_| sandboxes.start(&["uid", "wait-for-end:4"], setup))
        .collect();
    let mut users = std::collections::BTreeSet::new();
    for sandboxed in &sandboxed {
        let status = std::fs::read_to_string(format!("/proc/{}/status", sandboxed.instance.pid()));
        let status = status.unwrap();
        let user = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:\t"))
            .unwrap()
            .to_owned();
        let all: Vec<&str> = user.split('\t').collect();
        assert!(
            all.iter().all(|one| *one == sandboxed.id.raw().to_string()),
            "{user}"
        );
        users.insert(user);
    }
    assert_eq!(users.len(), 3);
    drop((keep, end));
    for sandboxed in sandboxed {
        let (report, _) = sandboxed.finish();
        assert_eq!(report.value("uid"), i64::from(nfluid_sandbox::INSIDE_ID));
    }
}

// promise: 3.7
#[test]
fn no_privilege_is_left_and_none_can_be_gained() {
    let Some(sandboxes) = Sandboxes::new("no_privilege_is_left_and_none_can_be_gained") else {
        return;
    };
    assert_refused(
        &sandboxes,
        &["become-root", "raise-capability", "set-host-name"],
        libc::EPERM,
    );
    let state = [
        "capabilities",
        "bounding",
        "no-new-privileges",
        "become-root",
        "raise-capability",
        "set-host-name",
    ];
    let (report, _) = sandboxes.run(&state, Setup::without_filter());
    assert_eq!(report.value("capabilities"), 0);
    assert_eq!(report.value("bounding"), 0);
    assert_eq!(report.value("no-new-privileges"), 1);
    assert_eq!(
        report.of("become-root"),
        Refused(libc::EINVAL),
        "there is no user 0 inside"
    );
    assert_eq!(report.of("raise-capability"), Refused(libc::EPERM));
    assert_eq!(report.of("set-host-name"), Refused(libc::EPERM));
    let control = sandboxes.outside(&[
        "capabilities",
        "bounding",
        "no-new-privileges",
        "become-root",
    ]);
    assert_ne!(control.value("capabilities"), 0);
    assert_ne!(control.value("bounding"), 0);
    assert_eq!(control.value("no-new-privileges"), 0);
    assert_eq!(control.of("become-root"), Done(0));
}

// promise: 3.7
#[test]
fn no_namespace_can_be_made() {
    let Some(sandboxes) = Sandboxes::new("no_namespace_can_be_made") else {
        return;
    };
    let user = format!("unshare:{}", libc::CLONE_NEWUSER);
    let net = format!("unshare:{}", libc::CLONE_NEWNET);
    let clone = format!("clone:{}", libc::CLONE_NEWUSER);
    assert_kills(&sandboxes, &user);
    assert_kills(&sandboxes, &net);
    assert_refused(&sandboxes, &[&clone, "clone:0"], libc::EPERM);
    assert_eq!(without_filter(&sandboxes, &net), Refused(libc::EPERM));
    let setup = Setup {
        processes: true,
        ..Setup::default()
    };
    let (report, _) = sandboxes.run(&[&clone, "clone:0"], setup);
    assert_eq!(
        report.of(&clone),
        Refused(libc::EPERM),
        "also where forking is allowed"
    );
    assert!(matches!(report.of("clone:0"), Done(_)));
    let control = sandboxes.outside(&[&clone, &user, &net]);
    assert!(matches!(control.of(&clone), Done(_)));
    assert_eq!((control.of(&user), control.of(&net)), (Done(0), Done(0)));
}

// promise: 3.7, 3.16
#[test]
fn the_file_system_tree_cannot_be_changed() {
    let Some(sandboxes) = Sandboxes::new("the_file_system_tree_cannot_be_changed") else {
        return;
    };
    let sealed = sealed();
    for attempt in ["mount:/", "unmount", "chroot"] {
        assert_kills(&sandboxes, attempt);
        for namespaces in [None, Some(&sealed)] {
            let setup = Setup {
                namespaces,
                ..Setup::without_filter()
            };
            let answer = sandboxes.run(&[attempt], setup).0.of(attempt);
            assert!(
                matches!(answer, Refused(libc::EPERM)),
                "{attempt}: {answer:?}"
            );
        }
    }
    // The control in a mount namespace of its own, so that the host's is left alone.
    let alone = format!("unshare:{}", libc::CLONE_NEWNS);
    let place = std::env::temp_dir();
    let mount = format!("mount:{}", place.display());
    let control = sandboxes.outside(&[&alone, "private-mounts", &mount, "chroot"]);
    assert_eq!(
        (control.of(&mount), control.of("chroot")),
        (Done(0), Done(0))
    );
}

// promise: 3.8
#[test]
fn the_kernels_programmable_parts_are_shut() {
    let Some(sandboxes) = Sandboxes::new("the_kernels_programmable_parts_are_shut") else {
        return;
    };
    for attempt in ["bpf", "keyctl", "userfaultfd", "kernel-log"] {
        assert_kills(&sandboxes, attempt);
    }
    assert_refused(&sandboxes, &["io-uring", "perf", "memfd"], libc::EPERM);
    assert_eq!(without_filter(&sandboxes, "bpf"), Refused(libc::EPERM));
    let unprivileged = without_filter(&sandboxes, "perf");
    assert!(matches!(unprivileged, Refused(_)), "{unprivileged:?}");
    let control = sandboxes.outside(&["bpf", "keyctl", "memfd", "kernel-log"]);
    assert!(
        control
            .0
            .iter()
            .all(|(_, answer)| matches!(answer, Done(_))),
        "{control:?}"
    );
}

// promise: 3.8
#[test]
fn io_uring_opens_no_back_door() {
    let Some(sandboxes) = Sandboxes::new("io_uring_opens_no_back_door") else {
        return;
    };
    assert_refused(&sandboxes, &["io-uring"], libc::EPERM);
    let control = sandboxes.outside(&["io-uring"]).of("io-uring");
    // A kernel can be without it, or have it switched off (sysctl kernel.io_uring_disabled).
    assert!(
        matches!(control, Done(_) | Refused(libc::ENOSYS | libc::EPERM)),
        "{control:?}"
    );
}

// promise: 3.8
#[test]
fn another_architectures_system_calls_are_fatal() {
    let Some(sandboxes) = Sandboxes::new("another_architectures_system_calls_are_fatal") else {
        return;
    };
    let control = sandboxes.outside(&["thirty-two-bit"]).of("thirty-two-bit");
    if control == Fatal || matches!(control, Refused(_)) {
        // This kernel has no 32-bit entry (CONFIG_IA32_EMULATION): there is nothing to close.
        let (_, ended) = sandboxes.run(&["thirty-two-bit"], Setup::default());
        assert_ne!(ended, Ended::Exited(0));
        return;
    }
    assert_kills(&sandboxes, "thirty-two-bit");
}

// promise: 3.9
#[test]
fn memory_is_never_writable_and_executable() {
    let Some(sandboxes) = Sandboxes::new("memory_is_never_writable_and_executable") else {
        return;
    };
    assert_refused(&sandboxes, &["writable-code"], libc::EPERM);
    assert!(
        matches!(without_filter(&sandboxes, "writable-code"), Done(_)),
        "the control"
    );
}

/// A file in memory, and memory that a BPF program shares with an instance, as a port's is.
fn shared_memories() -> (OwnedFd, libbpf_rs::MapHandle) {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("shared", flags).expect("memory");
    rustix::fs::ftruncate(&file, 4096).expect("memory");
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let kind = libbpf_rs::MapType::Array;
    let map = libbpf_rs::MapHandle::create(kind, Some("nfl_test"), 4, 8, 512, &options);
    (file, map.expect("root makes maps"))
}

// Catches: a filter that tests the protection of mmap alone. Before 6.16 the kernel itself maps a BPF map executable.
// promise: 3.9
#[test]
fn memory_that_is_shared_is_never_executable() {
    let Some(sandboxes) = Sandboxes::new("memory_that_is_shared_is_never_executable") else {
        return;
    };
    let (file, map) = shared_memories();
    let fds = [(file.as_fd(), 4), (map.as_fd(), 5)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let attempts = ["shared-code:4", "shared-code:5"];
    let (report, ended) = sandboxes.run(&attempts, setup);
    for attempt in attempts {
        assert_eq!(report.of(attempt), Refused(libc::EPERM), "{attempt}");
    }
    assert_eq!(ended, Ended::Exited(0));
    let open = Setup {
        filter: false,
        ..setup
    };
    let (report, _) = sandboxes.run(&attempts, open);
    assert_eq!(report.of(attempts[0]), Done(0), "the control");
    println!(
        "without the filter, a BPF map: {:?}",
        report.of(attempts[1])
    );
}

// Catches: execveat is allowed with AT_EMPTY_PATH alone; the set-up leaves its page behind; a page can be mapped at 0.
// promise: 3.9
#[test]
fn a_path_is_executed_by_no_other_call_either() {
    let Some(sandboxes) = Sandboxes::new("a_path_is_executed_by_no_other_call_either") else {
        return;
    };
    let loader = match sandboxes.hostile().linkage() {
        Linkage::Dynamic { interpreter } => interpreter.display().to_string(),
        Linkage::Static => "/bin/sh".to_owned(),
    };
    let other = format!("execute-at:{loader}");
    assert_refused(&sandboxes, &[&other, "map-zero"], libc::EPERM);
    let answer = without_filter(&sandboxes, "map-zero");
    assert_eq!(answer, Refused(libc::EPERM), "the barrier behind");
    let control = sandboxes.outside(&["map-zero"]);
    assert_eq!(control.of("map-zero"), Done(0), "root may");
    let control = sandboxes.outside(&[&other]);
    assert_eq!(control.of(&other), Fatal, "another program took its place");
}

// promise: 3.9
#[test]
fn nothing_else_can_be_executed() {
    let Some(sandboxes) = Sandboxes::new("nothing_else_can_be_executed") else {
        return;
    };
    let shell = ["execute:/bin/sh", "execute:/usr/bin/env"];
    assert_refused(&sandboxes, &shell, libc::EPERM);
    for attempt in shell {
        let answer = without_filter(&sandboxes, attempt);
        assert!(
            matches!(answer, Refused(libc::ENOENT | libc::EACCES)),
            "{attempt}: {answer:?}"
        );
    }
    let control = sandboxes.outside(&["execute:/bin/sh"]);
    assert_eq!(
        control.of("execute:/bin/sh"),
        Fatal,
        "another program took its place"
    );
}

// promise: 3.10, 3.19
#[test]
fn the_hyperio_call_is_the_only_socket_option() {
    let Some(sandboxes) = Sandboxes::new("the_hyperio_call_is_the_only_socket_option") else {
        return;
    };
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let fds = [(socket.as_fd(), 4)];
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let hyperio = format!("setsockopt:4:{LEVEL}:1");
    let buffer = format!("setsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_SNDBUF);
    let kind = format!("getsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_TYPE);
    let peer = format!("getsockopt:4:{}:{}", libc::SOL_SOCKET, libc::SO_PEERSEC);
    let (report, _) = sandboxes.run(&[&hyperio, &buffer, &kind, &peer], setup);
    assert_eq!(report.of(&kind), Done(0), "what a socket is can be asked");
    assert_eq!(report.of(&peer), Refused(libc::EPERM));
    // Without the platform's program on it, the kernel knows no such level.
    let answer = report.of(&hyperio);
    assert!(
        matches!(answer, Refused(libc::ENOPROTOOPT | libc::EOPNOTSUPP)),
        "{answer:?}"
    );
    assert_eq!(report.of(&buffer), Refused(libc::EPERM));
    let before = sockopt::socket_send_buffer_size(&socket).unwrap();
    let open = Setup {
        filter: false,
        ..setup
    };
    assert_eq!(
        sandboxes.run(&[&buffer], open).0.of(&buffer),
        Done(0),
        "the control"
    );
    assert_ne!(sockopt::socket_send_buffer_size(&socket).unwrap(), before);
}

// promise: 3.11
#[test]
fn only_listed_descriptors_are_inherited() {
    let Some(sandboxes) = Sandboxes::new("only_listed_descriptors_are_inherited") else {
        return;
    };
    // Descriptors that would leak into any ordinary child: not close-on-exec, at several numbers.
    let leaks: Vec<OwnedFd> = (0..20)
        .map(|_| {
            rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap()
        })
        .collect();
    let (reader, writer) = std::io::pipe().unwrap();
    let fds = [(writer.as_fd(), 7), (reader.as_fd(), 300)];
    // Made while the leaks are open: its children would inherit them.
    let zygote = Zygote::start().unwrap();
    let numbers = [0, 1, 2, 3, 7, 300].map(|number| format!("descriptor-open:{number}"));
    let mut attempts: Vec<&str> = numbers.iter().map(String::as_str).collect();
    attempts.extend(["list-descriptors", "write:7"]);
    for zygote in [None, Some(&zygote)] {
        let fds = &fds;
        let setup = Setup {
            fds,
            zygote,
            ..Setup::default()
        };
        let (report, _) = sandboxes.run(&attempts, setup);
        for number in &numbers {
            assert!(matches!(report.of(number), Done(_)), "{number}");
        }
        assert_eq!(
            report.value("list-descriptors"),
            6,
            "the streams, the report, and the two"
        );
        assert_eq!(report.value("write:7"), 1);
        let mut byte = [0];
        std::io::Read::read_exact(&mut &reader, &mut byte).unwrap();
    }
    let control = sandboxes.outside(&["list-descriptors"]);
    assert!(
        control.value("list-descriptors") >= 20,
        "the control: they leak"
    );
    drop(leaks);
}

#[test]
fn an_inherited_descriptor_can_take_any_number() {
    let Some(sandboxes) = Sandboxes::new("an_inherited_descriptor_can_take_any_number") else {
        return;
    };
    // The set-up itself uses descriptors; whatever numbers these have, the asked ones win.
    let pipes: Vec<_> = (0..40).map(|_| std::io::pipe().unwrap()).collect();
    let fds: Vec<_> = pipes
        .iter()
        .zip(4..)
        .map(|((_, writer), number)| (writer.as_fd(), number))
        .collect();
    let writes: Vec<String> = (4..44).map(|number| format!("write:{number}")).collect();
    let attempts: Vec<&str> = writes.iter().map(String::as_str).collect();
    let setup = Setup {
        fds: &fds,
        ..Setup::default()
    };
    let (report, _) = sandboxes.run(&attempts, setup);
    for ((reader, _), attempt) in pipes.iter().zip(&attempts) {
        assert_eq!(report.value(attempt), 1);
        let mut byte = [0];
        std::io::Read::read_exact(&mut &*reader, &mut byte).unwrap();
    }
}

#[test]
fn a_sealed_program_is_undumpable() {
    let Some(sandboxes) = Sandboxes::new("a_sealed_program_is_undumpable") else {
        return;
    };
    let sealed = Setup {
        sealed: true,
        ..Setup::default()
    };
    assert_ne!(sandboxes.run(&["dumpable"], sealed).0.value("dumpable"), 1);
    assert_eq!(
        sandboxes
            .run(&["dumpable"], Setup::default())
            .0
            .value("dumpable"),
        1,
        "the control"
    );
}

// promise: 3.16
#[test]
fn the_host_name_and_shared_memory_are_its_own() {
    let Some(sandboxes) = Sandboxes::new("the_host_name_and_shared_memory_are_its_own") else {
        return;
    };
    let (report, _) = sandboxes.run(&["host-name:hostile"], Setup::default());
    assert_eq!(report.value("host-name:hostile"), 1);
    assert_eq!(
        sandboxes
            .outside(&["host-name:hostile"])
            .value("host-name:hostile"),
        0
    );

    // A segment of the host that everyone may use.
    let key = 0x6e66_0000 | (std::process::id() & 0xffff);
    let make = format!("shared-memory:{key}:{}", libc::IPC_CREAT);
    let find = format!("shared-memory:{key}:0");
    let remove = format!("remove-shared-memory:{key}:0");
    assert!(matches!(sandboxes.outside(&[&make]).of(&make), Done(_)));
    assert_refused(&sandboxes, &[&find], libc::EPERM);
    let behind = without_filter(&sandboxes, &find);
    let control = sandboxes.outside(&[&find, &remove]);
    assert_eq!(behind, Refused(libc::ENOENT));
    assert!(matches!(control.of(&find), Done(_)), "the control");
    assert_eq!(control.of(&remove), Done(0));
}

// promise: 3.16
#[test]
fn nothing_can_be_made_in_a_sealed_ipc_namespace() {
    let Some(sandboxes) = Sandboxes::new("nothing_can_be_made_in_a_sealed_ipc_namespace") else {
        return;
    };
    let sealed = sealed();
    let setup = Setup {
        namespaces: Some(&sealed),
        ..Setup::default()
    };
    let key = 0x6e67_0000 | (std::process::id() & 0xffff);
    let flags = libc::IPC_CREAT;
    let [memory, queue, semaphores] = ["shared-memory", "message-queue", "semaphores"]
        .map(|kind| format!("{kind}:{key}:{flags}"));
    let posix = format!("posix-queue:nfluid-test-{}", std::process::id());
    let attempts = [&memory, &queue, &semaphores, &posix].map(String::as_str);

    let sandboxed = sandboxes.start(&attempts, setup);
    assert!(!sandboxed.barriers.own_ipc && !sandboxed.barriers.own_mounts);
    let (report, ended) = sandboxed.finish();
    for attempt in attempts {
        assert_eq!(report.of(attempt), Refused(libc::EPERM), "{attempt}");
    }
    assert_eq!(ended, Ended::Exited(0));

    // Behind the filter there is no room for any object, whichever instance asks. Two instances have no object to
    // meet by.
    let open = Setup {
        filter: false,
        landlock: false,
        ..setup
    };
    let (report, _) = sandboxes.run(&attempts, open);
    for attempt in attempts {
        assert_eq!(report.of(attempt), Refused(libc::ENOSPC), "{attempt}");
    }
    // The control: in a namespace of its own, each is made.
    let own = Setup {
        namespaces: None,
        ..open
    };
    let (report, _) = sandboxes.run(&attempts, own);
    for attempt in attempts {
        assert!(matches!(report.of(attempt), Done(_)), "{attempt}");
    }
}
