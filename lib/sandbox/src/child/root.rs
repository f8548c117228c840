//! From the host's file system tree into an empty one.

use super::plan;
use super::{At, Failure};
use crate::error::Errno;
use crate::image::WITHIN;
use crate::shell::message::Cursor;
use crate::shell::step::Step;
use crate::sys;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// The place where the new root is assembled: a directory that every host has, hidden in this mount namespace alone.
const STAGE: &CStr = c"/proc";
/// A handful of directories and links, no files.
const TMPFS_OPTIONS: &CStr = c"mode=0755,size=64k,nr_inodes=64";
const NO_EXECUTION: u64 = 0x8;

/// The way in which the root directory was changed.
#[derive(Debug)]
pub(crate) enum Entered {
    /// By pivot_root(2); nothing of the host's tree is left in the namespace.
    Pivoted,
    /// The host's root is its initramfs, which pivot_root(2) refuses: the new root was moved on top of it. The host's
    /// tree stays beneath, where only a process with CAP_SYS_CHROOT or CAP_SYS_ADMIN could reach it.
    Moved,
}

/// Makes a mount of the processes of this pid namespace, and of nothing else that /proc has elsewhere (proc(5), subset=pid). It
/// is mounted nowhere yet. The caller is root of the host: the pid namespace belongs to its user namespace.
pub(super) fn processes() -> Result<OwnedFd, Errno> {
    let system = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&system, c"subset", c"pid")?;
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Enters a root directory made of the lists in `strings` and of the detached trees `mounts`. If one of the trees is the root,
/// what may be done in it is its own business; else the root is read-only.
pub(super) fn enter(
    strings: &mut Cursor<'_>,
    mounts: &[RawFd],
    processes: Option<&OwnedFd>,
) -> Result<Entered, Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", private).at(Step::PrivateMounts)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", STAGE, c"tmpfs", flags, Some(TMPFS_OPTIONS))
        .at(Step::MountRoot)?;
    rustix::process::chdir(STAGE).at(Step::MountRoot)?;
    let has_own_root = fill(strings, mounts)?;
    if let Some(processes) = processes {
        attach(processes.as_fd(), c"proc").at(Step::Processes)?;
    }
    let entered = change_root().at(Step::ChangeRoot)?;
    if !has_own_root {
        let attributes = sys::MOUNT_READ_ONLY | NO_EXECUTION;
        sys::mount_setattr(CWD, c"/", attributes, false).at(Step::SealRoot)?;
    }
    Ok(entered)
}

/// Makes directories, links and mounts, as they are listed. Returns true if one of the mounts is the root itself.
fn fill(strings: &mut Cursor<'_>, mounts: &[RawFd]) -> Result<bool, Failure> {
    let make_directory = |strings: &mut Cursor<'_>| {
        rustix::fs::mkdir(plan::next(strings)?, Mode::from_raw_mode(0o755))
    };
    plan::for_each(strings, make_directory, 1).at(Step::FillRoot)?;
    let make_link = |strings: &mut Cursor<'_>| {
        let target = plan::next(strings)?;
        rustix::fs::symlink(target, plan::next(strings)?)
    };
    plan::for_each(strings, make_link, 2).at(Step::FillRoot)?;
    let mut trees = mounts.iter();
    let mut has_own_root = false;
    let attach_next = |strings: &mut Cursor<'_>| {
        let tree = trees.next().ok_or(Errno::BADMSG)?;
        // SAFETY: the process that lists this descriptor keeps it open.
        let tree = unsafe { BorrowedFd::borrow_raw(*tree) };
        let place = plan::next(strings)?;
        if !place.is_empty() {
            return attach(tree, place);
        }
        has_own_root = true;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(tree, c"", CWD, STAGE, flags)?;
        rustix::process::chdir(STAGE)
    };
    plan::for_each(strings, attach_next, 1).at(Step::AttachViews)?;
    Ok(has_own_root)
}

/// Attaches a tree at a place below the working directory. Links in an image lead where they lead with that directory as the
/// root.
fn attach(tree: BorrowedFd<'_>, place: &CStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::openat2(CWD, place, flags, Mode::empty(), WITHIN)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", place, c"", flags)
}

/// The working directory becomes the root. With both arguments the same, the old root ends up on top of the new one,
/// from where it is unmounted (pivot_root(2), notes).
fn change_root() -> Result<Entered, Errno> {
    match rustix::process::pivot_root(c".", c".") {
        Ok(()) => {
            rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
            rustix::process::chdir(c"/")?;
            Ok(Entered::Pivoted)
        }
        Err(Errno::INVAL) => {
            rustix::mount::mount_move(c".", c"/")?;
            rustix::process::chroot(c".")?;
            rustix::process::chdir(c"/")?;
            Ok(Entered::Moved)
        }
        Err(errno) => Err(errno),
    }
}
