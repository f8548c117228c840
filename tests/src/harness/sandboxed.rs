//! Instances of the `process` tier for tests: a program in the sandbox with a pipe for its report, in cgroups that are
//! removed with everything inside when the test ends, also by a failure.

use super::attempt::{Report, Reports};
use super::{program::program, skip};
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot};
use nfluid_sandbox::seccomp::{Filter, Policy};
use nfluid_sandbox::{
    Barriers, Capabilities, Ended, InheritedFd, Instance, KernelId, KernelIdRange, Launch, Limits,
    NetNs, Network, Program, Root, Sealed, Shell, ShellSpec, Shown, View, Zygote,
};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The setsockopt level that the tests' filters allow.
pub const LEVEL: u32 = 0x4e46;
/// The descriptor of the hostile program's report.
const REPORT_FD: RawFd = 3;

/// A platform of one test: its own cgroups and user numbers.
#[derive(Debug)]
pub struct Sandboxes {
    root: Option<CgroupRoot>,
    hostile: Program,
    ids: KernelIdRange,
    next: AtomicU32,
}

/// Differences from an ordinary instance.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// True: with the system call filter.
    pub filter: bool,
    /// True: with Landlock.
    pub landlock: bool,
    /// True: the filter allows fork.
    pub processes: bool,
    /// The network namespace: its own, or a shared one.
    pub net: NetNs<'a>,
    /// Sealed mount and IPC namespaces; `None`: its own.
    pub namespaces: Option<&'a Sealed>,
    /// Further descriptors, at numbers above 3.
    pub fds: &'a [(BorrowedFd<'a>, RawFd)],
    /// CPUs to which the instance is pinned.
    pub cpus: Option<&'a [usize]>,
    /// Limits per process.
    pub limits: Limits,
    /// True: starts a sealed copy of the program instead of the file.
    pub sealed: bool,
    /// On a network stack of its own, with these capabilities; `None`: as other instances.
    pub own_stack: Option<Capabilities>,
    /// True: as programs on DPDK.
    pub dpdk: bool,
    /// Folders of the host that it sees beside the libraries.
    pub views: &'a [View],
    /// Forks from this process instead of from the test itself.
    pub zygote: Option<&'a Zygote>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            filter: true,
            landlock: true,
            processes: false,
            net: NetNs::Own,
            namespaces: None,
            fds: &[],
            cpus: None,
            limits: Limits::default(),
            sealed: false,
            own_stack: None,
            dpdk: false,
            views: &[],
            zygote: None,
        }
    }
}

impl Setup<'_> {
    /// Without the system call filter, to test the other barriers.
    pub fn without_filter() -> Self {
        Self {
            filter: false,
            ..Self::default()
        }
    }
}

/// A running instance in its cgroup with its report. Killed when dropped.
#[derive(Debug)]
pub struct Sandboxed {
    /// The instance.
    pub instance: Instance,
    /// The barriers of the instance's sandbox.
    pub barriers: Barriers,
    /// Its cgroup.
    pub cgroup: Cgroup,
    /// Its user number.
    pub id: KernelId,
    reports: Option<Reports>,
}

impl Sandboxed {
    /// Returns the instance's reports.
    ///
    /// # Panics
    /// If [`Sandboxed::finish`] took the reports.
    pub fn reports(&mut self) -> &mut Reports {
        self.reports
            .as_mut()
            .expect("reports are taken once, at the end")
    }

    /// Waits for the instance's end.
    pub fn finish(mut self) -> (Report, Ended) {
        let reports = self.reports.take().map(Reports::rest);
        let ended = self.instance.wait().expect("the instance is our child");
        (reports.expect("reports are taken once"), ended)
    }
}

impl Drop for Sandboxed {
    fn drop(&mut self) {
        if let Err(error) = self.instance.kill() {
            eprintln!("{error}");
        }
    }
}

impl Sandboxes {
    /// Makes a platform; reports the reason and returns `None` where the test cannot run.
    ///
    /// # Panics
    /// If the host has no cgroups.
    pub fn new(test: &str) -> Option<Self> {
        if !skip::is_root(test) {
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let root = CgroupRoot::new(&format!("nfluid-test-{process}-{number}"));
        // Tests of several processes run in parallel: 64 user numbers for each of 32 platforms of a process.
        let first = 1_000_000_000 + (process % 500_000) * 2048 + (number % 32) * 64;
        let path = program("nfluid-test-hostile");
        Some(Self {
            root: Some(root.expect("cgroups")),
            hostile: Program::open(&path).expect("the hostile program is built"),
            ids: KernelIdRange::new(first, 64).expect("a legal range"),
            next: AtomicU32::new(0),
        })
    }

    /// The cgroups.
    ///
    /// # Panics
    /// Never: the cgroups exist until the end.
    pub fn cgroups(&self) -> &CgroupRoot {
        self.root.as_ref().expect("removed on drop only")
    }

    /// The program that tries to break out.
    pub fn hostile(&self) -> &Program {
        &self.hostile
    }

    /// Returns a cgroup and a user number that are not in use.
    ///
    /// # Panics
    /// After 64 calls.
    pub fn next_cgroup(&self) -> (Cgroup, KernelId) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let cgroup = self.cgroups().create(&format!("instance-{number}"));
        (
            cgroup.expect("a cgroup"),
            self.ids.get(number).expect("at most 64 instances"),
        )
    }

