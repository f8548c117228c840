//! The part of the run directory's file system that is kept for records: what users fill, logs and scripts, ends before it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes that are kept, and the part of a small file system that is.
const KEPT_MAX: u64 = 16 << 20;
const KEPT_SHARE: u64 = 4;

/// Sizes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Bytes that can be written before what is kept begins.
    pub bytes: u64,
    /// Bytes of all of it.
    pub size: u64,
}

/// Looks at the file system of `folder`.
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

/// Held from the look at what is left until it is written to: two who look before either writes would take it twice.
pub fn taking() -> MutexGuard<'static, ()> {
    static TAKING: Mutex<()> = Mutex::new(());
    TAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file, if that leaves what is kept.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] if there is no room, then there is no file either; as write(2).
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
    // A tmpfs without a limit says that it has no blocks at all.
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
