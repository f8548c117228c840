//! Whose files are the instance's own: an idmapped mount shows the files of one user as those of the instance's user
//! (mount_setattr(2), Linux 5.12), and stores what the instance makes as that user's. All other files keep their owners.

use crate::error::{Errno, OsError};
use crate::identity::KernelId;
use crate::sys::{self, Fork, Kind};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The numbers that a user namespace can map: all but the one that means "none".
const NUMBERS: u32 = u32::MAX;

/// A user namespace that maps one user and one group of files to the instance's.
#[derive(Debug)]
pub(crate) struct Owners(OwnedFd);

impl Owners {
    /// Makes the namespace: files of `user` and `group` are those of `id`.
    ///
    /// # Errors
    /// The kernel refuses the namespace, or its maps.
    pub fn new((user, group): (u32, u32), id: KernelId) -> Result<Self, OsError> {
        let failed = |errno| {
            OsError::new("make a user namespace for the files of", id, errno)
                .remedy("raise sysctl user.max_user_namespaces")
        };
        // SAFETY: the child makes system calls only, and does not return.
        match unsafe { sys::fork(Kind::UserNamespace, None) }.map_err(failed)? {
            Fork::Child => sys::wait_to_be_killed(),
            Fork::Parent { pid, pidfd } => {
                let made = map_and_open(pid, user, group, id.raw());
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                let child = || WaitId::PidFd(pidfd.as_fd());
                while let Err(Errno::INTR) = waitid(child(), WaitIdOptions::EXITED) {}
                made.map(Owners)
            }
        }
    }

    /// Applies to a detached mount that nothing has used yet.
    ///
    /// # Errors
    /// EINVAL: its file system has no such mounts.
    pub fn apply(&self, mount: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::mount_map_owners(mount, self.0.as_fd())
    }
}

fn map_and_open(pid: Pid, user: u32, group: u32, own: u32) -> Result<OwnedFd, OsError> {
    let pid = pid.as_raw_nonzero();
    for (file, from) in [("uid_map", user), ("gid_map", group)] {
        let path = format!("/proc/{pid}/{file}");
        std::fs::write(&path, map(from, own))
            .map_err(|error| OsError::from_io("write", path, &error))?;
    }
    let path = format!("/proc/{pid}/ns/user");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| OsError::new("open", path, errno))
}

/// Maps each number to itself, and `from` to `own` (user_namespaces(7)). What `own` itself would be has no owner.
fn map(from: u32, own: u32) -> String {
    let mut lines = String::new();
    let mut next = 0;
    let (first, second) = (from.min(own), from.max(own));
    for skipped in [first, second, NUMBERS] {
        if let Some(count) = skipped.checked_sub(next).filter(|count| *count > 0) {
            lines.push_str(&format!("{next} {next} {count}\n"));
        }
        next = skipped.saturating_add(1);
    }
    lines.push_str(&format!("{from} {own} 1\n"));
    lines
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn one_number_becomes_another_and_all_others_stay() {
        assert_eq!(map(0, 9), "1 1 8\n10 10 4294967285\n0 9 1\n");
        assert_eq!(map(9, 0), "1 1 8\n10 10 4294967285\n9 0 1\n");
        assert_eq!(map(5, 6), "0 0 5\n7 7 4294967288\n5 6 1\n");
        assert_eq!(map(5, 5), "0 0 5\n6 6 4294967289\n5 5 1\n");
    }
}
