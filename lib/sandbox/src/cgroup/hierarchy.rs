//! Which cgroup file systems this host mounts, and which of them serves which controller.

use super::{CgroupError, control_file};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// A controller, which limits or counts a resource, by the kernel's own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// CPU weight and cap.
    Cpu,
    /// CPU time used (v1 only; v2 counts it always).
    CpuAcct,
    /// Stopping and resuming (v1 only; v2 does it always).
    Freezer,
    /// Memory limit.
    Memory,
    /// Number of processes and threads.
    Pids,
}

impl Controller {
    /// Controllers that limit something, and that v2 knows by these names.
    pub const LIMITS: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];
    const ALL: [Self; 5] = [
        Self::Cpu,
        Self::CpuAcct,
        Self::Freezer,
        Self::Memory,
        Self::Pids,
    ];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuAcct => "cpuacct",
            Self::Freezer => "freezer",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Arrangement of a host's cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The unified hierarchy serves every controller that there is.
    Unified,
    /// A unified hierarchy without (some of the) controllers, and v1 for the rest.
    Hybrid,
    /// The old hierarchies alone.
    Legacy,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unified => "v2",
            Self::Hybrid => "hybrid (v2 and v1)",
            Self::Legacy => "v1",
        })
    }
}

/// The cgroup file systems of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The mount point of v2.
    pub(super) v2: Option<PathBuf>,
    /// The controllers that the root of v2 offers.
    pub(super) v2_controllers: BTreeSet<Controller>,
    /// The mount point that serves a controller by v1.
    pub(super) v1: BTreeMap<Controller, PathBuf>,
}

impl Hierarchy {
    /// Looks at `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`] if there is no cgroup file system at all.
    pub fn detect() -> Result<Self, CgroupError> {
        let mounts = control_file::read(Path::new("/proc/self/mountinfo"))?;
        let mut hierarchy = Self::from_mountinfo(&mounts);
        if let Some(v2) = &hierarchy.v2 {
            let offered = control_file::read(&v2.join("cgroup.controllers"))?;
            hierarchy.v2_controllers = parse_controllers(&offered, ' ');
        }
        if hierarchy.v2.is_none() && hierarchy.v1.is_empty() {
            return Err(CgroupError::NotMounted);
        }
        Ok(hierarchy)
    }

