//! Processes in a directory of the cgroup file system: listing, killing, removing.

use super::{CgroupError, control_file};
use crate::error::{Errno, OsError};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of attempts to remove an emptied cgroup, and the pause between them: the kernel takes a moment to release
/// ended processes.
const REMOVE_TRIES: u32 = 2500;
const REMOVE_PAUSE: Duration = Duration::from_millis(2);
/// Depth to which a leftover tree is followed; deeper directories are not ours.
const DEPTH_MAX: u32 = 8;

/// The processes in `directory`, without those of its children. A process of another pid namespace is listed as 0 and
/// left out.
pub(super) fn list(directory: &Path) -> Result<Vec<u32>, CgroupError> {
    let text = control_file::read(&directory.join("cgroup.procs"))?;
    let pids = text.lines().filter_map(|line| line.parse().ok());
    Ok(pids.filter(|pid| *pid != 0).collect())
}

/// Kills all processes of `directory` and, where the kernel can (v2, since 5.14), of the directories below.
pub(super) fn kill(directory: &Path) -> Result<(), CgroupError> {
    match control_file::write(&directory.join("cgroup.kill"), "1") {
        Err(CgroupError::Os(error)) if error.errno == Errno::NOENT => kill_one_by_one(directory),
        other => other,
    }
}

/// v1: a pid may be used again between the listing and the signal, so that each is pinned by a pidfd and looked up once
/// more before it is signalled.
fn kill_one_by_one(directory: &Path) -> Result<(), CgroupError> {
    let mut pinned = Vec::new();
    for pid in list(directory)? {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            continue;
        };
        if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
            pinned.push((pid, pidfd));
        }
    }
    let still_inside = list(directory)?;
    for (pid, pidfd) in pinned {
        if !still_inside.contains(&pid.as_raw_nonzero().get().unsigned_abs()) {
            continue;
        }
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => {
                let subject = format!("process {pid} of {}", directory.display());
                return Err(OsError::new("kill", subject, errno).into());
            }
        }
    }
    Ok(())
}

/// Kills the processes inside and removes the directory, which need not exist.
pub(super) fn remove(directory: &Path) -> Result<(), CgroupError> {
    remove_below(directory, DEPTH_MAX)
}

fn remove_below(directory: &Path, depth: u32) -> Result<(), CgroupError> {
    // Most are empty: then nothing in it needs to be looked at.
    if is_removed(directory)? {
        return Ok(());
    }
    if depth > 0 {
        for child in children(directory)? {
            remove_below(&child, depth - 1)?;
        }
    }
    for _ in 0..REMOVE_TRIES {
        if is_removed(directory)? {
            return Ok(());
        }
        kill(directory)?;
        std::thread::sleep(REMOVE_PAUSE);
    }
    Err(CgroupError::NotEmpty {
        path: directory.to_owned(),
        pids: list(directory)?,
    })
}

/// Removes a directory if no process and no other cgroup is in it. Returns true if the directory is gone.
fn is_removed(directory: &Path) -> Result<bool, CgroupError> {
    let Err(error) = std::fs::remove_dir(directory) else {
        return Ok(true);
    };
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Ok(true),
        Some(Errno::BUSY) => Ok(false),
        _ => Err(control_file::failed("remove cgroup", directory, &error)),
    }
}

/// The cgroups directly below `directory`.
pub(super) fn children(directory: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let entries = std::fs::read_dir(directory)
        .map_err(|error| control_file::failed("list cgroup", directory, &error))?;
    let directories = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()).collect())
}
