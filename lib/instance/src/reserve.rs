//! The reserve for records on the run directory's file system: files that users fill, logs and scripts, stop before
//! the reserve.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest reserve in bytes. On a small file system the reserve is a part of it.
const KEPT_MAX: u64 = 16 << 20;
const KEPT_SHARE: u64 = 4;

/// Sizes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Bytes that can be written before the reserve begins.
    pub bytes: u64,
    /// Bytes of the whole file system.
    pub size: u64,
}

/// Reads the free space of the file system of `folder`.
///
/// # Errors
/// As statvfs(3).
pub fn left(folder: &Path) -> io::Result<Left> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(of(
        found.f_blocks.saturating_mul(found.f_frsize),
        found.f_bavail.saturating_mul(found.f_frsize),
    ))
}

/// Locks the reserve. Held from the reading of the free space until the write, so that two writers cannot use the
/// same space.
pub fn taking() -> MutexGuard<'static, ()> {
    static TAKING: Mutex<()> = Mutex::new(());
    TAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file if the reserve stays free.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] if there is no room, and then no file is left; otherwise as write(2).
pub fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let _until_written = taking();
    let folder = file.parent().unwrap_or(file);
    if bytes.len() as u64 > left(folder)?.bytes {
        let text = format!("there is no room in {}", folder.display());
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    fs::write(file, bytes)
}

fn of(size: u64, free: u64) -> Left {
    // A tmpfs without a limit reports zero blocks.
    if size == 0 {
        return Left {
            bytes: u64::MAX,
            size: u64::MAX,
        };
    }
    let kept = KEPT_MAX.min(size / KEPT_SHARE);
    Left {
        bytes: free.saturating_sub(kept),
        size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_kept() {
        const MIB: u64 = 1 << 20;
        assert_eq!(of(8 * MIB, 8 * MIB).bytes, 6 * MIB);
        assert_eq!(of(8 * MIB, MIB).bytes, 0);
        assert_eq!(of(1 << 30, 17 * MIB).bytes, MIB);
        assert_eq!(of(0, 0).bytes, u64::MAX);
    }
}
