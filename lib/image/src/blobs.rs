//! The parts of an image where it is read from: files below a directory, or in a tar file.

use crate::entries::{Entries, Kind};
use crate::error::ImageError;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Most files in an archive of an image, and most links from one name to the next.
const FILES_MAX: usize = 10_000;
const LINKS_MAX: usize = 8;
/// Longest document of an image (the bound that registries have as well).
const DOCUMENT_MAX: u64 = 4 << 20;

/// Where an image is read from.
pub(crate) struct Blobs {
    path: PathBuf,
    place: Place,
}

enum Place {
    Directory(File),
    Archive(HashMap<PathBuf, Part>),
}

/// A part of an archive.
enum Part {
    /// Its first byte, and how many.
    File(u64, u64),
    /// The part has the content of another one.
    Link(PathBuf),
}

impl Blobs {
    /// Opens a directory.
    ///
    /// # Errors
    /// There is none.
    pub fn in_directory(path: &Path) -> Result<Self, ImageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let opened = opened.map_err(|errno| ImageError::io("open", path, errno))?;
        Ok(Blobs {
            path: path.to_owned(),
            place: Place::Directory(opened.into()),
        })
    }

    /// Opens a tar file, and looks what is in it.
    ///
    /// # Errors
    /// The file is no tar file, is compressed as a whole, or is cut off.
    pub fn in_archive(path: &Path) -> Result<Self, ImageError> {
        let reading = |error| ImageError::io("read", path, error);
        let mut file = open_file(path)?;
        let mut start = [0; 4];
        let length = file.read(&mut start).map_err(reading)?;
        if start.get(..length).is_some_and(is_compressed) {
            let why = "the whole file is compressed: decompress it first, with gunzip or zstd -d";
            return Err(ImageError::bad(path.display().to_string(), why));
        }
        file.rewind().map_err(reading)?;
        let size = file.metadata().map_err(reading)?.len();
        let mut parts = HashMap::new();
        let name = path.display().to_string();
        let mut entries = Entries::of_file(file, &name);
        while let Some(entry) = entries.next()? {
            if parts.len() == FILES_MAX {
                let why = format!("it has more than {FILES_MAX} files");
                return Err(ImageError::bad(name, why));
            }
            let part = match &entry.kind {
                Kind::File => {
                    let end = entry.position.checked_add(entry.size);
                    if end.is_none_or(|end| end > size) {
                        let why = format!("it is cut off in {}", entry.path.display());
                        return Err(ImageError::bad(name, why));
                    }
                    Part::File(entry.position, entry.size)
                }
                Kind::Symlink(target) => {
                    let folder = entry.path.parent().unwrap_or(Path::new(""));
                    Part::Link(tidy(&folder.join(target)))
                }
                Kind::HardLink(target) => Part::Link(target.clone()),
                _ => continue,
            };
            parts.insert(entry.path, part);
        }
        Ok(Blobs {
            path: path.to_owned(),
            place: Place::Archive(parts),
        })
    }

    /// Opens a part for reading.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn open(&self, name: &Path) -> Result<Box<dyn Read>, ImageError> {
        let missing = || {
            ImageError::bad(
                self.path.display().to_string(),
                format!("it has no {}", name.display()),
            )
        };
        match &self.place {
            Place::Directory(directory) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let file = rustix::fs::openat2(directory, name, flags, Mode::empty(), within);
                let file = File::from(
                    file.map_err(|errno| ImageError::io("open", &self.path.join(name), errno))?,
                );
                let is_file = file.metadata().is_ok_and(|found| found.is_file());
                is_file
                    .then(|| Box::new(file) as Box<dyn Read>)
                    .ok_or_else(missing)
            }
            Place::Archive(parts) => {
                let mut part = parts.get(&tidy(name)).ok_or_else(missing)?;
                for _ in 0..LINKS_MAX {
                    match part {
                        Part::File(position, size) => {
                            let mut file = open_file(&self.path)?;
                            let sought = file.seek(SeekFrom::Start(*position));
                            sought.map_err(|error| ImageError::io("read", &self.path, error))?;
                            return Ok(Box::new(file.take(*size)));
                        }
                        Part::Link(target) => part = parts.get(target).ok_or_else(missing)?,
                    }
                }
                Err(missing())
            }
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// There is none of this name, or it is too long.
    pub fn document(&self, name: &Path) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let reader = self.open(name)?.take(DOCUMENT_MAX + 1);
        let length = BufReader::new(reader).read_to_end(&mut bytes);
        let length =
            length.map_err(|error| ImageError::io("read", &self.path.join(name), error))?;
        if length as u64 > DOCUMENT_MAX {
            let why = format!("it has more than {} MiB", DOCUMENT_MAX >> 20);
            return Err(ImageError::bad(name.display().to_string(), why));
        }
        Ok(bytes)
    }
}

fn open_file(path: &Path) -> Result<File, ImageError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|errno| ImageError::io("open", path, errno))?);
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        _ => Err(ImageError::bad(path.display().to_string(), "it is no file")),
    }
}

/// Returns true for the beginnings of gzip and zstd.
fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b]) || start == [0x28, 0xb5, 0x2f, 0xfd]
}

/// Removes `.` and `..` from a name by its text.
fn tidy(name: &Path) -> PathBuf {
    use std::path::Component;
    let mut tidied = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(name) => tidied.push(name),
            Component::ParentDir => {
                tidied.pop();
            }
            _ => {}
        }
    }
    tidied
}
