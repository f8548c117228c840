//! The features that this host offers to instances and to the switch, for `doctor`: each feature with its status and
//! a remedy.

use crate::cgroup::{CgroupError, Controller, Hierarchy, Layout};
use crate::error::Errno;
use crate::landlock_rules::{LandlockSupport, landlock_support};
use rustix::process::{WaitId, WaitIdOptions};
use rustix::thread::CapabilitySet;
use std::os::fd::AsFd;
use std::path::Path;

/// Usability of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// In full.
    Available,
    /// In part; instances run with one barrier less, or slower.
    Degraded,
    /// Not at all, and nfluid cannot start instances without it.
    Missing,
}

/// A feature that was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The name of the feature.
    pub name: &'static str,
    /// The usability of the feature.
    pub status: Status,
    /// The finding.
    pub detail: String,
    /// The remedy; empty if nothing is wrong.
    pub remedy: String,
}

/// Capabilities without which root lacks root's rights.
const CAPABILITIES: [(CapabilitySet, &str); 5] = [
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
];
/// The file system in which BPF objects outlive the daemon.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";
/// File system magic of bpffs (linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Looks at everything that [`crate::spawn`] and the switch build on. Changes nothing on the host.
pub fn probe() -> Vec<Feature> {
    let mut features = vec![
        root_user(),
        bpf_calls(),
        bpf_file_system(),
        user_namespaces(),
        namespaces(),
        seccomp(),
        landlock(),
        crate::capacity::room_for_instances(),
        crate::machines::virtual_machines(),
        crate::machines::emulator(),
        crate::image::container_images(),
        crate::dpdk::programs_on_dpdk(),
    ];
    features.extend(cgroups());
    features
}

impl Feature {
    pub(crate) fn available(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Available, detail, "")
    }

    pub(crate) fn new(
        name: &'static str,
        status: Status,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            status,
            detail: detail.into(),
            remedy: remedy.into(),
        }
    }
}

fn root_user() -> Feature {
    let name = "privileges";
    if !rustix::process::geteuid().is_root() {
        let remedy = "run nfluidd as root: it makes namespaces, cgroups and eBPF programs";
        return Feature::new(name, Status::Missing, "not root", remedy);
    }
    // The slice of this thread; the kernel always reports it.
    let own =
        rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |all| all.effective);
    let absent = CAPABILITIES.iter().filter(|(one, _)| !own.contains(*one));
    let absent: Vec<&str> = absent.map(|(_, word)| *word).collect();
    if absent.is_empty() {
        return Feature::available(name, "root");
    }
    Feature::new(
        name,
        Status::Missing,
        format!("root without {}", absent.join(", ")),
        "run nfluidd with all of root's capabilities; in a container, as a privileged one",
    )
}

fn bpf_calls() -> Feature {
    let name = "eBPF";
    let errno = match crate::sys::try_bpf_map() {
        Ok(()) => return Feature::available(name, "maps can be made"),
        Err(errno) => errno,
    };
    let remedy = match errno {
        Errno::NOSYS => {
            "the kernel needs CONFIG_BPF_SYSCALL; a container's system call filter may hide it"
        }
        Errno::PERM | Errno::ACCESS => {
            "run as root with CAP_SYS_ADMIN (or CAP_BPF); a container's system call filter may forbid it"
        }
        _ => "the kernel needs memory for a BPF map: see its log and 'ulimit -l'",
    };
    Feature::new(name, Status::Missing, format!("no map: {errno}"), remedy)
}

fn bpf_file_system() -> Feature {
    let name = "BPF file system";
    match rustix::fs::statfs(BPF_FILE_SYSTEM) {
        Ok(found) if found.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC => {
            Feature::available(name, format!("at {BPF_FILE_SYSTEM}"))
        }
        Ok(_) => Feature::available(name, format!("nfluidd mounts it at {BPF_FILE_SYSTEM}")),
        Err(errno) => Feature::new(
            name,
            Status::Missing,
            format!("{BPF_FILE_SYSTEM}: {errno}"),
            "the kernel needs CONFIG_BPF_SYSCALL, and /sys must be mounted: mount -t sysfs none /sys; or give nfluidd \
             another place by --bpf-dir",
        ),
    }
}

/// Makes a user namespace in a process of its own, which is the only way to know: there are four different switches.
fn user_namespaces() -> Feature {
    let name = "user namespaces";
    let limit = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    let limit = limit.trim();
    match try_user_namespace() {
        Ok(()) => Feature::available(name, format!("user.max_user_namespaces is {limit}")),
        Err(errno) => Feature::new(
            name,
            Status::Missing,
            format!("{errno}; user.max_user_namespaces is {limit}"),
            crate::shell::Step::UserNamespace.remedy(errno),
        ),
    }
}

