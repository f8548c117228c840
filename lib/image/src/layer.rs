//! Unpacking of a layer.

use crate::blobs::Blobs;
use crate::budget::Budget;
use crate::choice::Layer;
use crate::digest::Hashing;
use crate::entries::{Entries, Kind};
use crate::error::ImageError;
use crate::tree::Tree;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How whiteouts begin (layers of the OCI image specification).
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Most bytes of a layer's tar file that are not content of files.
const BESIDE_FILES_MAX: u64 = 2 << 30;
const CHUNK: usize = 64 << 10;

/// What was in an image and is not in its layers here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Device nodes.
    pub devices: u64,
    /// Setuid and setgid bits.
    pub setuid: u64,
}

/// Unpacks a layer into an empty directory, and compares it with its digests.
///
/// # Errors
/// The layer is not what its digests say, is cut off, takes more than the budget, or has an entry that cannot be.
pub(crate) fn unpack(
    blobs: &Blobs,
    layer: &Layer,
    into: &Path,
    budget: &mut Budget,
) -> Result<LeftOut, ImageError> {
    let name = format!("layer {}", layer.blob.display());
    let reading = |error: io::Error| ImageError::bad(name.as_str(), error.to_string());
    let mut stored = BufReader::with_capacity(CHUNK, Hashing::new(blobs.open(&layer.blob)?));
    // A tar file has more bytes than its files, but not without bound.
    let most = budget.bytes.saturating_add(BESIDE_FILES_MAX);
    let mut content = Hashing::new(decompressed(&mut stored).map_err(reading)?.take(most));
    let mut tree = Tree::open(into)?;
    // The digests are compared also after a failure: a damaged blob is called that, and not by what its damage looks like.
    let unpacked = unpack_entries(
        &mut Entries::of_stream(&mut content, &name),
        &mut tree,
        budget,
    );
    let rest = match unpacked {
        Ok(_) => Some(content.finish().map_err(reading)?.0),
        Err(_) => {
            drop(content);
            None
        }
    };
    let (blob, bytes) = stored.into_inner().finish().map_err(reading)?;
    let is_as_stored = layer
        .stored
        .as_ref()
        .is_none_or(|said| *said == (blob, bytes));
    let left_out = match unpacked {
        Ok(left_out) if is_as_stored && rest.as_ref() == Some(&layer.content) => left_out,
        Err(why) if is_as_stored => return Err(why),
        _ => {
            return Err(ImageError::bad(
                name,
                "it is not what its digest says: copy the image again",
            ));
        }
    };
    tree.sync(into)?;
    Ok(left_out)
}

/// The tar file in a blob, whatever it is compressed with.
fn decompressed<'a, R: BufRead + 'a>(stored: &'a mut R) -> io::Result<Box<dyn Read + 'a>> {
    let start = stored.fill_buf()?;
    Ok(match start {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(stored)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(Zstd {
            stored: Some(stored),
            frame: None,
        }),
        _ => Box::new(stored),
    })
}

/// Reads the frames of a zstd stream one after the other (RFC 8878).
struct Zstd<R: BufRead> {
    stored: Option<R>,
    frame: Option<Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>>,
}

/// The first four bytes of frames that are to be passed over, but for the lowest digit (RFC 8878, 3.1.2).
const SKIPPED: u32 = 0x184d_2a50;

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame. False: there is none.
    fn begin(&mut self) -> io::Result<bool> {
        let Some(mut stored) = self.stored.take() else {
            return Ok(false);
        };
        loop {
            let start = stored.fill_buf()?;
            if start.is_empty() {
                return Ok(false);
            }
            let mut head = [0; 8];
            let is_skipped = match start.first_chunk::<4>() {
                Some(magic) => u32::from_le_bytes(*magic) & !0xf == SKIPPED,
                None => false,
            };
            if !is_skipped {
                break;
            }
            stored.read_exact(&mut head)?;
            let [.., a, b, c, d] = head;
            let length = u64::from(u32::from_le_bytes([a, b, c, d]));
            io::copy(&mut (&mut stored).take(length), &mut io::sink())?;
        }
        let frame = StreamingDecoder::new(stored).map_err(io::Error::other)?;
        self.frame = Some(Box::new(frame));
        Ok(true)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let length = frame.read(buffer)?;
                if length > 0 || buffer.is_empty() {
                    return Ok(length);
                }
            }
            if let Some(frame) = self.frame.take() {
                self.stored = Some(frame.into_inner());
            }
            if !self.begin()? {
                return Ok(0);
            }
        }
    }
}

fn unpack_entries<R: Read>(
    entries: &mut Entries<'_, R>,
    tree: &mut Tree,
    budget: &mut Budget,
) -> Result<LeftOut, ImageError> {
    let mut left_out = LeftOut::default();
    while let Some(entry) = entries.next()? {
        budget.take_entry()?;
        let path = &entry.path;
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new(""));
        if name == OPAQUE {
            tree.make_opaque(folder)?;
            continue;
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            let is_name = !hidden.is_empty() && hidden != b"." && hidden != b"..";
            // Other names that begin like this are for the notes of a file system.
            if is_name && !hidden.starts_with(WHITEOUT) {
                tree.whiteout(&folder.join(std::ffi::OsStr::from_bytes(hidden)))?;
            }
            continue;
        }
        let mode = entry.mode & 0o1777;
        if mode != entry.mode && entry.kind == Kind::File {
            left_out.setuid += 1;
        }
        match &entry.kind {
            Kind::Directory => tree.directory(path, mode, entry.owner)?,
            Kind::Device => left_out.devices += 1,
            _ if name.is_empty() => return Err(entries.bad("its root is no directory")),
            Kind::File => {
                budget.take_bytes(entry.size)?;
                let size = entry.size;
                let content = entries.content();
                tree.file(path, mode, entry.owner, entry.modified, |file| {
                    fill(file, content, size, path)
                })?;
            }
            Kind::Symlink(target) => tree.symlink(path, target, entry.owner)?,
            Kind::HardLink(target) => tree.hard_link(path, target)?,
            Kind::Fifo => tree.fifo(path, mode, entry.owner)?,
        }
    }
    Ok(left_out)
}

fn fill(mut file: &File, mut content: impl Read, size: u64, path: &Path) -> Result<(), ImageError> {
    let mut buffer = [0; CHUNK];
    let mut written = 0;
    loop {
        let length = match content.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ImageError::io("unpack", path, error)),
        };
        let part = buffer.get(..length).unwrap_or_default();
        file.write_all(part)
            .map_err(|error| ImageError::io("write", path, error))?;
        written += length as u64;
    }
    if written != size {
        return Err(ImageError::bad(
            path.display().to_string(),
            "the layer is cut off in it",
        ));
    }
    Ok(())
}
