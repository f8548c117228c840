//! The disk of the desired state fills up under the running daemon.

use nfluid_tests::harness::mounts::{Mount, has_own_mounts};
use nfluid_tests::harness::platform::eventually;
use nfluid_tests::harness::two_hosts::{BRIDGES as CHAIN, SERVER, two_hosts};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

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
    // What needs no room works: what is in force is applied, and the daemon can be replaced.
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
