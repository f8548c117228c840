//! A mount namespace that holds an instance's root directory and nothing else, for all instances with the same.

use crate::child::{self, root::Entered};
use crate::error::OsError;
use crate::own_namespace;
use crate::root::{self, Identity, Root, RootPlan, ShownDirectory};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// The mount namespace, and the facts about it.
#[derive(Debug)]
pub(crate) struct SealedFiles {
    root: Root,
    mounts: OwnedFd,
    libraries: Arc<[ShownDirectory]>,
    /// The library directories as they were.
    seen: Vec<Identity>,
    is_moved: bool,
}

impl SealedFiles {
    /// Makes one, in a thread of its own that ends at once: the caller's namespace is not touched.
    pub fn create(root: &Root) -> Result<Self, OsError> {
        // Before they are opened: a change in between leads to another namespace soon.
        let seen = root::identities(root);
        let (libraries, links) = root::directories(root, None)?;
        let plan = root::plan(root, &libraries, &links)?;
        let (mounts, entered) = own_namespace::within(&own_namespace::MOUNTS, || make(&plan))?;
        Ok(Self {
            root: root.clone(),
            mounts,
            libraries: libraries.into(),
            seen,
            is_moved: matches!(entered, Entered::Moved),
        })
    }

    /// Returns the root that the namespace shows.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns true if the host's library directories are still the directories that the namespace shows.
    pub fn is_current(&self) -> bool {
        root::identities(&self.root) == self.seen
    }

    /// The library directories.
    pub fn libraries(&self) -> Arc<[ShownDirectory]> {
        Arc::clone(&self.libraries)
    }

    /// Returns true if the host's root is covered, and not gone.
    pub fn is_moved(&self) -> bool {
        self.is_moved
    }
}

impl AsFd for SealedFiles {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mounts.as_fd()
    }
}

/// In a thread with mounts of its own.
fn make(plan: &RootPlan) -> Result<(OwnedFd, Entered), OsError> {
    // Opened now, since /proc is not mounted later.
    let path = "/proc/thread-self/ns";
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let namespaces = rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())
        .map_err(|errno| OsError::new("open", path, errno))?;
    // The thread's own since it has a root directory of its own.
    rustix::process::umask(Mode::empty());
    let mounts: Vec<RawFd> = plan
        .mounts
        .iter()
        .map(|(tree, _)| tree.as_raw_fd())
        .collect();
    let entered = child::enter_root(&plan.encode(), &mounts)
        .map_err(|(step, errno)| OsError::new(step.text(), "", errno).remedy(step.remedy(errno)))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = rustix::fs::openat(&namespaces, "mnt", flags, Mode::empty())
        .map_err(|errno| OsError::new("open", "the mount namespace just made", errno))?;
    Ok((own, entered))
}
