//! A process that ends with another one, which is neither its parent nor its child.

use crate::error::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// fcntl(2): the signal that tells of input (asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;

/// Has the kernel kill process `pid` when the other end of this connected socket is closed. The process holds the socket
/// as well: what is set here belongs to the socket, and lasts as long as somebody has it.
///
/// # Errors
/// The kernel refuses.
pub fn kill_when_closed(socket: impl AsFd, pid: u32) -> Result<(), Errno> {
    let fd = socket.as_fd().as_raw_fd();
    let pid = i32::try_from(pid).map_err(|_| Errno::INVAL)?;
    for (command, value) in [
        (F_SETSIG, libc::SIGKILL),
        (libc::F_SETOWN, pid),
        (libc::F_SETFL, libc::O_ASYNC),
    ] {
        // SAFETY: these commands take a number, and no memory.
        if unsafe { libc::fcntl(fd, command, value) } < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
    }
    Ok(())
}
