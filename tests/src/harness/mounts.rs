//! Mounts of a test in its own mount namespace.

use super::command::must;
use super::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns true if this process has its own mount namespace, as a test that mounts needs. If not, runs the test in a
/// process with its own mount namespace and returns false: the caller returns.
///
/// # Panics
/// If the test fails in that process.
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
    let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    // A name of another module is no test's.
    assert!(said.contains("running 1 test"), "there is no test '{test}'");
    // Indented, so that programs which count tests by their output count this test once.
    for line in said.lines() {
        match line.split_once(&format!("SKIPPED {test}: ")) {
            Some((_, reason)) => skip(test, reason),
            None => eprintln!("  | {line}"),
        }
    }
    assert!(run.status.success(), "it failed in its own mount namespace");
    false
}

/// A file system mounted over a directory, unmounted when dropped.
#[derive(Debug)]
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts an empty tmpfs.
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

    /// Mounts an empty BPF file system.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn bpf(place: &Path) -> Self {
        must(&format!("mount -t bpf nfluid-test {}", place.display()));
        Mount(place.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
