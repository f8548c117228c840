//! The promise: an instance of the `process` tier reaches only the objects that it was handed. Each barrier has a
//! test from inside, with a control that shows that the attempt would have worked.
//!
//! Where the system call filter already refuses, the attempt is made once more without it: the barrier behind must hold
//! by itself.

#[path = "security_process_tier/dpdk.rs"]
mod dpdk;
#[path = "security_process_tier/files.rs"]
mod files;
#[path = "security_process_tier/memory.rs"]
mod memory;
#[path = "security_process_tier/netmap.rs"]
mod netmap;
#[path = "security_process_tier/own_stack.rs"]
mod own_stack;
#[path = "security_process_tier/sockets.rs"]
mod sockets;

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
