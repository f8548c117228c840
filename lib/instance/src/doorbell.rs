//! The named pipes that wake instances: by name, so that a later daemon finds them again.
//!
//! Each instance has both ends of its own pipe, so that the pipe always has a writer. Its link peers have the write
//! end. A peer that rings for an ended instance gets an error that nothing reads the pipe, and ignores it. Uplinks have such pipes
//! as well.
//!
//! The doorbell by which an instance wakes its I/O thread is an eventfd without a name: a later daemon takes the
//! eventfd from the instance.

use crate::paths::Paths;
use anyhow::{Context, ensure};
use nfluid_control::model::UPLINK_DOORBELL;
pub use nfluid_ring::named_pipe::{make, open_both, open_ringing, ring};
use nfluid_sandbox::Instance;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Opens the write end of the doorbell of a peer. That of an uplink is made if the uplink has not started yet.
///
/// # Errors
/// As the kernel reports them.
pub(crate) fn open_of_peer(paths: &Paths, peer: &str) -> io::Result<OwnedFd> {
    let path = paths.doorbell(peer);
    if peer.starts_with(UPLINK_DOORBELL) {
        make(&path)?;
    }
    open_ringing(&path)
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
