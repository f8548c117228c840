//! The state on disk.

use super::BASE;
use super::support::deployment;
use nfluid_control::state::{FileStore, Store};

#[test]
fn the_state_outlives_the_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    let first = deployment(BASE);
    let mut store = FileStore::new(&path);
    assert!(store.load().expect("nothing there").is_none());
    store.stage(&first).expect("room");
    assert!(store.load().expect("staged is not committed").is_none());
    store.commit().expect("commits");
    assert_eq!(
        FileStore::new(&path).load().expect("reads"),
        Some(first.clone())
    );
    store.stage(&Default::default()).expect("room");
    store.discard();
    assert_eq!(store.load().expect("reads"), Some(first));
    let files = std::fs::read_dir(directory.path()).expect("lists").count();
    assert_eq!(files, 1, "nothing is left beside it");
}

// promise: 6.7
#[test]
fn a_damaged_state_is_named_and_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    for text in [
        "",
        "{\"version\": 1",
        "{\"version\": 9}",
        "{\"version\":1,\"x\":{}}",
        "\u{0}",
    ] {
        std::fs::write(&path, text).expect("writes");
        let error = FileStore::new(&path).load().expect_err("damaged");
        assert!(
            error.to_string().contains("is not a saved state"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_store_that_cannot_be_written_says_so_and_keeps_the_old_state() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    let mut store = FileStore::new(&path);
    store.stage(&deployment(BASE)).expect("room");
    store.commit().expect("commits");
    // No user, not even root, can write into a directory as if it were a file.
    std::fs::create_dir(directory.path().join("state.json.new")).expect("makes it");
    let error = store.stage(&Default::default()).expect_err("cannot write");
    assert!(error.to_string().contains("cannot write"), "{error}");
    assert_eq!(store.load().expect("reads"), Some(deployment(BASE)));
}

/// A device that is always full.
#[test]
fn a_full_disk_is_recognised() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.json");
    std::os::unix::fs::symlink("/dev/full", directory.path().join("state.json.new"))
        .expect("links");
    let error = FileStore::new(&path)
        .stage(&deployment(BASE))
        .expect_err("full");
    assert!(error.is_disk_full(), "{error}");
}
