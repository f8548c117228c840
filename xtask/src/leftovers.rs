//! Removes what tests, demos and benchmarks leave when they fail or are killed.
//!
//! Processes: the task is the reaper of its orphans, so that every descendant can be found and killed in any group or
//! session. Network namespaces named `nfl-*` or `nfluid-test*`, cgroups and pinned BPF objects named `nfluid-test*`:
//! those that appeared during the guard's life, except those that a process uses and those whose name contains the id
//! of a live process; another run on the same machine keeps its own. Temporary files: children get the guard's folder
//! as TMPDIR.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use tempfile::TempDir;

const NETNS_DIR: &str = "/run/netns";
const NETNS_PREFIXES: [&str; 2] = ["nfl-", "nfluid-test"];
const PINS_DIR: &str = "/sys/fs/bpf";
/// Prefix of cgroups and of pinned objects.
const CGROUP_PREFIX: &str = "nfluid-test";
/// Depth below a hierarchy's root at which tests make their groups (the root itself, or a container's group).
const CGROUP_DEPTH_MAX: usize = 3;
const CGROUP_TRIES_MAX: usize = 10;
/// Rounds of killing: a process may fork during the search.
const KILL_ROUNDS_MAX: usize = 200;

/// Cleans up when it is dropped.
pub struct Leftovers {
    before: Found,
    temp: TempDir,
}

#[derive(Default)]
struct Found {
    netns: BTreeSet<PathBuf>,
    cgroups: BTreeSet<PathBuf>,
    /// Folders of pinned BPF objects.
    pins: BTreeSet<PathBuf>,
}

impl Leftovers {
    /// Records the present objects and becomes the reaper of orphans.
    ///
    /// # Errors
    /// The kernel refuses, or the disk is full.
    pub fn watch() -> Result<Self> {
        set_child_subreaper(Some(getpid())).context("becoming the reaper of orphans")?;
        let temp = tempfile::Builder::new().prefix("nfluid-").tempdir();
        Ok(Self {
            before: Found::now(),
            temp: temp.context("making a temporary folder")?,
        })
    }

    /// The folder for the children's temporary files.
    pub fn temp_dir(&self) -> &Path {
        self.temp.path()
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        kill_descendants();
        Found::now().remove_unless(&self.before);
    }
}

/// Removes every namespace and cgroup of any run's tests that no process uses.
pub fn sweep() {
    Found::now().remove_unless(&Found::default());
}

impl Found {
    fn now() -> Self {
        Self {
            netns: named_netns(),
            cgroups: test_cgroups(),
            pins: test_pins(),
        }
    }

    fn remove_unless(&self, before: &Self) {
        let busy = namespaces_in_use();
        for path in self.netns.difference(&before.netns) {
            if !maker_lives(path) && !identity(path).is_ok_and(|id| busy.contains(&id)) {
                remove_netns(path);
            }
        }
        for path in self.pins.difference(&before.pins) {
            if !maker_lives(path)
                && let Err(error) = fs::remove_dir_all(path)
            {
                eprintln!("xtask: left {} behind: {error}", path.display());
            }
        }
        for path in self.cgroups.difference(&before.cgroups) {
            if !maker_lives(path)
                && let Err(error) = remove_cgroup(path)
            {
                eprintln!("xtask: left {} behind: {error}", path.display());
            }
        }
    }
}

fn entries(dir: &Path) -> Vec<fs::DirEntry> {
    fs::read_dir(dir)
        .map(|list| list.flatten().collect())
        .unwrap_or_default()
}

fn has_prefix(entry: &fs::DirEntry, prefix: &str) -> bool {
    entry
        .file_name()
        .as_encoded_bytes()
        .starts_with(prefix.as_bytes())
}

/// Returns true if the process whose id is in the name lives. Tests put their process id into the names before any
/// other number. Processes of this run have ended by then: a live one belongs to another run.
fn maker_lives(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let pid = name.split('-').find_map(|part| part.parse::<u32>().ok());
    pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
}

fn named_netns() -> BTreeSet<PathBuf> {
    let entries = entries(Path::new(NETNS_DIR)).into_iter();
    entries
        .filter(|entry| {
            NETNS_PREFIXES
                .iter()
                .any(|prefix| has_prefix(entry, prefix))
        })
        .map(|entry| entry.path())
        .collect()
}

/// A namespace's device and inode: equal through its name and through a thread in the namespace.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|meta| (meta.st_dev(), meta.st_ino()))
}

/// Returns the network namespaces of all threads: a test enters a namespace with a single thread.
fn namespaces_in_use() -> BTreeSet<(u64, u64)> {
    let processes = entries(Path::new("/proc")).into_iter();
    let threads = processes.flat_map(|process| entries(&process.path().join("task")));
    threads
        .filter_map(|thread| identity(&thread.path().join("ns/net")).ok())
        .collect()
}

