//! The entries of a tar file, with their long names, in bounded memory: the tar crate itself reads extension headers of any
//! length.

use crate::error::ImageError;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::{EntryType, Header, PaxExtensions};

/// Longest extension header: names and links of 4 KiB, and what else there is.
const EXTENSION_MAX: u64 = 1 << 20;
const BLOCK: u64 = 512;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// With its target, as it is written.
    Symlink(PathBuf),
    /// With its target, below the root.
    HardLink(PathBuf),
    Fifo,
    Device,
}

/// An entry. Its content is what [`Entries::content`] reads next.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Relative to the root, of normal components; empty: the root.
    pub path: PathBuf,
    pub kind: Kind,
    pub mode: u32,
    pub owner: (u32, u32),
    /// Seconds of the time of modification.
    pub modified: i64,
    pub size: u64,
    /// The place of the content in the tar file.
    pub position: u64,
}

/// Reads entries one after the other.
pub(crate) struct Entries<'a, R> {
    from: R,
    /// Passes bytes over.
    skip: fn(&mut R, u64) -> io::Result<()>,
    name: &'a str,
    /// Bytes read so far.
    at: u64,
    /// Bytes of the present entry's content, and of what fills its last block, that are not read yet.
    left: u64,
    padding: u64,
}

impl<'a> Entries<'a, BufReader<File>> {
    /// Reads a file whose content can be passed over.
    pub fn of_file(file: File, name: &'a str) -> Self {
        let skip = |from: &mut BufReader<File>, bytes: u64| {
            let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
            from.seek_relative(bytes)
        };
        Self::with(BufReader::new(file), skip, name)
    }
}

impl<'a, R: Read> Entries<'a, R> {
    /// Reads a stream.
    pub fn of_stream(from: R, name: &'a str) -> Self {
        let skip =
            |from: &mut R, bytes: u64| match io::copy(&mut from.take(bytes), &mut io::sink())? {
                read if read == bytes => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        Self::with(from, skip, name)
    }

    fn with(from: R, skip: fn(&mut R, u64) -> io::Result<()>, name: &'a str) -> Self {
        Entries {
            from,
            skip,
            name,
            at: 0,
            left: 0,
            padding: 0,
        }
    }

    /// Returns the next entry; `None`: there is none.
    ///
    /// # Errors
    /// The file is no tar file, is cut off, or has an entry that cannot be.
    pub fn next(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut long = Long::default();
        loop {
            let rest = self.left.saturating_add(self.padding);
            (self.skip)(&mut self.from, rest).map_err(|error| self.failed(&error))?;
            self.at = self.at.saturating_add(rest);
            (self.left, self.padding) = (0, 0);
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = header.entry_size().map_err(|error| self.failed(&error))?;
            let kind = header.entry_type();
            let size = if has_no_content(kind) { 0 } else { size };
            (self.left, self.padding) = (size, (BLOCK - size % BLOCK) % BLOCK);
            match kind {
                EntryType::GNULongName => long.path = Some(name_of(self.extension()?)),
                EntryType::GNULongLink => long.link = Some(name_of(self.extension()?)),
                EntryType::XHeader => long.read(&self.extension()?).map_err(|why| self.bad(why))?,
                EntryType::XGlobalHeader => {
                    self.extension()?;
                }
                _ => return self.entry(&header, kind, size, long).map(Some),
            }
        }
    }

    /// Reads the next block as a header. `None`: the end, of which two blocks of zeros are the sign.
    fn header(&mut self) -> Result<Option<Header>, ImageError> {
        let mut header = Header::new_old();
        let mut filled = 0;
        while let Some(room) = header
            .as_mut_bytes()
            .get_mut(filled..)
            .filter(|room| !room.is_empty())
        {
            match self.from.read(room) {
                // Some writers leave the blocks of zeros out.
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.bad("it is cut off")),
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        self.at += BLOCK;
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let bytes = header.as_bytes();
        // The field of the sum itself counts as spaces (pax(1)).
        let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
        let own: u32 = bytes
            .iter()
            .skip(148)
            .take(8)
            .map(|byte| u32::from(*byte))
            .sum();
        if header.cksum().ok() != Some(sum - own + 8 * u32::from(b' ')) {
            return Err(self.bad("it is no tar file, or damaged"));
        }
        Ok(Some(header))
    }

    /// Reads an extension header.
    fn extension(&mut self) -> Result<Vec<u8>, ImageError> {
        if self.left > EXTENSION_MAX {
            return Err(self.bad("it has a name of more than 1 MiB"));
        }
        let mut bytes = Vec::new();
        let read = self.content().read_to_end(&mut bytes);
        read.map_err(|error| self.failed(&error))?;
        if self.left > 0 {
            return Err(self.bad("it is cut off"));
        }
        Ok(bytes)
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        long: Long,
    ) -> Result<Entry, ImageError> {
        let failed = |error: io::Error| ImageError::bad(self.name, error.to_string());
        let path = long
            .path
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let link = long
            .link
            .or_else(|| Some(header.link_name_bytes()?.into_owned()));
        let link = link.unwrap_or_default();
        let path = inside(&path).map_err(|why| self.bad(why))?;
        let kind = match kind {
            EntryType::Regular | EntryType::Continuous if header.path_bytes().ends_with(b"/") => {
                Kind::Directory
            }
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(PathBuf::from(OsStr::from_bytes(&link))),
            EntryType::Link => Kind::HardLink(inside(&link).map_err(|why| self.bad(why))?),
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char | EntryType::Block => Kind::Device,
            _ => {
                let why = format!("{} is of a kind that is not known here", path.display());
                return Err(self.bad(why));
            }
        };
        if kind == Kind::File && long.size.is_some_and(|said| said != size) {
            return Err(self.bad("a file has two sizes"));
        }
        let old = header.as_old();
        let id = |said: Option<u32>, field: io::Result<u64>| match said {
            Some(id) => Ok(id),
            None => {
                u32::try_from(field?).map_err(|_| io::Error::other("a user number is too large"))
            }
        };
        Ok(Entry {
            owner: (
                id(long.user, or_0(&old.uid, || header.uid())).map_err(failed)?,
                id(long.group, or_0(&old.gid, || header.gid())).map_err(failed)?,
            ),
            mode: or_0(&old.mode, || header.mode()).map_err(failed)? & 0o7777,
            modified: header
                .mtime()
                .map(|time| i64::try_from(time).unwrap_or(0))
                .unwrap_or(0),
            position: self.at,
            path,
            kind,
            size,
        })
    }

    /// Reads the content of the present entry.
    pub fn content(&mut self) -> Content<'_, R> {
        Content {
            from: &mut self.from,
            left: &mut self.left,
            at: &mut self.at,
        }
    }

    /// A defect.
    pub fn bad(&self, why: impl Into<String>) -> ImageError {
        ImageError::bad(self.name, why)
    }

    fn failed(&self, error: &io::Error) -> ImageError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.bad("it is cut off"),
            _ => self.bad(error.to_string()),
        }
    }
}

