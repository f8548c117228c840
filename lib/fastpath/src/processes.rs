//! Services of the daemon that this crate needs to run the process of a slow path.
//!
//! The daemon owns kernel users, cgroups, logs and sandboxes: instances of other tiers use them too. This crate defines
//! the process and the requests to it.

use nfluid_protocol::daemon::Asked;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::{Instance, ProcessIdentity};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The running program, also when its file has been replaced: a slow path's process is this program in another role.
pub const PROGRAM: &str = "/proc/self/exe";

/// Parameters of a slow path's process.
pub struct Start<'a> {
    /// The instance.
    pub name: &'a str,
    /// The first argument of the program, which selects the role. The instance's name follows.
    pub role: &'a str,
    /// The kernel user of the process.
    pub user: u32,
    /// Memory limit of the process, in bytes.
    pub memory: u64,
    /// Task limit of the process.
    pub tasks: u32,
    /// CPU weight relative to other processes: 1000 is the share of a core.
    pub weight_per_mille: u32,
}

/// A running process.
pub struct Running {
    /// The process.
    pub process: Instance,
    /// The cgroup of the process.
    pub cgroup: Cgroup,
}

/// Starts and ends processes of slow paths. The daemon implements it.
///
/// No method may lock the daemon's state: callers hold the lock of [`FastPaths`](crate::FastPaths), which the daemon
/// takes after its own.
pub trait Processes: Send + Sync {
    /// Takes a kernel user. `None`: all are in use.
    fn take_user(&self) -> Option<u32>;

    /// Marks a kernel user in use by a process of an earlier daemon.
    fn mark_user(&self, user: u32);

    /// Frees a kernel user.
    fn free_user(&self, user: u32);

    /// Starts [`PROGRAM`] in a sandbox: with libraries, and no other file. Its standard input is the socket of
    /// [`Processes::ask`], its output is the instance's log.
    ///
    /// # Errors
    /// When the process cannot be started; then no process runs.
    fn start(&self, start: &Start<'_>) -> anyhow::Result<Running>;

    /// Takes over the log and the cgroup of a process that an earlier daemon has started.
    ///
    /// # Errors
    /// When the log cannot be followed, or the cgroup does not exist.
    fn take_over(&self, name: &str) -> anyhow::Result<Cgroup>;

    /// Sends a line, and descriptors, to the process of an instance. Does not wait for the answer.
    ///
    /// # Errors
    /// When the process does not listen, or does not accept the line.
    fn ask(&self, name: &str, line: &[u8], fds: &[BorrowedFd<'_>]) -> anyhow::Result<Asked>;

    /// Ends a process of this or an earlier daemon, and all other processes in its cgroup.
    fn end(&self, name: &str, process: Option<&ProcessIdentity>);

    /// Removes the files of an instance's processes, after their end.
    fn remove(&self, name: &str);
}

/// Returns the version of the file of [`PROGRAM`]. `None`: the file is gone.
pub fn program_version() -> Option<nfluid_sandbox::FileVersion> {
    nfluid_sandbox::file_version(Path::new(PROGRAM))
}
