//! Tap interfaces: for programs that use the kernel's own stack (linux/if_tun.h).

use crate::error::NetdevError;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes the tap `interface` in the calling thread's namespace, or opens it if it exists. Frames
/// come whole: no offloads, no header. The tap outlives the descriptor until [`remove`].
///
/// # Errors
/// When the kernel refuses: no tun module, or the interface is no tap, or another process has it open.
pub fn open_tap(interface: &str) -> Result<OwnedFd, NetdevError> {
    let fd = open_device()?;
    let failed = |what: &str| NetdevError::system(format!("{what} the tap {interface}"));
    let mut request = request(interface);
    // SAFETY: the request is a live ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })
        .map_err(failed("opening"))?;
    // SAFETY: the argument is a number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, 0) })
        .map_err(failed("switching offloads off on"))?;
    persist(&fd, true).map_err(failed("keeping"))?;
    Ok(fd)
}

/// Removes the tap `interface` from the calling thread's namespace, if no other process has it open.
///
/// # Errors
/// When the kernel refuses.
pub fn remove(interface: &str) -> Result<(), NetdevError> {
    let fd = open_device()?;
    let mut request = request(interface);
    let failed = || NetdevError::system(format!("removing the tap {interface}"));
    // SAFETY: the request is a live ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })
        .map_err(failed())?;
    persist(&fd, false).map_err(failed())
}

fn open_device() -> Result<OwnedFd, NetdevError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    open("/dev/net/tun", flags, Mode::empty()).map_err(NetdevError::system(
        "opening /dev/net/tun (is the tun module loaded?)",
    ))
}

fn persist(fd: &OwnedFd, on: bool) -> io::Result<()> {
    // SAFETY: the argument is a number.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETPERSIST as _,
            libc::c_int::from(on),
        )
    })
}

fn request(interface: &str) -> libc::ifreq {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
        },
    }
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
