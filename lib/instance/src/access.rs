//! What a document gives to a program: directories of the host, and texts.

use anyhow::{Context, ensure};
use nfluid_control::access::{Access, Volume};
use nfluid_sandbox::View;
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks at the volumes of an instance.
///
/// # Errors
/// One of them is no directory, or is reached by a link.
pub(crate) fn volumes(access: &Access) -> anyhow::Result<Vec<Seen>> {
    access.volumes.iter().map(Seen::open).collect()
}

/// Returns texts as the kernel takes them.
///
/// # Errors
/// One of them has a NUL.
pub(crate) fn strings(
    all: impl IntoIterator<Item = String>,
    what: &str,
) -> anyhow::Result<Vec<CString>> {
    let strings = all.into_iter().map(CString::new).collect::<Result<_, _>>();
    strings.with_context(|| format!("a NUL in {what}"))
}

/// Returns a working directory as the kernel takes it.
///
/// # Errors
/// The path has a NUL.
pub(crate) fn directory(path: &str) -> anyhow::Result<CString> {
    CString::new(path).context("a NUL in the working directory")
}

/// A volume, and which directory it was when it was looked at.
pub(crate) struct Seen {
    view: View,
    identity: (u64, u64),
}

impl Seen {
    /// Looks at the directory of a volume.
    fn open(volume: &Volume) -> anyhow::Result<Self> {
        let from = &volume.from;
        let path = Path::new(from);
        let found = path
            .canonicalize()
            .with_context(|| format!("the volume {from}"))?;
        let metadata = found.metadata();
        let metadata = metadata.with_context(|| format!("the volume {from}"))?;
        ensure!(metadata.is_dir(), "the volume {from} is no directory");
        // The check of the document was about the path as it is written.
        ensure!(
            found == path,
            "the volume {from} is at {}: name that one",
            found.display()
        );
        Ok(Seen {
            view: View {
                of: found,
                at: PathBuf::from(volume.place()),
                is_writable: volume.is_writable,
            },
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    /// Returns the instance's view of it.
    pub(crate) fn view(&self) -> View {
        self.view.clone()
    }

    /// Returns true if another directory has this path now, or none.
    pub(crate) fn is_outdated(&self) -> bool {
        let found = self.view.of.symlink_metadata();
        found.map_or(true, |found| (found.dev(), found.ino()) != self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 19.3
    #[test]
    fn a_volume_is_a_directory_and_no_link_to_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("there");
        let (file, link) = (real.join("file"), real.join("link"));
        std::fs::write(&file, "").expect("written");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let volume = |path: &Path| {
            Seen::open(&Volume {
                from: path.display().to_string(),
                at: None,
                is_writable: false,
            })
        };
        let seen = volume(&real).expect("a directory");
        assert_eq!(seen.view, View::from(real.clone()));
        for bad in [file, link, real.join("none")] {
            assert!(volume(&bad).is_err(), "no directory of this name");
        }
    }

    // promise: 20.10
    #[test]
    fn a_volume_that_was_replaced_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("there");
        let place = folder.join("data");
        std::fs::create_dir(&place).expect("made");
        let seen = Seen::open(&Volume {
            from: place.display().to_string(),
            at: None,
            is_writable: false,
        });
        let seen = seen.expect("a directory");
        assert!(!seen.is_outdated());
        let new = folder.join("new");
        std::fs::create_dir(&new).expect("made");
        std::fs::rename(&new, &place).expect("renamed");
        assert!(seen.is_outdated());
        std::fs::remove_dir(&place).expect("removed");
        assert!(seen.is_outdated());
    }
}
