//! Writes the `newc` archive that the kernel unpacks as its initramfs (Documentation/driver-api/early-userspace/
//! buffer-format.rst in the kernel's sources). Folders above an entry are made by the writer.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive being written. Every entry belongs to root.
pub struct Archive<W> {
    out: W,
    inode: u32,
    written: BTreeSet<Vec<u8>>,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            inode: 0,
            written: BTreeSet::new(),
        }
    }

    /// Adds a regular file. An existing path keeps its first content.
    pub fn file(&mut self, path: &Path, mode: u32, data: &[u8]) -> io::Result<()> {
        self.entry(path, FILE | mode, data)
    }

    pub fn folder(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        self.entry(path, FOLDER | mode, &[])
    }

    pub fn link(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.entry(path, LINK | 0o777, target.as_os_str().as_encoded_bytes())
    }

    pub fn contains(&self, path: &Path) -> bool {
        self.written.contains(name(path))
    }

    /// Writes the end mark.
    pub fn finish(mut self) -> io::Result<W> {
        self.raw(b"TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &Path, mode: u32, data: &[u8]) -> io::Result<()> {
        if self.contains(path) || name(path).is_empty() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.entry(parent, FOLDER | 0o755, &[])?;
        }
        self.written.insert(name(path).to_vec());
        self.raw(name(path), mode, data)
    }

    fn raw(&mut self, name: &[u8], mode: u32, data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(data.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name size, checksum
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = b"070701".to_vec();
        for field in fields {
            write!(header, "{field:08x}")?;
        }
        header.extend_from_slice(name);
        header.push(0);
        self.padded(&header)?;
        self.padded(data)
    }

    fn padded(&mut self, data: &[u8]) -> io::Result<()> {
        self.out.write_all(data)?;
        let padding = data.len().next_multiple_of(4) - data.len();
        self.out.write_all(&[0; 3][..padding])
    }
}

/// Returns a path without the leading slash, as names in the archive are written.
fn name(path: &Path) -> &[u8] {
    path.strip_prefix("/")
        .unwrap_or(path)
        .as_os_str()
        .as_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sample() -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        archive
            .file(Path::new("/a/b/hello"), 0o755, b"hello")
            .unwrap();
        archive
            .file(Path::new("/a/b/hello"), 0o755, b"again")
            .unwrap();
        archive
            .link(Path::new("/a/link"), Path::new("b/hello"))
            .unwrap();
        archive.folder(Path::new("/tmp"), 0o1777).unwrap();
        archive.finish().unwrap()
    }

    #[test]
    fn entries_are_aligned_and_unique() {
        let bytes = sample();
        assert_eq!(bytes.len() % 4, 0);
        let starts = bytes
            .windows(6)
            .enumerate()
            .filter(|(_, six)| six == b"070701");
        let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 6, "a, a/b, hello, link, tmp, trailer");
        assert!(starts.iter().all(|at| at % 4 == 0));
    }

    #[test]
    fn busybox_reads_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = match Command::new("busybox")
            .args(["cpio", "-i", "-d"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
        {
            Ok(child) => child,
            Err(error) => {
                let reason = format!(
                    "SKIPPED guest::cpio::tests::busybox_reads_the_archive: busybox: {error}"
                );
                writeln!(io::stdout(), "{reason}").unwrap();
                return;
            }
        };
        child.stdin.take().unwrap().write_all(&sample()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(
            std::fs::read(folder.path().join("a/link")).unwrap(),
            b"hello"
        );
        assert!(folder.path().join("tmp").is_dir());
    }
}
