//! The root directory of an instance: an empty, read-only tmpfs of its own, and in it, for dynamically linked programs
//! only, read-only views of the host's library directories; for an emulator also a device, in a file system of its own.
//! Or the tree of a container image ([`Tree`]), with devices and volumes in it.
//!
//! The views are made here, by the parent, as detached mounts (open_tree(2)) that are already read-only, nosuid and
//! nodev when the instance's set-up attaches them; it never sees a writable one, and it needs no permission on the
//! directories above them.

mod directories;

pub(crate) use directories::directories;

use crate::error::{Errno, OsError};
use crate::identity::INSIDE_ID;
use crate::image::Tree;
use crate::shell::message::push_strings;
use crate::sys;
use rustix::mount::OpenTreeFlags;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories in which loaders look for libraries by default (ld.so(8)).
pub const LIBRARY_DIRECTORIES: [&str; 5] = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64"];

/// The content of an instance's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// No files. For statically linked programs.
    Empty,
    /// For dynamically linked programs.
    Libraries(Shown),
    /// For programs of a container image.
    Image(Arc<Tree>, Shown),
}

/// Directories in a root: of [`Root::Libraries`] beside the host's library directories (/lib, /lib32, /lib64, /usr/lib,
/// /usr/lib64 as far as they exist).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// More directories of the host.
    pub extra: Vec<View>,
    /// Names of devices below `/dev`, which every user of the instance may open.
    pub devices: &'static [&'static str],
    /// Directories of the instance alone, empty at first, in which it may write. Their content is charged to its cgroup.
    pub scratch: &'static [&'static str],
    /// `/proc`, with the instance's own processes and nothing else.
    pub processes: bool,
    /// The files in `/etc`, by name, of a program of the host: it sees no others. Those of an image are written by
    /// [`Tree::write`].
    pub etc: Vec<(&'static str, Vec<u8>)>,
}

impl Shown {
    /// Devices that programs of Linux expect.
    pub const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];
}

/// A directory of the host that an instance sees. It reads files there that every user of the host may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The directory: absolute, without `..`.
    pub of: PathBuf,
    /// Where the instance has it: absolute, without `..`.
    pub at: PathBuf,
    /// True if the instance writes there, as the directory's owner. It makes no programs there, nor devices.
    pub is_writable: bool,
}

impl From<PathBuf> for View {
    /// At the same path, read-only.
    fn from(path: PathBuf) -> Self {
        View {
            of: path.clone(),
            at: path,
            is_writable: false,
        }
    }
}

impl Root {
    /// The least that a program of this linkage needs.
    pub fn for_linkage(linkage: &crate::elf::Linkage) -> Self {
        match linkage {
            crate::elf::Linkage::Static => Self::Empty,
            crate::elf::Linkage::Dynamic { .. } => Self::libraries(Vec::new()),
        }
    }

    /// The host's library directories and these.
    pub fn libraries(extra: Vec<PathBuf>) -> Self {
        Self::Libraries(Shown {
            extra: extra.into_iter().map(View::from).collect(),
            ..Shown::default()
        })
    }

    /// Returns true if it has nothing of the instance alone, so that instances can share a mount namespace.
    pub fn is_common(&self) -> bool {
        match self {
            Root::Empty => true,
            Root::Libraries(shown) => *shown == Shown::default(),
            Root::Image(..) => false,
        }
    }

    /// The user and group number that the instance sees as its own.
    pub(crate) fn inside(&self) -> (u32, u32) {
        match self {
            Root::Image(tree, _) => tree.inside(),
            _ => (INSIDE_ID, INSIDE_ID),
        }
    }

    /// What it shows beside the host's libraries, or the image.
    pub(crate) fn shown(&self) -> Option<&Shown> {
        match self {
            Root::Empty => None,
            Root::Libraries(shown) | Root::Image(_, shown) => Some(shown),
        }
    }
}

/// What is in a directory that the root shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// What the host has there.
    Host,
    /// Devices, in a mount of its own that nothing else shows.
    Devices,
    /// What the instance writes, in a mount of its own.
    Scratch,
    /// A directory of the host in which the instance writes, too.
    Volume,
    /// The root of an image.
    Image,
}

/// A directory that the root shows, open.
#[derive(Debug)]
pub(crate) struct ShownDirectory {
    path: PathBuf,
    /// The directory of the host, or the mount.
    fd: OwnedFd,
    content: Content,
}

impl ShownDirectory {
    /// Returns what is in it.
    pub fn content(&self) -> Content {
        self.content
    }
}

impl AsFd for ShownDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A symbolic link among the library directories: `/lib` says `usr/lib` on most hosts.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    target: PathBuf,
}

/// The steps of the set-up inside the new root, in this order.
#[derive(Debug, Default)]
pub(crate) struct RootPlan {
    /// Directories to make, parents first, relative to the root.
    pub directories: Vec<CString>,
    /// Links to make: their targets, and their places.
    pub links: Vec<(CString, CString)>,
    /// Detached mounts and where they go. One without a place is the root itself, and the first.
    pub mounts: Vec<(OwnedFd, CString)>,
    /// `/proc` is mounted, too.
    pub has_processes: bool,
}

