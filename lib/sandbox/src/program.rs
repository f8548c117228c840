//! The program that an instance runs, opened once and executed through its descriptor, so that the instance needs no
//! file system to be started in and a change on disk between check and start cannot matter.

use crate::elf::{self, Linkage};
use crate::error::{Errno, OsError};
use crate::regular;
use rustix::fs::{MemfdFlags, Mode, SealFlags, StatVfsMountFlags};
use std::fs::{File, Metadata};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The values that change when another file is installed: device, inode, length, and time of change in seconds and
/// nanoseconds.
pub type FileVersion = (u64, u64, u64, i64, i64);

/// Returns the version of a file. `None`: there is no such file.
pub fn file_version(path: &Path) -> Option<FileVersion> {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}

/// Longest program that is copied because others than root can change it.
const COPY_BYTES_MAX: u64 = 256 << 20;
/// Tries to seal a copy. The kernel waits some 150 ms in each.
const SEAL_TRIES: u32 = 8;
const NO_FILE: &str = "it is not a regular file";
/// An executable file, open.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    origin: PathBuf,
    linkage: Linkage,
    sealed: bool,
    /// True if only root can change the file.
    is_roots: bool,
}

/// Reason for which a program cannot be run in an instance.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// Not a program that the kernel loads by itself.
    #[error(
        "{path} is not an ELF executable of this machine ({why}); scripts need their interpreter as the program"
    )]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The defect of the file.
        why: &'static str,
    },
    /// Instances run as a user of their own, who may not execute the file.
    #[error(
        "{path} has mode {mode:03o}: an instance runs as another user and may not execute it; chmod o+x {path}"
    )]
    NotForOthers {
        /// The file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file would have to be copied to memory.
    #[error(
        "{path} has {bytes} bytes and can be changed by others than root: of such a program at most {COPY_BYTES_MAX} bytes are copied; \
         chown root {path}; chmod go-w {path}"
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The length of the file.
        bytes: u64,
    },
    /// The file system forbids execution.
    #[error("{path} is on a file system mounted noexec; copy the program elsewhere")]
    NoExec {
        /// The file.
        path: PathBuf,
    },
}

