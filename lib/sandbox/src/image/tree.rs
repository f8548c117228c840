//! The merged tree of an image's layers and of what an instance writes (overlayfs).

use super::{Owners, WITHIN};
use crate::error::{Errno, OsError};
use crate::identity::{INSIDE_ID, KernelId};
use crate::own_namespace;
use crate::sys;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Where the mounts are put together: hidden in the mount namespace of one short-lived thread.
const STAGE: &CStr = c"/proc";
/// Most files that an instance writes.
const FILES_MAX: u64 = 65_536;
/// Least room for what an instance writes, and for what it is given: `/etc/resolv.conf`, places of volumes.
const ROOM_MIN: u64 = 1 << 20;

/// What a tree is made of.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a> {
    /// The directories of the layers, the lowest first.
    pub layers: &'a [PathBuf],
    /// The user and group of the image whose files are the instance's own.
    pub owner: (u32, u32),
    /// The instance.
    pub id: KernelId,
    /// Most bytes that it writes, which are in memory and charged to its cgroup; 0: it writes nothing.
    pub writable_bytes: u64,
}

/// The root directory of one instance. Dropped with its last user, and what was written with it.
#[derive(Debug)]
pub struct Tree {
    /// For the parent, who writes there also when the instance cannot, and when it has its own.
    own: OwnedFd,
    /// For the instance.
    mount: OwnedFd,
    owner: (u32, u32),
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Tree {}

impl Tree {
    /// Merges the layers.
    ///
    /// # Errors
    /// A layer is not there; the kernel has no overlayfs, or no idmapped mounts below it (5.19), or not on this file system.
    pub fn new(of: &Layers<'_>) -> Result<Self, OsError> {
        let owners = Owners::new(of.owner, of.id)?;
        let views = of.layers.iter().map(|layer| view(layer, &owners));
        let views: Vec<OwnedFd> = views.collect::<Result<_, _>>()?;
        let root_owner = if of.owner.0 == 0 { of.id.raw() } else { 0 };
        let room = of.writable_bytes.max(ROOM_MIN);
        let merging = || merge(&views, room, root_owner);
        let [own, mount] = own_namespace::within(&own_namespace::MOUNTS, merging)?;
        if of.writable_bytes == 0 {
            sys::mount_setattr(mount.as_fd(), c"", sys::MOUNT_READ_ONLY, false).map_err(
                |errno| OsError::new("make read-only", "the root directory of an image", errno),
            )?;
        }
        Ok(Tree {
            own,
            mount,
            owner: of.owner,
        })
    }

    /// The user and group number that the instance sees as its own: those of the image, but never root's, which programs
    /// expect more of than an instance may.
    pub(crate) fn inside(&self) -> (u32, u32) {
        match self.owner {
            (0, _) => (INSIDE_ID, INSIDE_ID),
            owner => owner,
        }
    }

    /// Opens a file for reading, as the instance finds it by this path.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.own, within(path), flags, Mode::empty(), WITHIN)
    }

    /// Writes a file of root's, which every user of the instance reads, instead of one of this name.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), OsError> {
        let failed = |errno| OsError::new("write into the image", path.display(), errno);
        let name = path.file_name().ok_or_else(|| failed(Errno::INVAL))?;
        let folder = self.make_directory(path.parent().unwrap_or(Path::new("/")))?;
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(failed)?;
        let written = File::from(file).write_all(content);
        written.map_err(|error| OsError::from_io("write into the image", path.display(), &error))
    }

    /// Opens a directory, and makes it, and those above it, if need be. Links lead where they lead for the instance.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn make_directory(&self, path: &Path) -> Result<OwnedFd, OsError> {
        let failed = |errno| OsError::new("make a directory in the image", path.display(), errno);
        let mut so_far = PathBuf::from(".");
        let mut directory = self.directory(&so_far).map_err(failed)?;
        for component in within(path).components() {
            let Component::Normal(name) = component else {
                continue;
            };
            so_far.push(name);
            directory = match self.directory(&so_far) {
                Err(Errno::NOENT) => self.make_one(&directory, name, &so_far).map_err(failed)?,
                opened => opened.map_err(failed)?,
            };
        }
        Ok(directory)
    }

    fn make_one(&self, above: &OwnedFd, name: &OsStr, path: &Path) -> Result<OwnedFd, Errno> {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(above, name, mode)?;
        // The mask of the daemon held for the line above.
        rustix::fs::chmodat(above, name, mode, AtFlags::empty())?;
        self.directory(path)
    }

    fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.own, path, flags, Mode::empty(), WITHIN)
    }

    /// Returns the mount of the instance.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn mount(&self) -> Result<OwnedFd, OsError> {
        self.mount
            .try_clone()
            .map_err(|error| OsError::from_io("keep", "the root directory of an image", &error))
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