/// The content of an entry.
pub(crate) struct Content<'a, R> {
    from: &'a mut R,
    left: &'a mut u64,
    at: &'a mut u64,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.take(*self.left).read(buffer)?;
        *self.left -= length as u64;
        *self.at += length as u64;
        Ok(length)
    }
}

/// What extension headers say about the next entry.
#[derive(Default)]
struct Long {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    user: Option<u32>,
    group: Option<u32>,
}

impl Long {
    /// Reads the records of an extended header (pax(1)).
    fn read(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(|_| "it has a malformed extended header")?;
            let value = record.value_bytes();
            fn number<T: std::str::FromStr>(value: &[u8]) -> Result<Option<T>, &'static str> {
                let number = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                number
                    .map(Some)
                    .ok_or("it has an extended header with a number that is none")
            }
            match record.key_bytes() {
                b"path" => self.path = Some(value.to_owned()),
                b"linkpath" => self.link = Some(value.to_owned()),
                b"size" => self.size = number(value)?,
                b"uid" => self.user = number(value)?,
                b"gid" => self.group = number(value)?,
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err("it has a sparse file, which layers have not");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns true for entries whose size, if they say any, is not that of content that follows (pax(1)).
fn has_no_content(kind: EntryType) -> bool {
    use EntryType::{Block, Char, Directory, Fifo, Link, Symlink};
    matches!(kind, Block | Char | Directory | Fifo | Link | Symlink)
}

/// Reads a field of a header. Some writers leave those empty that they have no value for.
fn or_0<T: Default>(field: &[u8], read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        true => Ok(T::default()),
        false => read(),
    }
}

/// GNU's long names end with a NUL.
fn name_of(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Returns a path below the root: what is absolute begins there. A path with `..` is refused.
fn inside(path: &[u8]) -> Result<PathBuf, String> {
    let path = Path::new(OsStr::from_bytes(path));
    let mut found = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(format!(
                    "it has the path '{}', which leads out of it",
                    path.display().to_string().escape_debug()
                ));
            }
        }
    }
    if found.as_os_str().as_bytes().contains(&0) {
        return Err("it has a path with a NUL".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tar file with long names and a link.
    fn written() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        let long = "d/".repeat(90);
        builder
            .append_data(&mut header, format!("{long}file"), &b"abc"[..])
            .expect("an entry");
        builder
            .append_pax_extensions([("path", &b"other"[..]), ("uid", b"7")])
            .expect("an entry");
        builder
            .append_data(&mut header, "short", &b"abc"[..])
            .expect("an entry");
        header.set_size(0);
        header.set_entry_type(EntryType::Symlink);
        builder
            .append_link(&mut header, "link", long)
            .expect("an entry");
        builder.into_inner().expect("finished")
    }

    /// Reads all there is: the number of entries, or an error.
    fn read(bytes: &[u8]) -> Option<usize> {
        let mut entries = Entries::of_stream(bytes, "test");
        let mut count = 0;
        while let Some(entry) = entries.next().ok()? {
            let mut content = Vec::new();
            entries.content().read_to_end(&mut content).ok()?;
            assert!(
                entry
                    .path
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)))
            );
            count += 1;
        }
        Some(count)
    }

    // promise: 20.2
    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&written()), Some(3));
        for end in (1..written().len()).step_by(97) {
            // What is cut off may be shorter, and is never more.
            assert!(read(&written()[..end]).is_none_or(|count| count <= 3));
        }
    }

    proptest! {
        // promise: 20.3
        #[test]
        fn any_file_is_survived(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            read(&bytes);
            let mut changed = written();
            for (index, byte) in changes {
                let length = changed.len();
                changed[index.index(length)] = byte;
            }
            // With the right sum of each block, the change is read as what it says.
            for block in changed.chunks_exact_mut(512) {
                let mut header = Header::new_old();
                header.as_mut_bytes().copy_from_slice(block);
                header.set_cksum();
                let mut summed = block.to_vec();
                summed.copy_from_slice(header.as_bytes());
                read(&summed);
            }
            read(&changed);
        }
    }
}
