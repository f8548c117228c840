//! Access rights of the API's socket, and the error for users without them.

use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::program::program;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An unprivileged user of the host, and a group without rights.
const STRANGER: u32 = 54_321;

/// The group's number, as the host has it.
fn group(name: &str) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").expect("it is there");
    let line = groups
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// `nfluid` as it is installed: for every user.
fn installed(platform: &Platform) -> PathBuf {
    let path = platform.directory().join("nfluid");
    nfluid_testbed::program::copy(&program("nfluid"), &path).expect("the directory is ours");
    path
}

fn run_as(platform: &Platform, nfluid: &Path, gid: u32, arguments: &[&str]) -> Output {
    let mut command = Command::new(nfluid);
    command
        .arg("--socket")
        .arg(platform.socket())
        .args(arguments);
    // Other groups of this process are left behind with its user.
    command.uid(STRANGER).gid(gid).current_dir("/");
    command.output().expect("every user may run it")
}

/// Returns the paths below that every user may write.
fn writable_by_all(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let metadata = entry.metadata().expect("it is there");
        if !metadata.is_symlink() && metadata.permissions().mode() & 0o002 != 0 {
            found.push(entry.path());
        }
        if metadata.is_dir() {
            found.extend(writable_by_all(&entry.path()));
        }
    }
    found
}

// promise: 8.9
#[test]
fn the_socket_is_of_root_and_its_group_and_others_are_told_so() {
    let Some(platform) =
        Platform::new("the_socket_is_of_root_and_its_group_and_others_are_told_so")
    else {
        return;
    };
    platform.apply("version: 1\ninstances: { a: { nf: bridge } }\n");
    let socket = fs::metadata(platform.socket()).expect("the socket is there");
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o7777, 0o660);
    assert_eq!(socket.uid(), 0);
    assert_eq!(socket.gid(), group("nfluid").unwrap_or(0));

    let nfluid = installed(&platform);
    let before = platform.pids();
    for arguments in [
        &["get", "instances"][..],
        &["delete", "--all"],
        &["restart", "a"],
        &["events"],
        &["top"],
    ] {
        let refused = run_as(&platform, &nfluid, STRANGER, arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{arguments:?}: {said}");
        let socket = platform.socket();
        for word in [
            socket.to_str().expect("text"),
            "not permitted",
            "help:",
            "usermod -aG nfluid",
        ] {
            assert!(said.contains(word), "{arguments:?}: no '{word}' in {said}");
        }
        assert_eq!(refused.stdout, b"", "{arguments:?}");
    }
    assert_eq!(platform.pids(), before);

    // The same user with the socket's group may.
    let member = run_as(&platform, &nfluid, socket.gid(), &["get", "instances"]);
    assert!(member.status.success(), "{member:?}");
    assert!(String::from_utf8_lossy(&member.stdout).contains("bridge"));

    assert_eq!(writable_by_all(&platform.run_dir()), Vec::<PathBuf>::new());
    let state = platform.directory().join("state");
    assert_eq!(writable_by_all(&state), Vec::<PathBuf>::new());
}
