//! The named pipes that wake instances: by name, so that a later daemon finds them again.
//!
//! An instance has the read end of its own pipe, its link peers have the write end. While the
//! daemon lives it holds both, so that a peer's ring never meets a closed pipe.
//!
//! What an instance wakes its I/O thread with is an eventfd, which has no name: a later daemon takes
//! it from the instance.

use anyhow::{Context, ensure};
use nfluid_sandbox::Instance;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Makes a named pipe, if it is not there, for root only.
///
/// # Errors
/// As the kernel reports them.
pub fn make(path: &Path) -> io::Result<()> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Both ends: opening one alone would wait for, or fail without, the other.
///
/// # Errors
/// As the kernel reports them.
pub fn open_both(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDWR)
}

/// The end that rings. Somebody must have the other one open.
///
/// # Errors
/// As the kernel reports them.
pub fn open_ringing(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::WRONLY)
}

/// The end that is woken.
///
/// # Errors
/// As the kernel reports them.
pub fn open_woken(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDONLY)
}

fn open(path: &Path, end: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        end | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// What an instance wakes its I/O thread with.
///
/// # Errors
/// When no descriptor is left.
pub fn make_io() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// The same, of an instance that an earlier daemon has started, which has it as `number`.
///
/// # Errors
/// When the instance has closed it, or put something else in its place.
pub fn take_io(process: &Instance, number: RawFd) -> anyhow::Result<OwnedFd> {
    let bell = pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty())
        .context("taking the bell of its I/O thread")?;
    let what = std::fs::read_link(format!("/proc/self/fd/{}", bell.as_raw_fd()))?;
    ensure!(
        what.as_os_str() == "anon_inode:[eventfd]",
        "it has closed the bell of its I/O thread"
    );
    Ok(bell)
}
