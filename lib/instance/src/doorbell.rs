//! The named pipes that wake instances: by name, so that a later daemon finds them again.
//!
//! Each instance has both ends of its own pipe, so that the pipe always has a writer. Its link peers have the write
//! end. A peer that rings for an ended instance gets an error that nothing reads the pipe, and ignores it.
//!
//! The doorbell by which an instance wakes its I/O thread is an eventfd without a name: a later daemon takes the
//! eventfd from the instance.

use anyhow::{Context, ensure};
use nfluid_sandbox::Instance;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Creates a named pipe for root only, if it does not exist.
///
/// # Errors
/// As the kernel reports them.
pub fn make(path: &Path) -> io::Result<()> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens both ends: opening only one end would block, or fail without the other.
///
/// # Errors
/// As the kernel reports them.
pub fn open_both(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDWR)
}

/// Opens the write end, whether or not the pipe has a reader.
///
/// # Errors
/// As the kernel reports them.
pub fn open_ringing(path: &Path) -> io::Result<OwnedFd> {
    // The write end cannot be opened without a reader.
    let _reader = open_both(path)?;
    open(path, OFlags::WRONLY)
}

/// Rings once. A doorbell without a reader, or one that is already rung, needs no second ring. Returns false if the
/// doorbell is full of rings that no thread has read.
pub fn ring(path: &Path) -> bool {
    let rung = open_ringing(path).map(|doorbell| rustix::io::write(&doorbell, &[0]));
    !matches!(rung, Ok(Err(Errno::AGAIN)))
}

fn open(path: &Path, end: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        end | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Creates the doorbell by which an instance wakes its I/O thread.
///
/// # Errors
/// No descriptor is left.
pub fn make_io() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Takes that doorbell from a running instance that has it as descriptor `number`.
///
/// # Errors
/// The instance has closed the descriptor, or put another file in its place.
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
