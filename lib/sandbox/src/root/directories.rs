//! The directories that a root shows, opened or made.

use super::{Content, LIBRARY_DIRECTORIES, Link, Root, Shown, ShownDirectory, View};
use crate::error::{Errno, OsError};
use crate::identity::KernelId;
use crate::image::{Owners, Tree};
use crate::sys;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, mknodat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen,
};
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

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
    if !shown.etc.is_empty() {
        directories.push(with_files(&shown.etc)?);
    }
    // Of directories in each other, the outer one is mounted first.
    let views = shown
        .extra
        .iter()
        .map(|view| (view.at.as_path(), Some(view)));
    let scratch = shown.scratch.iter().map(|path| (Path::new(path), None));
    let mut others: Vec<(&Path, Option<&View>)> = views.chain(scratch).collect();
    others.sort_by_key(|(path, _)| *path);
    for (path, view) in others {
        check_path(path)?;
        view.map_or(Ok(()), |view| check_path(&view.of))?;
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

fn check_path(path: &Path) -> Result<(), OsError> {
    let tidy = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.parent().is_some() && path.components().all(tidy) {
        return Ok(());
    }
    Err(OsError::new("show directory", path.display(), Errno::INVAL)
        .remedy("directories are absolute paths without `..`, and not `/`"))
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
