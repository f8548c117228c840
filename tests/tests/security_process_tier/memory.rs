//! Memory: an instance reads no memory of another, and executes its program alone.

use super::*;

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
