//! The text of a private key: read once, not disclosed, overwritten when dropped.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use zeroize::Zeroizing;

/// Longest file of a key, and of certificates.
pub const FILE_BYTES_MAX: u64 = 64 << 10;
/// Permissions of everybody but the owner (chmod(1)).
const OTHERS: u32 = 0o077;

/// The reason why a key was not read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The path is a folder, a device or a pipe.
    #[error("it is no file")]
    NoFile,
    /// The file belongs to an untrusted user.
    #[error("it belongs to user {0}; 'chown root' it")]
    Owner(u32),
    /// Others may read or change it.
    #[error("others than its owner have access to it (mode {0:04o}); 'chmod 600' it")]
    Mode(u32),
    /// The file is too long for a key.
    #[error("it has more than {FILE_BYTES_MAX} bytes, which is no key")]
    TooLong,
}

/// The text of a key file (PEM).
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// Reads a file that belongs to root or to this process's user, and to which no other user has access. The caller
    /// opens the file, because root must first check the target of a path that a user has given.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(mut file: File) -> Result<Self, KeyError> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(KeyError::NoFile);
        }
        let own = std::fs::metadata("/proc/self")?.uid();
        if ![0, own].contains(&found.uid()) {
            return Err(KeyError::Owner(found.uid()));
        }
        if found.mode() & OTHERS != 0 {
            return Err(KeyError::Mode(found.mode() & 0o7777));
        }
        Self::read_whole(&mut file)
    }

    /// Reads an inherited file, and overwrites it: other holders of the descriptor find nothing.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::TooLong`].
    pub fn take(file: &mut File) -> Result<Self, KeyError> {
        let key = Self::read_whole(file)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&vec![0; key.0.len()])?;
        Ok(key)
    }

    fn read_whole(file: &mut File) -> Result<Self, KeyError> {
        // At once as large as it may become: growing would leave copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        Ok(Key(text))
    }

    /// The text.
    pub fn pem(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    // promise: 17.2
    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        write(&path, "secret").expect("it is ours");
        for (mode, is_right) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            match Key::read(File::open(&path).expect("it is ours")) {
                Ok(key) => assert!(is_right && key.pem() == b"secret", "{mode:o}"),
                Err(error) => assert!(!is_right && error.to_string().contains("600"), "{error}"),
            }
        }
    }

    #[test]
    fn what_is_no_file_or_too_long_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |path: &Path| Key::read(File::open(path).expect("it is ours"));
        assert!(matches!(read(folder.path()), Err(KeyError::NoFile)));
        let path = folder.path().join("long");
        write(&path, vec![b'x'; FILE_BYTES_MAX as usize + 1]).expect("it is ours");
        set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        assert!(matches!(read(&path), Err(KeyError::TooLong)));
    }

    // promise: 17.7
    #[test]
    fn one_that_is_taken_is_not_there_any_more_and_is_never_shown() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"secret").expect("it is ours");
        file.rewind().expect("it is ours");
        let key = Key::take(&mut file).expect("it is there");
        assert_eq!(key.pem(), b"secret");
        assert!(!format!("{key:?}").contains("secret"));
        file.rewind().expect("it is ours");
        let mut left = Vec::new();
        file.read_to_end(&mut left).expect("it is ours");
        assert_eq!(left, [0; 6]);
    }
}
