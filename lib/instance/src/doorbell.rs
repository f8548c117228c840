//! The named pipes that wake instances: by name, so that a later daemon finds them again.
//!
//! An instance has both ends of its own pipe, so that it is never without a writer, and its link peers have the write
//! end. A peer that rings for one that has ended is told that nobody reads, and does not care.
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

/// The end that rings, whether or not anybody has the other one.
///
/// # Errors
/// As the kernel reports them.
pub fn open_ringing(path: &Path) -> io::Result<OwnedFd> {
    // Without a reader it could not be opened.
    let _reader = open_both(path)?;
    open(path, OFlags::WRONLY)
}

/// Rings once. A bell that nobody hears, or that rings already, needs no more.
pub fn ring(path: &Path) {
    if let Ok(bell) = open_ringing(path) {
        let _full_or_unheard = rustix::io::write(&bell, &[0]);
    }
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

/// The same, of an instance that runs and has it as `number`.
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
