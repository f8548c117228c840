//! Work in a namespace of its own.

use crate::error::{Errno, OsError};
use rustix::thread::UnshareFlags;

/// A kind of namespace that a thread can have alone.
pub(crate) struct Kind {
    flag: UnshareFlags,
    making: &'static str,
    remedy: &'static str,
}

/// Network.
pub(crate) const NETWORK: Kind = Kind {
    flag: UnshareFlags::NEWNET,
    making: "create network namespace",
    remedy: "nfluid needs root, and room in sysctl user.max_net_namespaces",
};
/// Shared memory and queues.
pub(crate) const IPC: Kind = Kind {
    flag: UnshareFlags::NEWIPC,
    making: "create IPC namespace",
    remedy: "nfluid needs root, and room in sysctl user.max_ipc_namespaces",
};
/// Mounts; root and working directory are the thread's own, too.
pub(crate) const MOUNTS: Kind = Kind {
    flag: UnshareFlags::NEWNS,
    making: "create mount namespace",
    remedy: "nfluid needs root, and room in sysctl user.max_mnt_namespaces",
};

/// Runs `work` in a thread that has a new namespace, and ends at once: the caller's namespace is not touched.
///
/// # Errors
/// EPERM without root, ENOSPC at the limit of namespaces; those of `work`.
pub(crate) fn within<T: Send>(
    kind: &Kind,
    work: impl FnOnce() -> Result<T, OsError> + Send,
) -> Result<T, OsError> {
    let run = || {
        // SAFETY: only a namespace of this short-lived thread changes; its descriptor table does not.
        unsafe { rustix::thread::unshare_unsafe(kind.flag) }
            .map_err(|errno| OsError::new(kind.making, "", errno).remedy(kind.remedy))?;
        work()
    };
    let ended = std::thread::scope(|scope| scope.spawn(run).join());
    ended.unwrap_or_else(|_| Err(OsError::new(kind.making, "", Errno::AGAIN)))
}
