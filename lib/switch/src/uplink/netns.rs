//! Network namespaces: opening them, and doing something inside one.

use super::error::UplinkError;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

/// Where `ip netns` keeps names.
pub const NAMED: &str = "/run/netns";

/// A network namespace, held open.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    path: Option<PathBuf>,
    id: (u64, u64),
}

impl NetNs {
    /// Opens the namespace at `path`; `None`: the calling thread's own.
    ///
    /// # Errors
    /// [`UplinkError::NoNamespace`] when nothing, or something else, is there.
    pub fn open(path: Option<&Path>) -> Result<Self, UplinkError> {
        let file = path.unwrap_or(Path::new("/proc/thread-self/ns/net"));
        let missing = |source: io::Error| UplinkError::NoNamespace {
            path: file.to_owned(),
            source,
        };
        let fd = open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| missing(errno.into()))?;
        let stat = fstat(&fd).map_err(|errno| missing(errno.into()))?;
        Ok(NetNs {
            fd,
            path: path.map(Path::to_owned),
            id: (stat.st_dev, stat.st_ino),
        })
    }

    /// What tells namespaces apart.
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// The descriptor, for questions to the kernel.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Moves the calling thread into the namespace.
    ///
    /// # Errors
    /// When the kernel refuses: no root, or not a network namespace.
    pub fn enter(&self) -> Result<(), UplinkError> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(UplinkError::system(format!("entering {self}")))
    }

    /// Does `work` in a thread inside the namespace.
    ///
    /// # Errors
    /// Those of `work`, and when the namespace cannot be entered.
    pub fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, UplinkError> + Send,
    ) -> Result<T, UplinkError> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl fmt::Display for NetNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "namespace {}", name_of(path)),
            None => f.write_str("the daemon's own namespace"),
        }
    }
}

/// The name that `ip netns` shows, or the path.
fn name_of(path: &Path) -> String {
    let named = path.strip_prefix(NAMED).unwrap_or(path);
    named.display().to_string()
}

/// The namespaces that have names.
pub fn named() -> Vec<PathBuf> {
    let entries = fs::read_dir(NAMED).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The namespaces of running processes.
pub fn of_processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|b| b.is_ascii_digit())
        })
        .map(|entry| entry.path().join("ns/net"))
}

/// Names of the interfaces in the calling thread's namespace.
pub fn interface_names() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let mut names: Vec<String> = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .collect();
    names.sort();
    names
}
