//! The directory that a layer is unpacked into. Whatever links are in it, nothing outside of it is reached: the kernel
//! resolves each path as if the directory were the root (openat2(2), RESOLVE_IN_ROOT).

use crate::error::ImageError;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What the kernel may be asked to resolve.
const WITHIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
/// Overlayfs' mark of a directory that hides those below it (Documentation/filesystems/overlayfs.rst).
const OPAQUE: &str = "trusted.overlay.opaque";
/// Longest text file that is read: a list of users.
const TEXT_MAX: u64 = 1 << 20;
/// Most components of a path.
const DEPTH_MAX: usize = 128;

/// A directory that is being filled.
pub(crate) struct Tree {
    root: OwnedFd,
    /// The directory that was used last, and its path.
    last: Option<(PathBuf, OwnedFd)>,
}

impl Tree {
    /// Takes an empty directory.
    ///
    /// # Errors
    /// There is none.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|errno| ImageError::io("open", root, errno))?;
        Ok(Tree { root, last: None })
    }

    /// Opens the directory that has `path`, and makes it if need be.
    fn parent<'a>(&'a mut self, path: &'a Path) -> Result<(&'a OwnedFd, &'a OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let opened = match self.open_directory(parent) {
                Err(Errno::NOENT) => self.make_all(parent)?,
                opened => opened?,
            };
            self.last = Some((parent.to_owned(), opened));
        }
        match &self.last {
            Some((_, directory)) => Ok((directory, name)),
            None => Err(Errno::NOENT),
        }
    }

    fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), WITHIN)
    }

    fn make_all(&self, path: &Path) -> Result<OwnedFd, Errno> {
        if path.components().count() > DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut so_far = PathBuf::new();
        let mut directory = self.open_directory(&so_far)?;
        for component in path.components() {
            so_far.push(component);
            directory = match self.open_directory(&so_far) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(
                        &directory,
                        component.as_os_str(),
                        Mode::from_raw_mode(0o755),
                    )?;
                    self.open_directory(&so_far)?
                }
                opened => opened?,
            };
        }
        Ok(directory)
    }

    /// Runs `make` in the directory of `path`; what has the name already is removed first.
    fn instead<T>(
        &mut self,
        path: &Path,
        make: impl Fn(&OwnedFd, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (directory, name) = self.parent(path)?;
        let made = match make(directory, name) {
            Err(Errno::EXIST) => {
                let is_directory = match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                    Err(Errno::ISDIR) => true,
                    removed => removed.map(|()| false)?,
                };
                if is_directory {
                    rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?;
                }
                make(directory, name)?
            }
            made => made?,
        };
        // A link could now lead elsewhere.
        self.last = None;
        Ok(made)
    }

    /// Makes a file.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn file(
        &mut self,
        path: &Path,
        mode: u32,
        owner: (u32, u32),
        modified: i64,
        fill: impl FnOnce(&File) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let failed = |errno| ImageError::io("unpack", path, errno);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |directory: &OwnedFd, name: &OsStr| {
            rustix::fs::openat(directory, name, flags, Mode::RUSR)
        };
        let (directory, name) = self.parent(path).map_err(failed)?;
        let file = match open(directory, name) {
            Err(Errno::EXIST) => self.instead(path, open),
            opened => opened,
        };
        let file = File::from(file.map_err(failed)?);
        fill(&file)?;
        let settle = || {
            rustix::fs::fchown(&file, user(owner.0), group(owner.1))?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            let time = Timespec {
                tv_sec: modified,
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            rustix::fs::futimens(&file, &times)
        };
        settle().map_err(failed)
    }

    /// Makes a directory, or changes that of this name; the empty path is the root.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn directory(
        &mut self,
        path: &Path,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<(), ImageError> {
        let failed = |errno| ImageError::io("unpack", path, errno);
        if path.as_os_str().is_empty() {
            let own = self.root.as_fd();
            return settle(own, mode, owner).map_err(failed);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |directory: &OwnedFd, name: &OsStr| {
            rustix::fs::openat(directory, name, flags, Mode::empty())
        };
        let make = |directory: &OwnedFd, name: &OsStr| {
            rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o700))?;
            open(directory, name)
        };
        let (parent, name) = self.parent(path).map_err(failed)?;
        let made = match open(parent, name) {
            Err(_) => self.instead(path, make),
            opened => opened,
        };
        settle(made.map_err(failed)?.as_fd(), mode, owner).map_err(failed)
    }

    /// Makes a symbolic link, whatever it says.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn symlink(
        &mut self,
        path: &Path,
        target: &Path,
        owner: (u32, u32),
    ) -> Result<(), ImageError> {
        let made = self.instead(path, |directory, name| {
            rustix::fs::symlinkat(target, directory, name)?;
            give(directory, name, owner)
        });
        made.map_err(|errno| ImageError::io("unpack", path, errno))
    }

    /// Makes another name of a file of this layer.
    ///
    /// # Errors
    /// There is no such file, or it is a directory.
    pub fn hard_link(&mut self, path: &Path, target: &Path) -> Result<(), ImageError> {
        let mut link = || {
            let (from, old) = self.parent(target)?;
            let (from, old) = (from.try_clone().map_err(|_| Errno::MFILE)?, old.to_owned());
            self.instead(path, |directory, name| {
                rustix::fs::linkat(&from, &old, directory, name, AtFlags::empty())
            })
        };
        match link() {
            Err(Errno::NOENT) => {
                let why = format!(
                    "its target {} is not in the layer",
                    target.display().to_string().escape_debug()
                );
                Err(ImageError::bad(
                    format!("the hard link {}", path.display()),
                    why,
                ))
            }
            linked => linked.map_err(|errno| ImageError::io("unpack", path, errno)),
        }
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn fifo(&mut self, path: &Path, mode: u32, owner: (u32, u32)) -> Result<(), ImageError> {
        let made = self.instead(path, |directory, name| {
            rustix::fs::mknodat(directory, name, FileType::Fifo, Mode::RUSR, 0)?;
            rustix::fs::chmodat(directory, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            give(directory, name, owner)
        });
        made.map_err(|errno| ImageError::io("unpack", path, errno))
    }

    /// Hides what the layers below have under this name, unless this layer has something there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn whiteout(&mut self, path: &Path) -> Result<(), ImageError> {
        let mut make = || {
            let (directory, name) = self.parent(path)?;
            // Overlayfs' sign of it: a device that is none.
            match rustix::fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0)
            {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            }
        };
        make().map_err(|errno| ImageError::io("unpack", path, errno))
    }

    /// Hides all that the layers below have in a directory.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make_opaque(&mut self, path: &Path) -> Result<(), ImageError> {
        let mut make = || {
            let probe = path.join("-");
            let (directory, _) = self.parent(&probe)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
            rustix::fs::fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
        };
        make().map_err(|errno| ImageError::io("unpack", path, errno))
    }

    /// Waits until all of it is on disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self, path: &Path) -> Result<(), ImageError> {
        rustix::fs::syncfs(&self.root).map_err(|errno| ImageError::io("write", path, errno))
    }
}

/// Reads a short text file below a directory, whose links stay below it.
///
/// # Errors
/// ENOENT: nothing is there; another: it is no such file.
pub(crate) fn read(root: &Path, path: &Path) -> Result<String, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(root, path, flags, Mode::empty(), WITHIN)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mut text = Vec::new();
    let read = File::from(file).take(TEXT_MAX).read_to_end(&mut text);
    read.map_err(|_| Errno::IO)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Gives a link, or a pipe, its owner.
fn give(directory: &OwnedFd, name: &OsStr, owner: (u32, u32)) -> Result<(), Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(directory, name, user(owner.0), group(owner.1), flags)
}

fn settle(directory: impl AsFd, mode: u32, owner: (u32, u32)) -> Result<(), Errno> {
    rustix::fs::fchown(&directory, user(owner.0), group(owner.1))?;
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))
}

/// The largest number means "no change" to the kernel: no user has it.
fn user(id: u32) -> Option<Uid> {
    Some(Uid::from_raw(id.min(u32::MAX - 1)))
}

fn group(id: u32) -> Option<Gid> {
    Some(Gid::from_raw(id.min(u32::MAX - 1)))
}
