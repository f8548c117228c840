//! Namespaces that many instances share because nothing in them can be made or changed.
//!
//! A mount namespace and an IPC namespace of its own cost an instance two file systems in the kernel, for each of
//! which the kernel keeps an entry in every memory cgroup of the host: memory that grows with the square of the
//! number of instances. Sealed namespaces serve the same purpose without these costs:
//!
//! | barrier | own namespace | sealed one |
//! |---|---|---|
//! | the host's files, queues, shared memory | not in it | not in it |
//! | mounting, unmounting, writing | no capability; read-only | no capability in the host's user namespace, which it belongs to; read-only |
//! | meeting another instance by a file | none is shared but the libraries | no instance can make one: directories and libraries of root, read-only |
//! | meeting another instance by a queue or shared memory | not in it | no instance can make one: the limits are 0, and only the host's root can raise them |

mod files;
mod ipc;

pub(crate) use files::SealedFiles;

use crate::error::OsError;
use crate::root::Root;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Kinds of root directories that are kept; each is made again when it is wanted again.
const ROOTS_MAX: usize = 8;

/// Sealed namespaces for the instances of a daemon. The namespaces live as long as this value or a process inside.
#[derive(Debug)]
pub struct Sealed {
    /// `None` where the limits cannot be set: then each instance has an IPC namespace of its own.
    ipc: Option<OwnedFd>,
    /// The roots that were wanted last, the latest first.
    roots: Mutex<Vec<Arc<SealedFiles>>>,
}

impl Sealed {
    /// Makes the IPC namespace; root directories are made when they are wanted.
    ///
    /// # Errors
    /// EPERM without root, ENOSPC at the limit of user.max_ipc_namespaces.
    pub fn create() -> Result<Self, OsError> {
        Ok(Self {
            ipc: ipc::create()?,
            roots: Mutex::default(),
        })
    }

    /// The IPC namespace, if there is one.
    pub(crate) fn ipc(&self) -> Option<BorrowedFd<'_>> {
        self.ipc.as_ref().map(AsFd::as_fd)
    }

    /// A mount namespace with this root directory, as the host's library directories are now.
    pub(crate) fn files(&self, root: &Root) -> Result<Arc<SealedFiles>, OsError> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let found = roots.iter().position(|kept| kept.root() == root);
        if let Some(at) = found {
            let kept = roots.remove(at);
            if kept.is_current() {
                roots.insert(0, Arc::clone(&kept));
                return Ok(kept);
            }
        }
        let made = Arc::new(SealedFiles::create(root)?);
        roots.insert(0, Arc::clone(&made));
        roots.truncate(ROOTS_MAX);
        Ok(made)
    }
}