/// A path relative to the root.
fn within(path: &Path) -> &Path {
    match path.strip_prefix("/").unwrap_or(path) {
        root if root.as_os_str().is_empty() => Path::new("."),
        path => path,
    }
}

/// A detached view of a layer in which the files of one user are the instance's.
pub(super) fn view(layer: &Path, owners: &Owners) -> Result<OwnedFd, OsError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let view = open_tree(CWD, layer, flags)
        .map_err(|errno| OsError::new("open the layer", layer.display(), errno))?;
    owners.apply(view.as_fd()).map_err(|errno| {
        OsError::new("map the owners of the layer", layer.display(), errno)
            .remedy("the images' directory must be on a file system with idmapped mounts, such as ext4, xfs or btrfs")
    })?;
    Ok(view)
}

/// Merges views of layers, the lowest first, in the mount namespace of the calling thread. Returns two detached mounts of the
/// same tree: a detached mount cannot be cloned elsewhere.
fn merge(views: &[OwnedFd], room: u64, root_owner: u32) -> Result<[OwnedFd; 2], OsError> {
    let staged = || {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", private)?;
        let options = CString::new(format!("mode=0755,size={room},nr_inodes={FILES_MAX}"));
        let options = options.map_err(|_| Errno::INVAL)?;
        mount(
            c"tmpfs",
            STAGE,
            c"tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            Some(options.as_c_str()),
        )?;
        rustix::process::chdir(STAGE)?;
        let everyone = Mode::from_raw_mode(0o755);
        let mut lower = Vec::new();
        for (number, view) in views.iter().enumerate() {
            let place = format!("l{number}");
            rustix::fs::mkdir(&place, everyone)?;
            move_mount(
                view,
                c"",
                CWD,
                &place,
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
            )?;
            lower.push(place);
        }
        for place in ["written", "work", "merged"] {
            rustix::fs::mkdir(place, everyone)?;
            rustix::fs::chmod(place, everyone)?;
        }
        let owner = rustix::fs::Uid::from_raw(root_owner);
        rustix::fs::chown(
            "written",
            Some(owner),
            Some(rustix::fs::Gid::from_raw(root_owner)),
        )?;
        lower.reverse();
        Ok::<_, Errno>(lower.join(":"))
    };
    let lower =
        staged().map_err(|errno| OsError::new("stage the layers of an image", "", errno))?;
    let merged = || {
        // What is written is in memory: nothing has to reach a disk.
        let options = format!("lowerdir={lower},upperdir=written,workdir=work,volatile");
        let options = CString::new(options).map_err(|_| Errno::INVAL)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount(
            c"overlay",
            c"merged",
            c"overlay",
            flags,
            Some(options.as_c_str()),
        )?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok([
            open_tree(CWD, c"merged", flags)?,
            open_tree(CWD, c"merged", flags)?,
        ])
    };
    merged().map_err(|errno: Errno| {
        OsError::new("merge the layers of an image", "", errno).remedy(
            "the kernel needs overlayfs (modprobe overlay), since 5.19 with idmapped layers",
        )
    })
}
