//! The root directory of an instance: an empty, read-only tmpfs of its own, and in it, for dynamically linked programs
//! only, read-only views of the host's library directories; for an emulator also a device, in a file system of its own.
//! Or the tree of a container image ([`Tree`]), with devices and volumes in it.
//!
//! The views are made here, by the parent, as detached mounts (open_tree(2)) that are already read-only, nosuid and
//! nodev when the instance's set-up attaches them; it never sees a writable one, and it needs no permission on the
//! directories above them.

use crate::error::{Errno, OsError};
use crate::identity::{INSIDE_ID, KernelId};
use crate::image::{Owners, Tree};
use crate::shell::message::push_strings;
use crate::sys;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, mknodat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen,
};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Directories in which loaders look for libraries by default (ld.so(8)).
pub const LIBRARY_DIRECTORIES: [&str; 5] = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64"];

/// Most bytes and files in each directory of an instance's own. The memory limit of its cgroup holds as well.
const SCRATCH_SIZE: &CStr = c"64m";
const SCRATCH_FILES: &CStr = c"4096";

/// The directory of the files that a program's libraries look into.
const ETC: &str = "/etc";
/// Names that programs know their descriptors by.
const STREAMS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

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
    /// Files in `/etc` that it reads, by name: instead of those of an image; a program of the host has no others.
    pub etc: Vec<(&'static str, Vec<u8>)>,
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

/// The directories that `root` shows to an instance, and the links among them.
pub(crate) fn directories(
    root: &Root,
    id: Option<KernelId>,
) -> Result<(Vec<ShownDirectory>, Vec<Link>), OsError> {
    let Some(shown) = root.shown() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let (mut directories, links) = match root {
        Root::Image(tree, _) => (vec![of_image(tree, shown)?], Vec::new()),
        _ => libraries()?,
    };
    if !shown.devices.is_empty() {
        directories.push(with_devices(shown)?);
    }
    match root {
        _ if shown.etc.is_empty() => {}
        Root::Image(tree, _) => {
            for (name, content) in &shown.etc {
                tree.write(&Path::new(ETC).join(name), content)?;
            }
        }
        _ => directories.push(with_files(&shown.etc)?),
    }
    // Of directories in each other, the outer one is mounted first.
    let mut views: Vec<&View> = shown.extra.iter().collect();
    views.sort_by_key(|view| &view.at);
    let mut scratch: Vec<&str> = shown.scratch.to_vec();
    scratch.sort_unstable();
    let mut others: Vec<(&Path, Option<&View>)> = views
        .iter()
        .map(|view| (view.at.as_path(), Some(*view)))
        .collect();
    others.extend(scratch.iter().map(|path| (Path::new(*path), None)));
    others.sort_by_key(|(path, _)| *path);
    for (path, view) in others {
        for path in [Some(path), view.map(|view| view.of.as_path())]
            .into_iter()
            .flatten()
        {
            let tidy = |part| matches!(part, Component::RootDir | Component::Normal(_));
            if !path.is_absolute() || path.parent().is_none() || !path.components().all(tidy) {
                return Err(OsError::new("show directory", path.display(), Errno::INVAL)
                    .remedy("directories are absolute paths without `..`, and not `/`"));
            }
        }
        let around = directories
            .iter()
            .rfind(|shown| path.starts_with(&shown.path));
        let is_same = view.is_some_and(|view| view.of == view.at && !view.is_writable);
        match around.map(|shown| shown.content) {
            // It is shown already.
            Some(Content::Host) if is_same => continue,
            Some(Content::Scratch) => make_place(around, path)?,
            _ => {}
        }
        if let Root::Image(tree, _) = root
            && around.is_none_or(|shown| shown.content == Content::Image)
        {
            tree.make_directory(path)?;
        }
        directories.push(match view {
            Some(view) if view.is_writable => volume(view, id)?,
            Some(view) => open(&view.of, path)?,
            None => make_scratch(path)?,
        });
    }
    Ok((directories, links))
}

/// The host's library directories, and the links among them.
fn libraries() -> Result<(Vec<ShownDirectory>, Vec<Link>), OsError> {
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
            directories.push(open(path, path)?);
        }
    }
    Ok((directories, links))
}