impl Program {
    /// The same file once more.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            origin: self.origin.clone(),
            linkage: self.linkage.clone(),
            sealed: self.sealed,
            is_roots: self.is_roots,
        })
    }

    /// Opens an executable file.
    ///
    /// # Errors
    /// [`ProgramError`]: missing, not an ELF executable of this machine, not executable by others, mounted noexec.
    pub fn open(path: &Path) -> Result<Self, ProgramError> {
        let opening = |errno| OsError::new("open program", path.display(), errno);
        let found = regular::look_at(path).map_err(opening)?;
        let found = found.ok_or_else(|| not_executable(path, NO_FILE))?;
        Self::from_fd(regular::reopen(found.as_fd()).map_err(opening)?, path)
    }

    /// Takes a program that is already open for reading; `origin` is what messages call it.
    ///
    /// # Errors
    /// As [`Program::open`].
    pub fn from_fd(fd: OwnedFd, origin: &Path) -> Result<Self, ProgramError> {
        let (file, metadata) = regular_file(fd, origin)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o001 == 0 {
            return Err(ProgramError::NotForOthers {
                path: origin.to_owned(),
                mode,
            });
        }
        let mount = rustix::fs::fstatvfs(&file)
            .map_err(|errno| OsError::new("stat file system of", origin.display(), errno))?;
        if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(ProgramError::NoExec {
                path: origin.to_owned(),
            });
        }
        let linkage = linkage(&file, metadata.len(), origin)?;
        let is_roots = regular::is_roots(file.as_fd())
            .map_err(|errno| OsError::new("stat program", origin.display(), errno))?;
        Ok(Self {
            fd: file.into(),
            origin: origin.to_owned(),
            linkage,
            sealed: false,
            is_roots,
        })
    }

    /// Takes a program of an image, open for reading: what may change it, and whether it may be executed, is the business of the
    /// image's root directory, and its loader is in there.
    ///
    /// # Errors
    /// It is no ELF executable of this machine.
    pub fn of_image(fd: OwnedFd, origin: &Path) -> Result<Self, ProgramError> {
        let (file, metadata) = regular_file(fd, origin)?;
        let found = elf::linkage(metadata.len(), |bytes, at| file.read_exact_at(bytes, at));
        Ok(Self {
            linkage: found.map_err(|why| not_executable(origin, why))?,
            fd: file.into(),
            origin: origin.to_owned(),
            sealed: false,
            is_roots: false,
        })
    }

    /// Returns a copy in memory that no process can change, of mode 0111. A single copy serves any number of
    /// instances.
    ///
    /// A process that may not read its own program is undumpable to every user but the host's root: the kernel
    /// forgets the setting of `prctl(PR_SET_DUMPABLE)` at each exec, but not this property. A sealed copy also makes
    /// the platform independent of an upgrade that replaces the file. The copy costs the size of the program in
    /// memory.
    ///
    /// # Errors
    /// The kernel's refusal to make an executable memory file (sysctl vm.memfd_noexec=2).
    pub fn sealed_copy(&self) -> Result<Self, ProgramError> {
        let mut from = self
            .duplicate()
            .map_err(|errno| copying(&self.origin, errno))?;
        let fd = sealed(&self.origin, |to| {
            from.rewind()?;
            // The file may grow meanwhile.
            std::io::copy(&mut from.take(COPY_BYTES_MAX), to)
        })?;
        Self::of_sealed(fd, &self.origin)
    }

    /// A program that came from elsewhere, as a [`Program::sealed_copy`]; `origin` is what messages call it.
    ///
    /// # Errors
    /// As [`Program::open`] and [`Program::sealed_copy`].
    pub fn of_bytes(bytes: &[u8], origin: &Path) -> Result<Self, ProgramError> {
        let fd = sealed(origin, |to| {
            to.write_all(bytes).map(|()| bytes.len() as u64)
        })?;
        Self::of_sealed(fd, origin)
    }

    /// Returns the program as it was checked: the file itself, if root alone can change the file, else a
    /// [`Program::sealed_copy`]. The owner of a file can write to it until it is executed.
    ///
    /// # Errors
    /// As [`Program::sealed_copy`]; [`ProgramError::TooLong`].
    pub fn unchangeable(self) -> Result<Self, ProgramError> {
        if self.sealed || self.is_roots {
            return Ok(self);
        }
        let file = self.duplicate();
        let length = file.and_then(|file| Ok(rustix::fs::fstat(file)?.st_size));
        let bytes = length.map_err(|errno| copying(&self.origin, errno))?;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if bytes > COPY_BYTES_MAX {
            let path = self.origin;
            return Err(ProgramError::TooLong { path, bytes });
        }
        self.sealed_copy()
    }

    fn of_sealed(fd: OwnedFd, origin: &Path) -> Result<Self, ProgramError> {
        let (file, metadata) = regular_file(fd, origin)?;
        Ok(Self {
            linkage: linkage(&file, metadata.len(), origin)?,
            fd: file.into(),
            origin: origin.to_owned(),
            sealed: true,
            is_roots: true,
        })
    }

    fn duplicate(&self) -> Result<File, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map(File::from)
    }

    /// Returns the files that the program needs to start.
    pub fn linkage(&self) -> &Linkage {
        &self.linkage
    }

    /// Returns the path of the program.
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Returns true if root alone can change the file.
    pub fn is_roots(&self) -> bool {
        self.is_roots
    }

    /// Returns true if the program is a [`Program::sealed_copy`].
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes a file, and looks at it.
fn regular_file(fd: OwnedFd, origin: &Path) -> Result<(File, Metadata), ProgramError> {
    let file = File::from(fd);
    let reading = |error| OsError::from_io("read program", origin.display(), &error);
    let metadata = file.metadata().map_err(reading)?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(not_executable(origin, NO_FILE)),
    }
}

fn copying(origin: &Path, errno: Errno) -> OsError {
    OsError::new("copy program to memory", origin.display(), errno)
        .remedy("sysctl vm.memfd_noexec=0 allows executable memory files")
}

