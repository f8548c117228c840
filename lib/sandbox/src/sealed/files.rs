//! A mount namespace that holds an instance's root directory and nothing else, for all instances with the same.

use crate::child::{self, root::Entered};
use crate::error::{Errno, OsError};
use crate::root::{self, Identity, Root, RootPlan, ShownDirectory};
use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;
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
        let maker = std::thread::spawn(move || make(&plan));
        let failed = || OsError::new("create mount namespace", "", Errno::AGAIN);
        let (mounts, entered) = maker.join().map_err(|_| failed())??;
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

/// In a thread of its own.
fn make(plan: &RootPlan) -> Result<(OwnedFd, Entered), OsError> {
    // Opened now, since /proc is not mounted later.
    let path = "/proc/thread-self/ns";
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let namespaces = rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())
        .map_err(|errno| OsError::new("open", path, errno))?;
    // SAFETY: only the mounts, root and working directory of this short-lived thread change; its descriptor table does not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|errno| {
        OsError::new("create mount namespace", "", errno)
            .remedy("nfluid needs root, and room in sysctl user.max_mnt_namespaces")
    })?;
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
