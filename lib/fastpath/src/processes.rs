//! What the room needs of the daemon to run the process of a slow path.
//!
//! The daemon owns kernel users, cgroups, logs and sandboxes: instances of other tiers have them too. The room says which
//! process is to run, and what the process is asked.

use nfluid_protocol::daemon::Asked;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_sandbox::{Instance, ProcessIdentity};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The running program, also when its file has been replaced: a slow path's process is this program in another role.
pub const PROGRAM: &str = "/proc/self/exe";

/// A process of a slow path, to be started.
pub struct Start<'a> {
    /// The instance.
    pub name: &'a str,
    /// The word after the program's name by which the process knows its role. The instance's name follows.
    pub role: &'a str,
    /// The kernel user of the process.
    pub user: u32,
    /// Bytes of memory that the process may take.
    pub memory: u64,
    /// Tasks that the process may have.
    pub tasks: u32,
    /// CPU time beside other processes: 1000 is the share of a core.
    pub weight_per_mille: u32,
}

/// A process that runs.
pub struct Running {
    /// The process.
    pub process: Instance,
    /// The cgroup of the process.
    pub cgroup: Cgroup,
}

/// Starts and ends processes of slow paths. The daemon implements it.
///
/// No method may lock the daemon's state: callers hold the lock of [`FastPaths`](crate::FastPaths), which the daemon takes
/// after its own.
pub trait Processes: Send + Sync {
    /// Takes a kernel user. `None`: all are in use.
    fn take_user(&self) -> Option<u32>;

    /// Marks a kernel user that the process of an earlier daemon has.
    fn mark_user(&self, user: u32);

    /// Gives a kernel user back.
    fn free_user(&self, user: u32);

    /// Starts [`PROGRAM`] in a sandbox: with libraries, and no other file. Its standard input is the socket on which
    /// [`Processes::ask`] asks, its output is the instance's log.
    ///
    /// # Errors
    /// Nothing runs.
    fn start(&self, start: &Start<'_>) -> anyhow::Result<Running>;

    /// Takes over the log and the cgroup of a process that an earlier daemon has started.
    ///
    /// # Errors
    /// When the log cannot be followed, or there is no such cgroup.
    fn take_over(&self, name: &str) -> anyhow::Result<Cgroup>;

    /// Sends a line, and descriptors, to the process of an instance. Does not wait for the answer.
    ///
    /// # Errors
    /// When the process does not listen, or does not take the line.
    fn ask(&self, name: &str, line: &[u8], fds: &[BorrowedFd<'_>]) -> anyhow::Result<Asked>;

    /// Ends a process, whoever has started it, and what else may be in its cgroup.
    fn end(&self, name: &str, process: Option<&ProcessIdentity>);

    /// Removes the files of an instance's processes, after their end.
    fn remove(&self, name: &str);
}

/// Returns the version of the file of [`PROGRAM`]. `None`: the file is gone.
pub fn program_version() -> Option<nfluid_sandbox::FileVersion> {
    nfluid_sandbox::file_version(Path::new(PROGRAM))
}