/// The root of an image, with places for what is mounted in it.
fn of_image(tree: &Tree, shown: &Shown) -> Result<ShownDirectory, OsError> {
    let places = [
        (!shown.devices.is_empty(), "/dev"),
        (shown.processes, "/proc"),
    ];
    for (_, place) in places.iter().filter(|(is_wanted, _)| *is_wanted) {
        tree.make_directory(Path::new(place))?;
    }
    Ok(ShownDirectory {
        path: PathBuf::from("/"),
        fd: tree
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| OsError::from_io("keep open", "the image", &error))?,
        content: Content::Image,
    })
}

fn open(path: &Path, at: &Path) -> Result<ShownDirectory, OsError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| OsError::new("open directory", path.display(), errno))?;
    Ok(ShownDirectory {
        path: at.to_owned(),
        fd,
        content: Content::Host,
    })
}

/// A view of a directory in which the files of its owner are the instance's.
fn volume(view: &View, id: Option<KernelId>) -> Result<ShownDirectory, OsError> {
    let failed = |errno| {
        OsError::new("make a writable view of", view.of.display(), errno)
            .remedy("it must be on a file system with idmapped mounts, such as ext4, xfs or btrfs")
    };
    let opened = open(&view.of, &view.at)?.fd;
    let found = rustix::fs::fstat(&opened).map_err(failed)?;
    let id = id.ok_or_else(|| failed(Errno::INVAL))?;
    let owners = Owners::new((found.st_uid, found.st_gid), id)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = rustix::mount::open_tree(&opened, c"", flags).map_err(failed)?;
    owners.apply(tree.as_fd()).map_err(failed)?;
    sys::mount_setattr(tree.as_fd(), c"", sys::MOUNT_DATA, false).map_err(failed)?;
    Ok(ShownDirectory {
        path: view.at.clone(),
        fd: tree,
        content: Content::Volume,
    })
}

/// Makes a file system with nothing in it but nodes of devices that every user may open: of some, the host's own node is
/// for root and a group. It is mounted nowhere yet.
fn with_devices(shown: &Shown) -> Result<ShownDirectory, OsError> {
    let folder = Path::new("/dev");
    let names = shown.devices;
    let make = || {
        let mount = own_system(c"0755", MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
        for name in names {
            let number = rustix::fs::stat(folder.join(name))?.st_rdev;
            let everyone = Mode::from_raw_mode(0o666);
            mknodat(&mount, *name, FileType::CharacterDevice, everyone, number)?;
            // The mask of the daemon held for the line above.
            chmodat(&mount, *name, everyone, AtFlags::empty())?;
        }
        if shown.processes {
            for (name, target) in STREAMS {
                rustix::fs::symlinkat(target, &mount, name)?;
            }
        }
        for path in shown.scratch {
            if let Ok(within) = Path::new(path).strip_prefix(folder) {
                rustix::fs::mkdirat(&mount, within, Mode::from_raw_mode(0o755))?;
            }
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

/// Makes a file system with files that every user may read.
fn with_files(files: &[(&str, Vec<u8>)]) -> Result<ShownDirectory, OsError> {
    let make = || {
        let mount = own_system(c"0755", MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
        for (name, content) in files {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let everyone = Mode::from_raw_mode(0o644);
            let file = rustix::fs::openat(&mount, *name, flags, everyone)?;
            rustix::fs::fchmod(&file, everyone)?;
            let written = std::fs::File::from(file).write_all(content);
            written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(mount)
    };
    Ok(ShownDirectory {
        path: PathBuf::from(ETC),
        fd: make().map_err(|errno| OsError::new("make the instance's own", ETC, errno))?,
        content: Content::Scratch,
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
        plan.mounts.push((tree.finish()?, CString::default()));
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
