//! The root directory of an instance: an empty, read-only tmpfs of its own, and in it, for dynamically linked programs
//! only, read-only views of the host's library directories; for an emulator also a device, in a file system of its own.
//!
//! The views are made here, by the parent, as detached mounts (open_tree(2)) that are already read-only, nosuid and
//! nodev when the instance's set-up attaches them; it never sees a writable one, and it needs no permission on the
//! directories above them.

use crate::error::{Errno, OsError};
use crate::shell::message::push_strings;
use crate::sys;
use rustix::fs::{AtFlags, FileType, Mode, chmodat, mknodat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen,
};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Directories in which loaders look for libraries by default (ld.so(8)).
pub const LIBRARY_DIRECTORIES: [&str; 5] = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64"];

/// Most bytes and files in each directory of an instance's own. The memory limit of its cgroup holds as well.
const SCRATCH_SIZE: &CStr = c"64m";
const SCRATCH_FILES: &CStr = c"4096";

/// The content of an instance's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// No files. For statically linked programs.
    Empty,
    /// For dynamically linked programs.
    Libraries(Shown),
}

/// Directories of a root: the host's library directories (/lib, /lib32, /lib64, /usr/lib, /usr/lib64 as far as they exist),
/// and others. Directories of the host are at the same paths, and read-only; files there are readable to the instance as
/// far as they are readable to every user of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// More directories of the host: absolute, without `..`.
    pub extra: Vec<PathBuf>,
    /// Names of devices below `/dev`, which every user of the instance may open.
    pub devices: &'static [&'static str],
    /// Directories of the instance alone, empty at first, in which it may write. Their content is charged to its cgroup.
    pub scratch: &'static [&'static str],
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
            extra,
            ..Shown::default()
        })
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
}

/// A directory that the root shows, open.
#[derive(Debug)]
pub(crate) struct ShownDirectory {
    path: PathBuf,
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
    /// Detached mounts and where they go.
    pub mounts: Vec<(OwnedFd, CString)>,
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
    let extra = extra.iter().map(PathBuf::as_path);
    paths.chain(extra).map(identity).collect()
}

/// The directories that `root` shows, and the links among them.
pub(crate) fn directories(root: &Root) -> Result<(Vec<ShownDirectory>, Vec<Link>), OsError> {
    let Root::Libraries(shown) = root else {
        return Ok((Vec::new(), Vec::new()));
    };
    let (mut directories, mut links) = (Vec::new(), Vec::new());
    for path in LIBRARY_DIRECTORIES.iter().map(Path::new) {
        let Ok(metadata) = std::fs::symlink_metadata(path) else {
            continue;
        };
        if metadata.is_symlink() {
            let target = std::fs::read_link(path)
                .map_err(|error| OsError::from_io("read link", path.display(), &error))?;
            links.push(Link {
                path: path.to_owned(),
                target,
            });
        } else if metadata.is_dir() {
            directories.push(open(path)?);
        }
    }
    let extra = shown
        .extra
        .iter()
        .map(|path| (path.as_path(), Content::Host));
    let scratch = shown
        .scratch
        .iter()
        .map(|path| (Path::new(path), Content::Scratch));
    // Of directories in each other, the outer one is mounted first.
    let mut others: Vec<(&Path, Content)> = extra.chain(scratch).collect();
    others.sort_by_key(|(path, _)| *path);
    for (path, content) in others {
        let tidy = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || path.parent().is_none() || !path.components().all(tidy) {
            return Err(OsError::new("show directory", path.display(), Errno::INVAL)
                .remedy("library directories are absolute paths without `..`, and not `/`"));
        }
        let around = directories
            .iter()
            .rfind(|shown| path.starts_with(&shown.path));
        match (around.map(|shown| shown.content), content) {
            // It is shown already.
            (Some(Content::Host), Content::Host) => continue,
            (Some(Content::Scratch), _) => make_place(around, path)?,
            _ => {}
        }
        directories.push(match content {
            Content::Host => open(path)?,
            _ => make_scratch(path)?,
        });
    }
    if !shown.devices.is_empty() {
        directories.push(with_devices(shown.devices)?);
    }
    Ok((directories, links))
}

fn open(path: &Path) -> Result<ShownDirectory, OsError> {
    use rustix::fs::OFlags;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| OsError::new("open library directory", path.display(), errno))?;
    Ok(ShownDirectory {
        path: path.to_owned(),
        fd,
        content: Content::Host,
    })
}

/// Makes a file system with nothing in it but nodes of devices that every user may open: of some, the host's own node is
/// for root and a group. It is mounted nowhere yet.
fn with_devices(names: &[&str]) -> Result<ShownDirectory, OsError> {
    let folder = Path::new("/dev");
    let make = || {
        let mount = own_system(c"0755", MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
        for name in names {
            let number = rustix::fs::stat(folder.join(name))?.st_rdev;
            let everyone = Mode::from_raw_mode(0o666);
            mknodat(&mount, *name, FileType::CharacterDevice, everyone, number)?;
            // The mask of the daemon held for the line above.
            chmodat(&mount, *name, everyone, AtFlags::empty())?;
        }
        sys::mount_setattr(mount.as_fd(), c"", sys::MOUNT_UNCHANGEABLE, false)?;
        Ok(mount)
    };
    let failed =
        |errno| {
            OsError::new("make devices of the instance's own for", names.join(", "), errno).remedy(
            "nfluid needs root and the right to make device nodes (CAP_MKNOD, the devices cgroup)",
        )
        };
    Ok(ShownDirectory {
        path: folder.to_owned(),
        fd: make().map_err(failed)?,
        content: Content::Devices,
    })
}

/// Makes the directories in the instance's own one at which `path` is mounted.
fn make_place(own: Option<&ShownDirectory>, path: &Path) -> Result<(), OsError> {
    let Some(own) = own else { return Ok(()) };
    let within = path.strip_prefix(&own.path).unwrap_or(path);
    let parents: Vec<&Path> = within.ancestors().collect();
    for place in parents
        .into_iter()
        .rev()
        .filter(|place| !place.as_os_str().is_empty())
    {
        match rustix::fs::mkdirat(own, place, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(OsError::new("make a place for", path.display(), errno)),
        }
    }
    Ok(())
}

/// Makes an empty file system, mounted nowhere yet, in which every user may write.
fn make_scratch(path: &Path) -> Result<ShownDirectory, OsError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NODEV;
    let made = own_system(c"1777", attributes);
    Ok(ShownDirectory {
        path: path.to_owned(),
        fd: made.map_err(|errno| OsError::new("make the instance's own", path.display(), errno))?,
        content: Content::Scratch,
    })
}

/// Makes a file system in memory with these permissions of its root.
fn own_system(mode: &CStr, attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let system = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [
        (c"mode", mode),
        (c"size", SCRATCH_SIZE),
        (c"nr_inodes", SCRATCH_FILES),
    ] {
        fsconfig_set_string(&system, key, value)?;
    }
    fsconfig_create(&system)?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NOSUID;
    fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Makes the detached views, for one instance: attaching uses them up.
pub(crate) fn plan(directories: &[ShownDirectory], links: &[Link]) -> Result<RootPlan, OsError> {
    let mut plan = RootPlan::default();
    let mut made = BTreeSet::new();
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
            assert!(directories(&Root::libraries(extra)).is_err(), "{bad:?}");
        }
        assert!(directories(&Root::Empty).unwrap().0.is_empty());
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
        let count = |root| directories(root).unwrap().0.len();
        assert_eq!(count(&outer), count(&both));
    }
}
