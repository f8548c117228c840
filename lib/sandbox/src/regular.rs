//! Files that a user names and the daemon opens as root.
//!
//! Opening a file has effects: a FIFO blocks until a process writes to it, a tape is rewound, a watchdog is armed.
//! The path may be the user's program, the loader that an ELF file names, the interpreter of a script, or a key. So
//! the file is opened by O_PATH first, which only finds the file; its type is checked; and it is opened for reading
//! if it is a regular file.

use crate::error::Errno;
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// As open(2); [`io::ErrorKind::InvalidInput`] for everything that is no regular file, which is not opened;
/// [`io::ErrorKind::WouldBlock`] if another process has a lease on the file (fcntl(2), F_SETLEASE).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = look_at(path)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))?;
    Ok(reopen(found.as_fd())?.into())
}

/// Finds a regular file without opening it. The descriptor can name the file in a Landlock rule, and be reopened. Returns
/// `None` if the path leads to something else.
pub(crate) fn look_at(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&fd)?;
    let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    Ok(is_regular.then_some(fd))
}

/// Returns true if root alone can change the file.
pub(crate) fn is_roots(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let found = rustix::fs::fstat(fd)?;
    Ok(found.st_uid == 0 && found.st_mode & 0o022 == 0)
}

/// Opens the file of a descriptor again, for reading. The call does not wait for the holder of a lease.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landlock_rules;
    use crate::program::Program;
    use rustix::fs::{CWD, inotify, mknodat};
    use std::io::Read;
    use std::mem::MaybeUninit;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// Makes a FIFO that every user may execute, and a descriptor that shows whether it is opened.
    fn fifo(folder: &Path) -> (PathBuf, OwnedFd) {
        let path = folder.join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o777), 0).unwrap();
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).unwrap();
        inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).unwrap();
        (path, watch)
    }

    fn was_opened(watch: &OwnedFd) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 512];
        inotify::Reader::new(watch, &mut buffer).next().is_ok()
    }

    // Catches: `Program::open` opens with O_RDONLY and looks afterwards; `open_regular` leaves out the look.
    // promise: 3.18
    #[test]
    fn what_is_no_regular_file_is_looked_at_and_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, watch) = fifo(folder.path());
        assert!(Program::open(&path).is_err());
        let refused = open_regular(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            open_regular(Path::new("/dev/null")).unwrap_err().kind(),
            refused.kind()
        );
        assert!(!was_opened(&watch), "it was only looked at");
        // The watch reports an open of the file.
        rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        assert!(was_opened(&watch));
    }

    // Catches: the Landlock rule for an ELF file's loader opens the loader for reading. That open waits for a writer,
    // as the test itself is once a reader waits.
    // promise: 3.18
    #[test]
    fn the_loader_that_a_program_names_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, watch) = fifo(folder.path());
        let name = [path.to_str().unwrap().as_bytes(), b"\0"].concat();
        let elf = crate::elf::tests::elf(Some(&name));
        let program = folder.path().join("program");
        std::fs::write(&program, elf).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = Program::open(&program).unwrap();
        let ruleset = std::thread::spawn(move || {
            landlock_rules::ruleset(
                &program,
                &landlock_rules::Places::default(),
                crate::launch::Network::None,
            )
            .map(drop)
            .map_err(|why| why.to_string())
        });
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        while !ruleset.is_finished() {
            let reader = rustix::fs::open(&path, flags, Mode::empty());
            assert_eq!(
                reader.unwrap_err(),
                Errno::NXIO,
                "the loader is open for reading"
            );
            std::thread::yield_now();
        }
        ruleset.join().unwrap().unwrap();
        // The watch does not report the test's own attempts to write: none of them has opened the file.
        assert!(!was_opened(&watch));
    }

    #[test]
    fn a_regular_file_is_read_also_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "words").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut read = String::new();
        open_regular(&link)
            .unwrap()
            .read_to_string(&mut read)
            .unwrap();
        assert_eq!(read, "words");
    }
}