/// Makes a file in memory of mode 0111 that no process can change, with the content that `fill` writes.
fn sealed(
    origin: &Path,
    fill: impl FnOnce(&mut File) -> std::io::Result<u64>,
) -> Result<OwnedFd, OsError> {
    let copying = |errno| copying(origin, errno);
    let name = origin.file_name().unwrap_or_default().as_bytes();
    let name = name.get(..name.len().min(200)).unwrap_or_default();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC; there, memory files are executable anyway.
    let memory = rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(name, flags))
        .map_err(copying)?;
    let mut to = File::from(memory);
    fill(&mut to).map_err(|error| copying(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    rustix::fs::fchmod(&to, Mode::from_raw_mode(0o111)).map_err(copying)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    seal(&to, seals).map_err(copying)?;
    // The kernel does not execute a file that is open for writing, sealed or not: open it again and close the writer.
    regular::reopen(to.as_fd()).map_err(copying)
}

/// Seals a memory file. The kernel refuses a seal against writing while it moves a page of the file (compaction, for example): the
/// page is busy for a moment.
fn seal(file: &File, seals: SealFlags) -> Result<(), Errno> {
    for _ in 0..SEAL_TRIES {
        match rustix::fs::fcntl_add_seals(file, seals) {
            Err(Errno::BUSY) => {}
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

fn not_executable(path: &Path, why: &'static str) -> ProgramError {
    ProgramError::NotExecutable {
        path: path.to_owned(),
        why,
    }
}

/// Reads what the program needs to start. The kernel maps the segments of its loader as the loader asks: a loader that others than
/// root can change is refused, because it could ask for memory that is writable and executable.
fn linkage(file: &File, size: u64, path: &Path) -> Result<Linkage, ProgramError> {
    let found = elf::linkage(size, |bytes, at| file.read_exact_at(bytes, at));
    let found = found.map_err(|why| not_executable(path, why))?;
    if let Linkage::Dynamic { interpreter } = &found
        && let Ok(Some(loader)) = regular::look_at(interpreter)
        && regular::is_roots(loader.as_fd()) != Ok(true)
    {
        let why = "its loader can be changed by others than root; link it with the system's";
        return Err(not_executable(path, why));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::elf;

    fn file_with(bytes: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), permissions).unwrap();
        file
    }

    #[test]
    fn static_and_dynamic_programs_are_distinguished() {
        let file = file_with(&elf(None), 0o755);
        assert_eq!(
            *Program::open(file.path()).unwrap().linkage(),
            Linkage::Static
        );
        let file = file_with(&elf(Some(b"/lib64/ld.so\0")), 0o755);
        let interpreter = PathBuf::from("/lib64/ld.so");
        let program = Program::open(file.path()).unwrap();
        assert_eq!(*program.linkage(), Linkage::Dynamic { interpreter });
    }

    /// Catches: a loader of the user's own, whose segments were not checked.
    #[test]
    fn a_loader_that_others_can_change_is_refused() {
        let loader = file_with(&elf(None), 0o777);
        let path = [loader.path().as_os_str().as_bytes(), b"\0"].concat();
        let program = file_with(&elf(Some(&path)), 0o755);
        let refused = Program::open(program.path()).unwrap_err().to_string();
        assert!(refused.contains("its loader can be changed"), "{refused}");
        let sent = Program::of_bytes(&elf(Some(&path)), Path::new("sent"));
        assert!(sent.is_err());
    }

    #[test]
    fn what_cannot_run_is_refused_with_the_reason() {
        let script = file_with(
            b"#!/bin/sh\nexit 0\n                                                      ",
            0o755,
        );
        let text = Program::open(script.path()).unwrap_err().to_string();
        assert!(text.contains("scripts"), "{text}");
        let private = file_with(&elf(None), 0o700);
        let text = Program::open(private.path()).unwrap_err().to_string();
        assert!(text.contains("chmod o+x"), "{text}");
        let relative = file_with(&elf(Some(b"ld.so\0")), 0o755);
        assert!(Program::open(relative.path()).is_err());
        assert!(Program::open(Path::new("/nonexistent/program")).is_err());
        assert!(Program::open(Path::new("/dev/null")).is_err());
        assert!(Program::open(Path::new("/")).is_err());
    }

    #[test]
    fn a_sealed_copy_is_the_same_program_and_cannot_be_changed() {
        let bytes = elf(None);
        let file = file_with(&bytes, 0o755);
        let copy = Program::open(file.path()).unwrap().sealed_copy().unwrap();
        assert!(copy.is_sealed());
        let mut inside = Vec::new();
        copy.duplicate().unwrap().read_to_end(&mut inside).unwrap();
        assert_eq!(inside, bytes);
        assert!(copy.duplicate().unwrap().write_all(b"x").is_err());
        let sent = Program::of_bytes(&bytes, Path::new("sent")).unwrap();
        assert!(sent.is_sealed() && *sent.linkage() == Linkage::Static);
        assert!(sent.duplicate().unwrap().write_all(b"x").is_err());
        assert!(Program::of_bytes(b"no program", Path::new("sent")).is_err());
    }

    // Catches: a file that is executed by its descriptor instead of as it was checked, although another user owns the
    // file.
    #[test]
    fn a_program_that_others_can_change_is_executed_as_it_was_looked_at() {
        let root = rustix::process::geteuid().is_root();
        for (owner, mode, is_copied) in [(0, 0o755, !root), (0, 0o775, true), (1000, 0o755, true)] {
            let file = file_with(&elf(None), mode);
            if root {
                std::os::unix::fs::chown(file.path(), Some(owner), None).unwrap();
            }
            let program = Program::open(file.path()).unwrap().unchangeable().unwrap();
            assert_eq!(program.is_sealed(), is_copied, "{owner} {mode:o}");
            std::fs::write(file.path(), b"other").unwrap();
            let mut inside = Vec::new();
            let mut own = program.duplicate().unwrap();
            own.rewind().unwrap();
            own.read_to_end(&mut inside).unwrap();
            assert_eq!(inside == elf(None), is_copied);
        }
    }
}
