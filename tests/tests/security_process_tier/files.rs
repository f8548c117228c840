//! Files: an instance opens and writes no file of the host, and inherits the listed descriptors alone.

use super::*;

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
    // A dynamically linked program may open existing files; none exist.
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
