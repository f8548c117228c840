//! The bounds of what an image may take when it is unpacked.

use crate::error::ImageError;
use std::path::Path;

/// Most bytes of an image, and most entries.
const BYTES_MAX: u64 = 16 << 30;
const ENTRIES_MAX: u64 = 1_000_000;
/// The part of the file system that images leave free: a tenth.
const KEPT_SHARE: u64 = 10;

/// Bytes and entries that are left for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes.
    pub bytes: u64,
    /// Files, directories, links and whiteouts.
    pub entries: u64,
}

impl Budget {
    /// Returns the free space of the file system of a directory, within the bounds of an image.
    ///
    /// # Errors
    /// As statvfs(3).
    pub fn on(directory: &Path) -> Result<Self, ImageError> {
        let found = rustix::fs::statvfs(directory);
        let found =
            found.map_err(|errno| ImageError::io("look at the free space of", directory, errno))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // A file system without a limit reports no blocks.
        let free = match bytes(found.f_blocks) {
            0 => u64::MAX,
            all => bytes(found.f_bavail).saturating_sub(all / KEPT_SHARE),
        };
        Ok(Budget {
            bytes: free.min(BYTES_MAX),
            entries: ENTRIES_MAX,
        })
    }

    /// Takes the bytes of a part of an image.
    ///
    /// # Errors
    /// So many are not left.
    pub(crate) fn take_bytes(&mut self, bytes: u64) -> Result<(), ImageError> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| {
            ImageError::bad(
                "the image",
                "unpacked, it takes more bytes than there is room for (at most 16 GiB, and a tenth of the file system stays free)",
            )
        })?;
        Ok(())
    }

    /// Takes an entry.
    ///
    /// # Errors
    /// None is left.
    pub(crate) fn take_entry(&mut self) -> Result<(), ImageError> {
        self.entries = self.entries.checked_sub(1).ok_or_else(|| {
            let why = format!("it has more than {ENTRIES_MAX} files");
            ImageError::bad("the image", why)
        })?;
        Ok(())
    }
}