fn remove_netns(path: &Path) {
    let Some(name) = path.file_name() else { return };
    match Command::new("ip")
        .args(["netns", "delete"])
        .arg(name)
        .status()
    {
        Ok(status) if status.success() => println!("removed network namespace {}", name.display()),
        Ok(_) => {}
        Err(error) => eprintln!("xtask: left {} behind: ip: {error}", path.display()),
    }
}

fn test_pins() -> BTreeSet<PathBuf> {
    let entries = entries(Path::new(PINS_DIR)).into_iter();
    entries
        .filter(|entry| has_prefix(entry, CGROUP_PREFIX))
        .map(|entry| entry.path())
        .collect()
}

/// Returns the test groups in every mounted hierarchy (v1 and v2).
fn test_cgroups() -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = BTreeSet::new();
    for root in mounts.lines().filter_map(cgroup_mount) {
        find_cgroups(&root, CGROUP_DEPTH_MAX, &mut found);
    }
    found
}

/// Returns the mount point in a line of mountinfo (proc(5)) if a cgroup hierarchy is mounted there.
fn cgroup_mount(line: &str) -> Option<PathBuf> {
    let (mount, source) = line.split_once(" - ")?;
    let kind = source.split(' ').next()?;
    matches!(kind, "cgroup" | "cgroup2").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
}

fn find_cgroups(dir: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    for entry in entries(dir) {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if has_prefix(&entry, CGROUP_PREFIX) {
            found.insert(entry.path());
        } else if depth > 1 {
            find_cgroups(&entry.path(), depth - 1, found);
        }
    }
}

/// Removes a group and those below it; the kernel refuses while a process is inside.
fn remove_cgroup(dir: &Path) -> io::Result<()> {
    for entry in entries(dir) {
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    // A task killed a moment ago may not have left its group yet.
    let mut tries = 0..CGROUP_TRIES_MAX;
    loop {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries.next().is_some() => {
                thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn kill_descendants() {
    for _ in 0..KILL_ROUNDS_MAX {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let descendants = descendants(getpid());
        if descendants.is_empty() {
            return;
        }
        for pid in descendants {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
    eprintln!("xtask: processes {:?} do not end", descendants(getpid()));
}

fn descendants(ancestor: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = entries(Path::new("/proc"))
        .iter()
        .filter_map(parent)
        .collect();
    let mut family = vec![ancestor];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        let children = parents.iter().filter(|(_, parent)| *parent == member);
        family.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    family.split_off(1)
}

/// Returns a process and its parent: the fourth field of /proc/PID/stat, after the name, which may contain any
/// character.
fn parent(entry: &fs::DirEntry) -> Option<(Pid, Pid)> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let parent = fields.split(' ').nth(1)?.parse().ok()?;
    Some((Pid::from_raw(pid)?, Pid::from_raw(parent)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let v2 = "35 24 0:30 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw";
        let v1 = "36 24 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct";
        let other = "22 1 0:21 / /proc rw - proc proc rw";
        assert_eq!(cgroup_mount(v2), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroup_mount(v1), Some("/sys/fs/cgroup/cpu".into()));
        assert_eq!(cgroup_mount(other), None);
    }

    #[test]
    fn a_child_is_a_descendant_and_its_namespace_is_in_use() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(descendants(getpid()).contains(&pid));
        let own = identity(Path::new("/proc/self/ns/net")).unwrap();
        assert!(namespaces_in_use().contains(&own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants(getpid()).contains(&pid));
    }

    #[test]
    fn a_name_with_a_living_process_is_kept() {
        let own = format!("/run/netns/nfl-{}-test-m", std::process::id());
        assert!(maker_lives(Path::new(&own)));
        // Above the largest process id that Linux has.
        assert!(!maker_lives(Path::new("/run/netns/nfl-4194305-test-m")));
        assert!(!maker_lives(Path::new("/run/netns/nfl-demo")));
        // Process 1 always lives, and has made no group.
        assert!(!maker_lives(Path::new(
            "/sys/fs/cgroup/nfluid-test-4194305-1"
        )));
    }

    #[test]
    fn groups_are_found_by_name_to_a_bounded_depth() {
        let root = TempDir::new().unwrap();
        for dir in [
            "nfluid-test-a/inner",
            "docker/x/nfluid-test-b",
            "a/b/c/nfluid-test-deep",
            "other",
        ] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let mut found = BTreeSet::new();
        find_cgroups(root.path(), CGROUP_DEPTH_MAX, &mut found);
        let expected = ["docker/x/nfluid-test-b", "nfluid-test-a"].map(|dir| root.path().join(dir));
        assert_eq!(found, BTreeSet::from(expected));
        remove_cgroup(&root.path().join("nfluid-test-a")).unwrap();
        assert!(!root.path().join("nfluid-test-a").exists());
    }
}