impl RootPlan {
    /// The lists of strings that the set-up reads: directories, links, places of mounts.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let directories = self.directories.iter().map(CString::as_c_str);
        push_strings(&mut message, &directories.collect::<Vec<_>>());
        let links = self.links.iter();
        let links = links.flat_map(|(target, path)| [target.as_c_str(), path.as_c_str()]);
        push_strings(&mut message, &links.collect::<Vec<_>>());
        let mounts = self.mounts.iter().map(|(_, path)| path.as_c_str());
        push_strings(&mut message, &mounts.collect::<Vec<_>>());
        message
    }
}

/// Identity of a path of the host now: its link's target, or file system and number of the directory; `None` if there
/// is no such path.
pub(crate) type Identity = (PathBuf, Option<PathBuf>, Option<(u64, u64)>);

/// Returns the present identities of the library directories that `root` shows.
pub(crate) fn identities(root: &Root) -> Vec<Identity> {
    let Root::Libraries(Shown { extra, .. }) = root else {
        return Vec::new();
    };
    let paths = LIBRARY_DIRECTORIES.iter().map(Path::new);
    let identity = |path: &Path| {
        let found = std::fs::symlink_metadata(path).ok();
        let found = found.map(|metadata| (metadata.dev(), metadata.ino()));
        (path.to_owned(), std::fs::read_link(path).ok(), found)
    };
    let extra = extra.iter().map(|view| view.of.as_path());
    paths.chain(extra).map(identity).collect()
}

/// Makes the detached views, for one instance: attaching uses them up.
pub(crate) fn plan(
    root: &Root,
    directories: &[ShownDirectory],
    links: &[Link],
) -> Result<RootPlan, OsError> {
    let mut plan = RootPlan {
        has_processes: root.shown().is_some_and(|shown| shown.processes),
        ..RootPlan::default()
    };
    if let Root::Image(tree, _) = root {
        // All places are in the image.
        plan.mounts.push((tree.mount()?, CString::default()));
        for directory in directories
            .iter()
            .filter(|one| one.content != Content::Image)
        {
            plan.mounts
                .push((view(directory)?, relative(&directory.path)?));
        }
        return Ok(plan);
    }
    let mut made = BTreeSet::new();
    if plan.has_processes {
        plan.directories.push(relative(Path::new("/proc"))?);
    }
    for directory in directories {
        let above = directory
            .path
            .ancestors()
            .collect::<Vec<_>>()
            .into_iter()
            .rev();
        for path in above.skip(1).filter(|path| made.insert(path.to_path_buf())) {
            plan.directories.push(relative(path)?);
        }
        let view = view(directory)?;
        plan.mounts.push((view, relative(&directory.path)?));
    }
    for Link { path, target } in links {
        let target = CString::new(target.as_os_str().as_bytes());
        let target = target.map_err(|_| bad_path(path))?;
        plan.links.push((target, relative(path)?));
    }
    Ok(plan)
}

fn view(directory: &ShownDirectory) -> Result<OwnedFd, OsError> {
    let failed = |errno| {
        OsError::new("make a read-only view of", directory.path.display(), errno)
            .remedy("nfluid needs root")
    };
    if directory.content != Content::Host {
        return directory
            .fd
            .try_clone()
            .map_err(|error| OsError::from_io("keep open", directory.path.display(), &error));
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(&directory.fd, c"", flags).map_err(failed)?;
    sys::mount_setattr(tree.as_fd(), c"", sys::MOUNT_READ_ONLY, true).map_err(failed)?;
    Ok(tree)
}

fn relative(path: &Path) -> Result<CString, OsError> {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    CString::new(bytes).map_err(|_| bad_path(path))
}

fn bad_path(path: &Path) -> OsError {
    OsError::new("show directory", path.display(), Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_could_leave_the_root_are_refused() {
        for bad in ["relative", "/", "/usr/../etc", ""] {
            let extra = vec![PathBuf::from(bad)];
            assert!(
                directories(&Root::libraries(extra), None).is_err(),
                "{bad:?}"
            );
        }
        assert!(directories(&Root::Empty, None).unwrap().0.is_empty());
    }

    #[test]
    fn a_directory_that_was_replaced_is_another() {
        let place = tempfile::tempdir().unwrap();
        let shown = place.path().join("libraries");
        std::fs::create_dir(&shown).unwrap();
        let root = Root::libraries(vec![shown.clone()]);
        let before = identities(&root);
        assert_eq!(before, identities(&root));
        // The number of a removed directory may be used again at once: the new directory is there before the old one
        // goes.
        let new = place.path().join("new");
        std::fs::create_dir(&new).unwrap();
        std::fs::rename(&new, &shown).unwrap();
        assert_ne!(before, identities(&root));
        std::fs::remove_dir(&shown).unwrap();
        assert_ne!(before, identities(&root));
    }

    #[test]
    fn a_directory_inside_a_shown_one_is_not_mounted_twice() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let outer = Root::libraries(vec![place.path().to_owned()]);
        let both = Root::libraries(vec![place.path().to_owned(), inner]);
        let count = |root| directories(root, None).unwrap().0.len();
        assert_eq!(count(&outer), count(&both));
    }
}
