//! The named pipes that wake instances: by name, so that a later daemon finds them again.
//!
//! An instance has the read end of its own pipe, its link peers have the write end. While the
//! daemon lives it holds both, so that a peer's ring never meets a closed pipe.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
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