    /// Compiles a filter for the hostile program.
    ///
    /// # Panics
    /// If the filter cannot be compiled.
    pub fn filter(&self, processes: bool) -> Filter {
        self.filter_of(&Setup {
            processes,
            ..Setup::default()
        })
    }

    fn filter_of(&self, setup: &Setup<'_>) -> Filter {
        let policy = Policy::new(self.hostile.linkage(), LEVEL);
        let policy = match setup {
            Setup {
                own_stack: Some(_), ..
            } => policy.with_own_network(),
            Setup { dpdk: true, .. } => policy.with_dpdk(),
            Setup {
                processes: true, ..
            } => policy.with_processes(),
            _ => policy,
        };
        policy.compile().expect("the tables compile")
    }

    /// Starts the hostile program with these attempts.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn start(&self, attempts: &[&str], setup: Setup<'_>) -> Sandboxed {
        let (cgroup, id) = self.next_cgroup();
        self.start_in(attempts, setup, cgroup, id)
    }

    /// As [`Sandboxes::start`], in a cgroup whose limits the test has set.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn start_in(
        &self,
        attempts: &[&str],
        setup: Setup<'_>,
        cgroup: Cgroup,
        id: KernelId,
    ) -> Sandboxed {
        let shell = Shell::prepare(&ShellSpec {
            name: "hostile".to_owned(),
            id,
            cgroup: &cgroup,
            root: match setup.own_stack {
                Some(_) => Root::Libraries(Shown {
                    devices: &["null", "zero"],
                    scratch: &["/tmp", "/run"],
                    ..Shown::default()
                }),
                None if setup.dpdk => Root::for_dpdk(None),
                None if !setup.views.is_empty() => Root::Libraries(Shown {
                    extra: setup.views.to_vec(),
                    ..Shown::default()
                }),
                None => Root::for_linkage(self.hostile.linkage()),
            },
            net: setup.net,
            capabilities: setup.own_stack.unwrap_or_default(),
            sealed: setup.namespaces,
            cpus: setup.cpus.map(<[usize]>::to_vec),
            zygote: setup.zygote,
        });
        let shell = shell.expect("a shell");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let stderr = std::io::stderr();
        let mut fds = vec![
            inherit(writer.as_fd(), REPORT_FD),
            inherit(stderr.as_fd(), 2),
        ];
        fds.extend(setup.fds.iter().map(|(fd, number)| inherit(*fd, *number)));
        let sealed = setup
            .sealed
            .then(|| self.hostile.sealed_copy().expect("a sealed copy"));
        let filter = self.filter_of(&setup);
        let arguments = ["hostile"].iter().chain(attempts);
        let launch = Launch {
            argv: arguments
                .map(|text| CString::new(*text).expect("no NUL"))
                .collect(),
            fds,
            filter: setup.filter.then_some(&filter),
            landlock: setup.landlock,
            limits: setup.limits,
            network: match setup.own_stack {
                Some(_) => Network::Own,
                None => Network::None,
            },
            ..Launch::new(sealed.as_ref().unwrap_or(&self.hostile), &filter)
        };
        let spawned = shell
            .launch(&launch)
            .unwrap_or_else(|error| panic!("{error}"));
        Sandboxed {
            instance: spawned.instance,
            barriers: spawned.barriers,
            cgroup,
            id,
            reports: Some(Reports::new(reader.into())),
        }
    }

    /// Runs the hostile program with these attempts to its end.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn run(&self, attempts: &[&str], setup: Setup<'_>) -> (Report, Ended) {
        self.start(attempts, setup).finish()
    }

    /// The control run: the same attempts by the same program outside of any sandbox, as root.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn outside(&self, attempts: &[&str]) -> Report {
        self.outside_as(attempts, 0)
    }

    /// As [`Sandboxes::outside`], as another user of the host.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn outside_as(&self, attempts: &[&str], user: u32) -> Report {
        // The shell opens the report's descriptor.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 3>&1"])
            .arg(self.hostile.origin());
        command
            .args(attempts)
            .uid(user)
            .gid(user)
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh runs");
        let output = child.stdout.take().expect("it is piped");
        let report = Reports::new(output.into()).rest();
        child.wait().expect("our child");
        report
    }
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.root.take().map(CgroupRoot::remove) {
            eprintln!("{error}");
        }
    }
}

fn inherit(fd: BorrowedFd<'_>, number: RawFd) -> InheritedFd<'_> {
    InheritedFd { fd, number }
}
