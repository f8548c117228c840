//! The disk of the desired state, and the memory of the run directory, fill up under the running daemon.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::mounts::{Mount, has_own_mounts};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::program::program;
use nfluid_tests::harness::two_hosts::{BRIDGES as CHAIN, SERVER, two_hosts};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::thread;

/// Writes a file until there is no room left.
fn fill(place: &Path) {
    let mut file = File::create(place).expect("the directory is ours");
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return;
            }
        }
    }
}

// promise: 7.25
#[test]
fn a_disk_that_fills_up_changes_nothing_until_there_is_room() {
    let test = "a_disk_that_fills_up_changes_nothing_until_there_is_room";
    if !has_own_mounts(test) {
        return;
    }
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    let state = platform.directory().join("state");
    let mount = Mount::tmpfs(&state, "size=64k");
    platform.apply(CHAIN);
    eventually("a ping crosses", || platform.pings("client", SERVER));

    let ballast = state.join("ballast");
    fill(&ballast);
    let saved = || fs::read(state.join("state.json")).expect("the state is there");
    let before = (
        saved(),
        platform.pids(),
        platform.ask(&["get", "deployment"]),
    );
    let longer = CHAIN
        .replace(
            "  b: { nf: bridge }",
            "  b: { nf: bridge }\n  c: { nf: bridge }",
        )
        .replace("[a, b]", "[a, b, c]");
    for _ in 0..3 {
        let refused = platform.try_apply(&longer);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for word in ["No space left", "state.json", "nothing was changed"] {
            assert!(refused.stderr.contains(word), "{word}: {refused:?}");
        }
        let deleted = platform.nfluid(&["delete", "--all"]);
        assert_eq!(deleted.code, Some(1), "{deleted:?}");
        let now = (
            saved(),
            platform.pids(),
            platform.ask(&["get", "deployment"]),
        );
        assert_eq!(now, before);
        assert!(platform.reaches("client", SERVER), "it forwards still");
    }
    // Operations without need for disk space work: a deployment in force is applied, and the daemon can be replaced.
    assert_eq!(platform.apply(CHAIN), [""; 0]);
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.pids(), before.1);
    eventually("a ping crosses", || platform.pings("client", SERVER));

    fs::remove_file(&ballast).expect("it is ours");
    let changes = platform.apply(&longer);
    assert!(
        changes.contains(&"created instance c".to_owned()),
        "{changes:?}"
    );
    eventually("a ping crosses three", || platform.pings("client", SERVER));
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.apply(&longer), [""; 0], "it was saved");
    assert_eq!(platform.pids().len(), 3);
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    drop(mount);
}

/// Catches: no total of the logs; a total, but nothing kept for records; a script of a function that takes what is
/// kept.
// promise: 7.25
#[test]
fn logs_leave_room_for_records_so_that_a_killed_nf_comes_back() {
    let test = "logs_leave_room_for_records_so_that_a_killed_nf_comes_back";
    if !has_own_mounts(test) {
        return;
    }
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.terminate_daemon();
    let run = platform.run_dir();
    let mount = Mount::tmpfs(&run, "size=4m,mode=700");
    platform.start();
    let hostile = program("nfluid-test-hostile").display().to_string();
    let loud: String = (0..4)
        .map(|n| format!("  loud{n}: {{ program: {hostile}, args: ['flood:1'], ports: [in] }}\n"))
        .collect();
    let deployment = CHAIN.replace("instances:\n", &format!("instances:\n{loud}"));
    platform.apply(&deployment);
    eventually("a ping crosses", || platform.pings("client", SERVER));
    let said = || {
        let files = fs::read_dir(platform.directory())
            .expect("it is ours")
            .flatten();
        let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log-"));
        let texts = logs.filter_map(|file| fs::read_to_string(file.path()).ok());
        let count = |text: String| text.matches("logs of instances have no more room").count();
        texts.map(count).sum::<usize>()
    };
    eventually("the logs reach their bound", || said() > 0);
    let kept = || {
        let found = rustix::fs::statvfs(&run).expect("it is there");
        found.f_bavail * found.f_frsize >= 1 << 20
    };
    for _ in 0..3 {
        let before = platform.pids()["a"];
        signal(before, Signal::KILL);
        eventually("it is there again", || {
            let a = platform.instance("a");
            a["state"] == "running" && a["pid"] != before
        });
        assert!(kept(), "a fourth is kept for records");
    }
    eventually("a ping crosses", || platform.pings("client", SERVER));
    // A function's script is the user's as well.
    let script = platform.directory().join("function");
    let text = format!("#!/bin/sh\nexit 0\n{}", "#".repeat(3 << 20));
    fs::write(&script, text).expect("the directory is ours");
    let refused = platform.nfluid(&["run-function", script.to_str().expect("text")]);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("no room"), "{refused:?}");
    assert!(kept());
    // Catches: room that is looked for, and taken a moment later: each of these fits, no two do.
    let found = rustix::fs::statvfs(&run).expect("it is there");
    let room = (found.f_bavail * found.f_frsize - (1 << 20)) as usize;
    let text = format!("#!/bin/sh\nsleep 1\n{}", "#".repeat(room * 6 / 10));
    fs::write(&script, text).expect("the directory is ours");
    let line = ["run-function", script.to_str().expect("text")];
    let are_kept = thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| platform.nfluid(&line)))
            .collect();
        let mut are_kept = true;
        while !all.iter().all(|one| one.is_finished()) {
            are_kept &= kept();
        }
        are_kept
    });
    assert!(are_kept, "a fourth is kept for records");
    assert_eq!(said(), 1, "one warning");
    let deleted = platform.nfluid(&["delete", "--all"]);
    assert!(deleted.succeeded(), "{deleted:?}");
    platform.terminate_daemon();
    // The zygotes end a moment later.
    must(&format!("umount --lazy {}", run.display()));
    std::mem::forget(mount);
}
