//! Tap interfaces: for programs that use the kernel's own stack (linux/if_tun.h).

use crate::error::NetdevError;
use crate::offload::Undone;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// linux/if_tun.h: TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, TUN_F_TSO_ECN, TUN_F_USO4, TUN_F_USO6.
const CHECKSUMS: libc::c_ulong = 0x01;
const TCP: libc::c_ulong = 0x02 | 0x04 | 0x08;
const UDP: libc::c_ulong = 0x20 | 0x40;

/// Makes the tap `interface` in the calling thread's namespace, or opens it if it exists. A `struct virtio_net_hdr` is
/// before each frame; no work is left to be done until [`leave_undone`]. The tap outlives the descriptor until [`remove`].
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
    // A program that had the tap before may have left it with longer headers.
    let header = 10i32;
    // SAFETY: the argument is the address of a live number.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETVNETHDRSZ as _,
            &raw const header,
        )
    })
    .map_err(failed("setting the headers of frames on"))?;
    set_offloads(&fd, 0).map_err(failed("switching offloads off on"))?;
    persist(&fd, true).map_err(failed("keeping"))?;
    Ok(fd)
}

/// Sets the work that a tap's kernel stack may leave undone on frames that it sends. Returns what it is now: the kernel may
/// have no words for UDP.
///
/// # Errors
/// When the kernel refuses.
pub fn leave_undone(fd: &OwnedFd, undone: Undone) -> Result<Undone, NetdevError> {
    let failed = NetdevError::system("changing the offloads of a tap");
    match undone {
        Undone::Nothing => set_offloads(fd, 0),
        Undone::Checksums => set_offloads(fd, CHECKSUMS),
        Undone::Segments { udp: true } if set_offloads(fd, CHECKSUMS | TCP | UDP).is_ok() => {
            return Ok(undone);
        }
        Undone::Segments { .. } => set_offloads(fd, CHECKSUMS | TCP),
    }
    .map_err(failed)?;
    Ok(match undone {
        Undone::Segments { .. } => Undone::Segments { udp: false },
        other => other,
    })
}

fn set_offloads(fd: &OwnedFd, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the argument is a number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, flags) })
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
            ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short,
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
