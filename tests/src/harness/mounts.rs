//! Mounts of a test's own, in a mount namespace of its own.

use super::command::must;
use super::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this process has a mount namespace of its own, as a test needs that mounts. If it has none, the test is run
/// in one, and there is nothing left to do here.
///
/// # Panics
/// If the test fails there.
pub fn has_own_mounts(test: &str) -> bool {
    const MARK: &str = "NFLUID_TEST_OWN_MOUNTS";
    if std::env::var_os(MARK).is_some() || !rustix::process::geteuid().is_root() {
        return true;
    }
    let own = std::env::current_exe().expect("/proc is mounted");
    let run = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(own)
        .args([test, "--exact", "--nocapture"])
        .env(MARK, "1")
        .output()
        .expect("unshare is installed");
    // Indented: who counts tests by their output counts this one once.
    for line in String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).lines() {
        match line.split_once(&format!("SKIPPED {test}: ")) {
            Some((_, reason)) => skip(test, reason),
            None => eprintln!("  | {line}"),
        }
    }
    assert!(run.status.success(), "it failed in its own mount namespace");
    false
}

/// A file system of the test's own over a directory, until it is dropped.
#[derive(Debug)]
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts an empty one in memory.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn tmpfs(place: &Path, options: &str) -> Self {
        must(&format!(
            "mount -t tmpfs -o {options} nfluid-test {}",
            place.display()
        ));
        Mount(place.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