    /// The mount points in the text of a mountinfo file (proc_pid_mountinfo(5)); the first mount of each kind counts.
    fn from_mountinfo(text: &str) -> Self {
        let mut found = Self {
            v2: None,
            v2_controllers: BTreeSet::new(),
            v1: BTreeMap::new(),
        };
        for line in text.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(mount_point) = left.split(' ').nth(4) else {
                continue;
            };
            let mut right = right.split(' ');
            let (kind, _source, options) = (right.next(), right.next(), right.next());
            match kind {
                Some("cgroup2") if found.v2.is_none() => found.v2 = Some(unescape(mount_point)),
                Some("cgroup") => {
                    for controller in parse_controllers(options.unwrap_or_default(), ',') {
                        found
                            .v1
                            .entry(controller)
                            .or_insert_with(|| unescape(mount_point));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the arrangement of the host's cgroups.
    pub fn layout(&self) -> Layout {
        match (&self.v2, self.v1.is_empty()) {
            (Some(_), true) => Layout::Unified,
            (Some(_), false) => Layout::Hybrid,
            (None, _) => Layout::Legacy,
        }
    }

    /// Returns the mount point of v2: network programs (cgroup/setsockopt) attach to directories below it.
    pub fn v2_root(&self) -> Option<&Path> {
        self.v2.as_deref()
    }

    /// Returns true if groups need a directory in the v1 hierarchy at `mount` for this controller. Where there is v2,
    /// v2 counts CPU time and stops processes by itself, and a directory less for each group is kernel memory less. A
    /// directory that is there for a limit serves all controllers of its hierarchy.
    pub(super) fn is_needed(&self, controller: Controller, mount: &Path) -> bool {
        let limits = |at: &Path| {
            let mut limits = Controller::LIMITS.iter();
            limits.any(|limit| self.v1.get(limit).is_some_and(|mount| mount == at))
        };
        self.v2.is_none() || Controller::LIMITS.contains(&controller) || limits(mount)
    }

    /// Returns true if any hierarchy offers the controller.
    pub fn has(&self, controller: Controller) -> bool {
        self.v2_controllers.contains(&controller) || self.v1.contains_key(&controller)
    }

    /// The limiting controllers that this host lacks.
    pub fn missing(&self) -> Vec<Controller> {
        let absent = |controller: &Controller| !self.has(*controller);
        Controller::LIMITS.into_iter().filter(absent).collect()
    }
}

fn parse_controllers(text: &str, separator: char) -> BTreeSet<Controller> {
    let names: BTreeSet<&str> = text.trim().split(separator).collect();
    let named = |controller: &Controller| names.contains(controller.name());
    Controller::ALL.into_iter().filter(named).collect()
}

/// Undoes the octal escapes (`\040` for a space) of mountinfo.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)))
            .map(|digits| digits.iter().fold(0u32, |n, d| n * 8 + u32::from(d - b'0')))
            .and_then(|n| u8::try_from(n).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = "\
23 1 0:22 / /sys rw - sysfs sysfs rw
31 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory
34 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
35 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
36 31 0:32 / /mnt/other rw - cgroup cgroup rw,memory
";

    // promise: 4.4
    #[test]
    fn hybrid_hosts_are_understood() {
        let host = Hierarchy::from_mountinfo(HYBRID);
        assert_eq!(host.layout(), Layout::Hybrid);
        assert_eq!(host.v2_root(), Some(Path::new("/sys/fs/cgroup/unified")));
        let cpu = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(host.v1.get(&Controller::Cpu), Some(&cpu));
        assert_eq!(host.v1.get(&Controller::CpuAcct), Some(&cpu));
        let memory = PathBuf::from("/sys/fs/cgroup/memory");
        assert_eq!(host.v1.get(&Controller::Memory), Some(&memory));
        assert_eq!(host.missing(), [Controller::Pids]);
        // The controller comes with a limit.
        assert!(host.is_needed(Controller::CpuAcct, &cpu));
    }

    #[test]
    fn what_v2_does_itself_takes_no_other_directory() {
        let apart = "\
32 31 0:28 / /c/cpu rw - cgroup cgroup rw,cpu
33 31 0:29 / /c/cpuacct rw - cgroup cgroup rw,cpuacct
34 31 0:30 / /c/freezer rw - cgroup cgroup rw,freezer
";
        let v2 = "35 31 0:31 / /c/unified rw - cgroup2 cgroup2 rw\n";
        let needed = |text: &str| {
            let host = Hierarchy::from_mountinfo(text);
            let v1 = host.v1.iter();
            v1.filter(|(controller, mount)| host.is_needed(**controller, mount))
                .count()
        };
        assert_eq!(needed(apart), 3);
        assert_eq!(needed(&format!("{apart}{v2}")), 1);
    }

    #[test]
    fn unified_and_legacy_hosts_are_understood() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(Hierarchy::from_mountinfo(unified).layout(), Layout::Unified);
        let legacy = "33 31 0:29 / /cg\\040x rw - cgroup none rw,pids\n";
        let legacy = Hierarchy::from_mountinfo(legacy);
        assert_eq!(legacy.layout(), Layout::Legacy);
        assert_eq!(
            legacy.v1.get(&Controller::Pids),
            Some(&PathBuf::from("/cg x"))
        );
    }

    #[test]
    fn controllers_are_compared_as_whole_words() {
        let offered = parse_controllers("cpuset io memory hugetlb pids\n", ' ');
        assert_eq!(
            offered,
            BTreeSet::from([Controller::Memory, Controller::Pids])
        );
    }

    proptest! {
        #[test]
        fn any_mountinfo_is_survived(text in "(?s).{0,400}") {
            Hierarchy::from_mountinfo(&text);
            unescape(&text);
        }
    }
}
