//! Network namespaces: opening them, and doing something inside one.

use crate::error::NetdevError;
use rustix::fs::{Mode, OFlags, fstat, fstatfs, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

/// The folder in which `ip netns` keeps names.
pub const NAMED: &str = "/run/netns";
/// The kind of file system on which namespaces are files: NSFS_MAGIC of linux/magic.h.
const NSFS: u64 = 0x6e73_6673;

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
    /// [`NetdevError::NoNamespace`] when there is no file, or the file is no namespace. A file that is no namespace
    /// is not opened: a FIFO would block the daemon, a watchdog would be armed.
    pub fn open(path: Option<&Path>) -> Result<Self, NetdevError> {
        let file = path.unwrap_or(Path::new("/proc/thread-self/ns/net"));
        let missing = |source: io::Error| NetdevError::NoNamespace {
            path: file.to_owned(),
            source,
        };
        let fd = open_namespace(file).map_err(missing)?;
        Self::of(fd, path).map_err(missing)
    }

    /// The namespace behind an open descriptor.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Self::of(fd, None)
    }

    fn of(fd: OwnedFd, path: Option<&Path>) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        Ok(NetNs {
            fd,
            path: path.map(Path::to_owned),
            id: (stat.st_dev, stat.st_ino),
        })
    }

    /// Returns the numbers that identify the namespace.
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Returns the inode by which programs of the kernel know the namespace (`ns_common.inum`, 32 bits).
    pub fn inode(&self) -> u32 {
        self.id.1 as u32
    }

    /// The descriptor, for questions to the kernel.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The descriptor alone.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Moves the calling thread into the namespace.
    ///
    /// # Errors
    /// When the kernel refuses: no root, or not a network namespace.
    pub fn enter(&self) -> Result<(), NetdevError> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(NetdevError::system(format!("entering {self}")))
    }

    /// Does `work` in a thread inside the namespace.
    ///
    /// # Errors
    /// The errors of `work`, and an error when the namespace cannot be entered.
    pub fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, NetdevError> + Send,
    ) -> Result<T, NetdevError> {
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

/// Looks at the file first, and opens it if it is a namespace.
fn open_namespace(path: &Path) -> io::Result<OwnedFd> {
    let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if fstatfs(&found)?.f_type as u64 != NSFS {
        let what = "it is not a namespace";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, inotify, mknodat};
    use std::mem::MaybeUninit;

    /// Catches: `open_namespace` that opens for reading before it looks.
    #[test]
    fn what_is_no_namespace_is_looked_at_and_not_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
        // A reader of a FIFO waits for a writer: this is one, so that the mistake fails instead of hanging.
        let _writer = open(&path, OFlags::RDWR, Mode::empty()).expect("ours");
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).expect("a watch");
        inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).expect("a watch");
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut was_opened = || inotify::Reader::new(&watch, &mut buffer).next().is_ok();
        for other in [&path, Path::new("/dev/null"), folder.path()] {
            let refused = NetNs::open(Some(other)).expect_err("no namespace");
            let shown = refused.to_string();
            assert!(
                matches!(refused, NetdevError::NoNamespace { .. }),
                "{shown}"
            );
        }
        assert!(!was_opened(), "the FIFO was only looked at");
        open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("ours");
        assert!(was_opened(), "the watch sees who opens it");
    }

    #[test]
    fn the_own_namespace_has_one_number_by_either_name() {
        let own = NetNs::open(None).expect("there");
        let same = NetNs::open(Some(Path::new("/proc/self/ns/net"))).expect("there");
        assert_eq!(own.id(), same.id());
    }
}
