//! Named pipes, by which peers wake a receiver beside the switch ([`crate::doorbell`]): by name, so that a process that comes
//! later finds them again. The receiver has both ends of its own pipe, so that the pipe always has a writer.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
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