fn try_user_namespace() -> Result<(), Errno> {
    let blocked = crate::sys::SignalsBlocked::new();
    // SAFETY: the child makes one system call and exits.
    match unsafe { crate::sys::fork(crate::sys::Kind::Child, None) }? {
        crate::sys::Fork::Child => {
            let flags = rustix::thread::UnshareFlags::NEWUSER;
            // SAFETY: the flags leave the descriptor table alone.
            let made = unsafe { rustix::thread::unshare_unsafe(flags) };
            crate::sys::exit_now(made.err().map_or(0, Errno::raw_os_error))
        }
        crate::sys::Fork::Parent { pidfd, .. } => {
            drop(blocked);
            let status = loop {
                let id = WaitId::PidFd(pidfd.as_fd());
                match rustix::process::waitid(id, WaitIdOptions::EXITED) {
                    Err(Errno::INTR) => {}
                    other => break other?,
                }
            };
            match status.and_then(|status| status.exit_status()) {
                Some(0) => Ok(()),
                Some(errno) => Err(Errno::from_raw_os_error(errno)),
                None => Err(Errno::IO),
            }
        }
    }
}

fn namespaces() -> Feature {
    let name = "mount, pid, network, ipc, uts and cgroup namespaces";
    let kinds = ["mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let absent = |kind: &&str| !Path::new("/proc/self/ns").join(kind).exists();
    let missing: Vec<&str> = kinds.into_iter().filter(absent).collect();
    if missing.is_empty() {
        return Feature::available(name, "all present");
    }
    let remedy = "the kernel needs CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS and CONFIG_CGROUPS; \
                  /proc must be mounted";
    Feature::new(
        name,
        Status::Missing,
        format!("without {}", missing.join(", ")),
        remedy,
    )
}

fn seccomp() -> Feature {
    let name = "system call filters (seccomp)";
    let actions = Path::new("/proc/sys/kernel/seccomp/actions_avail");
    match std::fs::read_to_string(actions) {
        Ok(actions)
            if actions
                .split_whitespace()
                .any(|action| action == "kill_process") =>
        {
            Feature::available(name, "kill_process, errno")
        }
        _ => Feature::new(
            name,
            Status::Missing,
            "no filters",
            "the kernel needs CONFIG_SECCOMP_FILTER",
        ),
    }
}

fn landlock() -> Feature {
    let name = "Landlock";
    let (status, detail, remedy) = match landlock_support() {
        LandlockSupport::NotBuilt => (
            Status::Degraded,
            "not in this kernel".to_owned(),
            "one barrier less; the kernel has it with CONFIG_SECURITY_LANDLOCK",
        ),
        LandlockSupport::NotEnabled => (
            Status::Degraded,
            "switched off at boot".to_owned(),
            "one barrier less; boot with lsm=landlock,... (see /sys/kernel/security/lsm for the present list)",
        ),
        LandlockSupport::Abi(abi @ 6..) => {
            let detail = format!("ABI {abi}: files, TCP, abstract sockets, signals");
            (Status::Available, detail, "")
        }
        LandlockSupport::Abi(abi @ 4..) => {
            let detail = format!("ABI {abi}: files, TCP");
            (
                Status::Available,
                detail,
                "kernel 6.12 adds abstract sockets and signals",
            )
        }
        LandlockSupport::Abi(abi) => {
            let detail = format!("ABI {abi}: files");
            (
                Status::Available,
                detail,
                "kernel 6.7 adds TCP, 6.12 abstract sockets and signals",
            )
        }
    };
    Feature::new(name, status, detail, remedy)
}

fn cgroups() -> Vec<Feature> {
    let name = "cgroups";
    let hierarchy = match Hierarchy::detect() {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            let remedy = "mount -t cgroup2 none /sys/fs/cgroup";
            return vec![Feature::new(
                name,
                Status::Missing,
                error.to_string(),
                remedy,
            )];
        }
    };
    let layout = hierarchy.layout().to_string();
    let mut features = vec![match (hierarchy.layout(), hierarchy.v2_root()) {
        (Layout::Legacy, _) | (_, None) => Feature::new(
            name,
            Status::Missing,
            layout,
            "network programs attach to v2 only: mount -t cgroup2 none /sys/fs/cgroup/unified",
        ),
        (_, Some(root)) => Feature::available(name, format!("{layout}, v2 at {}", root.display())),
    }];
    features
        .extend(Controller::LIMITS.map(|controller| controller_feature(&hierarchy, controller)));
    features
}

fn controller_feature(hierarchy: &Hierarchy, controller: Controller) -> Feature {
    let name = match controller {
        Controller::Cpu => "cgroup controller cpu (shares and caps)",
        Controller::Memory => "cgroup controller memory (limits)",
        _ => "cgroup controller pids (number of tasks)",
    };
    if hierarchy.has(controller) {
        return Feature::available(name, "present");
    }
    let error = CgroupError::MissingController {
        controller,
        where_: "this host".to_owned(),
    };
    Feature::new(name, Status::Degraded, "absent", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 8.7
    #[test]
    fn what_is_not_available_has_a_remedy() {
        let features = probe();
        assert!(features.len() >= 11);
        for feature in features {
            assert!(!feature.detail.is_empty(), "{feature:?}");
            let fine = feature.status == Status::Available;
            assert!(fine || !feature.remedy.is_empty(), "{feature:?}");
        }
    }
}
