//! Guest images: static ELF files for x86-64 that begin at [`IMAGE`].
//!
//! An image is checked once and then used where it lies: pages that no guest may write are the same memory for all
//! guests on the host.

use crate::memory::Mapping;
use crate::tables::{IMAGE_SPAN_MAX, PAGE};
use nfluid_guest::abi::IMAGE;
use object::LittleEndian;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, EM_X86_64, ET_EXEC, FileHeader64, PF_W, PF_X, PT_INTERP, PT_LOAD,
};
use object::read::elf::{FileHeader, ProgramHeader};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Longest image in bytes.
pub const IMAGE_BYTES_MAX: u64 = 64 << 20;
/// Most segments that are loaded.
pub const SEGMENTS_MAX: usize = 8;

/// The reason why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No ELF file of the right class.
    #[error(
        "the guest image is no 64-bit ELF file for x86-64: build it for the target x86_64-unknown-none"
    )]
    NotElf,
    /// The image is not static.
    #[error(
        "the guest image is not linked statically at a fixed address: link it with '-static -no-pie' and the script image.ld"
    )]
    NotStatic,
    /// The headers contradict the file.
    #[error("the guest image is damaged: {0}")]
    Damaged(&'static str),
    /// A segment is at a wrong place.
    #[error(
        "segment {number} of the guest image, {from:#x} to {to:#x}, {why}: link the image with the script image.ld"
    )]
    Place {
        /// Number of the segment.
        number: usize,
        /// First address.
        from: u64,
        /// Address behind the last byte.
        to: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// There are too many segments.
    #[error("the guest image has {0} segments, and at most 8 are loaded")]
    Segments(usize),
    /// The file cannot be read.
    #[error("reading the guest image: {0}")]
    Read(std::io::Error),
    /// The file is too long.
    #[error("the guest image has {0} bytes, and at most 67108864 are read")]
    TooLong(u64),
}

/// The rights of a guest to a page, beside reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// It may write.
    pub write: bool,
    /// It may run what is there.
    pub execute: bool,
}

/// A part of an image that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address in the guest.
    pub address: u64,
    /// Bytes in the guest; those that the file has not are zero.
    pub bytes: u64,
    /// Position in the file.
    pub at: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// What the guest may do.
    pub rights: Rights,
}

impl Segment {
    /// Address behind the last byte.
    pub fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// Returns the addresses of whole pages that are used where the file lies: of a segment that nobody writes, and that
    /// lies in the file as it lies in memory.
    pub fn shared_pages(&self) -> Option<(u64, u64)> {
        let is_shared = !self.rights.write
            && self.address.is_multiple_of(PAGE)
            && self.at.is_multiple_of(PAGE)
            && self.file_bytes == self.bytes;
        is_shared.then(|| (self.address, self.end().next_multiple_of(PAGE)))
    }
}

/// The bytes of an image.
#[derive(Debug, Clone)]
enum Bytes {
    /// Part of this program, at the beginning of a page.
    Own(&'static [u8]),
    /// A mapped file.
    File(Arc<Mapping>),
}

/// A checked image.
#[derive(Debug, Clone)]
pub struct Image {
    bytes: Bytes,
    entry: u64,
    segments: Vec<Segment>,
}

/// Bytes that begin at a page.
#[repr(C, align(4096))]
struct Aligned<T: ?Sized>(T);

static FUNCTIONS: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("NFLUID_GUEST_IMAGE")));

impl Image {
    /// The image of all network functions of the catalogue, which is part of this program.
    ///
    /// # Errors
    /// It was built by another version.
    pub fn functions() -> Result<Self, ImageError> {
        Self::of(Bytes::Own(&FUNCTIONS.0))
    }

    /// Maps the image in a file. The caller makes sure that nobody shortens the file.
    ///
    /// # Errors
    /// The file cannot be read, or is no image.
    pub fn from_file(file: OwnedFd) -> Result<Self, ImageError> {
        let found = rustix::fs::fstat(&file).map_err(|why| ImageError::Read(why.into()))?;
        let bytes = u64::try_from(found.st_size).unwrap_or(0);
        if bytes > IMAGE_BYTES_MAX {
            return Err(ImageError::TooLong(bytes));
        }
        if bytes == 0 {
            return Err(ImageError::NotElf);
        }
        let mapping = Mapping::of_file(&file, bytes as usize).map_err(ImageError::Read)?;
        Self::of(Bytes::File(Arc::new(mapping)))
    }

    fn of(bytes: Bytes) -> Result<Self, ImageError> {
        let (entry, segments) = parse(bytes.get())?;
        Ok(Image {
            bytes,
            entry,
            segments,
        })
    }

    /// Returns the address of the first instruction.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Returns the segments by their addresses.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get()
    }

    /// Returns the bytes at addresses of pages that are used where the image lies, if all of them are of one segment.
    pub fn constants(&self, address: u64, length: u64) -> Option<&[u8]> {
        let is_in = |it: &&Segment| it.shared_pages().is_some() && it.address <= address;
        let segment = self.segments.iter().rev().find(is_in)?;
        let from = address - segment.address;
        let to = from.checked_add(length)?;
        if to > segment.file_bytes {
            return None;
        }
        let at = segment.at as usize;
        self.bytes().get(at + from as usize..at + to as usize)
    }

    /// Returns the first address behind all segments, at the beginning of a page.
    pub fn end(&self) -> u64 {
        let end = self.segments.last().map_or(IMAGE, Segment::end);
        end.next_multiple_of(PAGE)
    }
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::File(mapping) => mapping.bytes(),
        }
    }
}

/// Checks an ELF file. Returns the address of the first instruction, and the segments by their addresses.
///
/// # Errors
/// See [`ImageError`].
pub fn parse(bytes: &[u8]) -> Result<(u64, Vec<Segment>), ImageError> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| ImageError::NotElf)?;
    let ident = header.e_ident();
    if ident.class != ELFCLASS64
        || ident.data != ELFDATA2LSB
        || header.e_machine.get(endian) != EM_X86_64
    {
        return Err(ImageError::NotElf);
    }
    if header.e_type.get(endian) != ET_EXEC {
        return Err(ImageError::NotStatic);
    }
    let damaged = |_| ImageError::Damaged("its program headers are not in the file");
    let headers = header.program_headers(endian, bytes).map_err(damaged)?;
    if headers.iter().any(|it| it.p_type(endian) == PT_INTERP) {
        return Err(ImageError::NotStatic);
    }
    let loaded = headers
        .iter()
        .filter(|it| it.p_type(endian) == PT_LOAD && it.p_memsz(endian) > 0);
    let mut segments = Vec::new();
    for (number, it) in loaded.enumerate() {
        if number == SEGMENTS_MAX {
            return Err(ImageError::Segments(headers.len()));
        }
        let flags = it.p_flags(endian);
        segments.push(segment(
            number,
            bytes.len() as u64,
            Segment {
                address: it.p_vaddr(endian),
                bytes: it.p_memsz(endian),
                at: it.p_offset(endian),
                file_bytes: it.p_filesz(endian),
                rights: Rights {
                    write: flags.contains(PF_W),
                    execute: flags.contains(PF_X),
                },
            },
        )?);
    }
    segments.sort_by_key(|segment| segment.address);
    check_apart(&segments)?;
    let entry = header.e_entry(endian);
    let starts = |it: &Segment| it.rights.execute && (it.address..it.end()).contains(&entry);
    if !segments.iter().any(starts) {
        return Err(ImageError::Damaged("it begins outside of its code"));
    }
    Ok((entry, segments))
}

/// Checks one segment of a file of `length` bytes.
fn segment(number: usize, length: u64, found: Segment) -> Result<Segment, ImageError> {
    let Segment {
        address,
        bytes,
        at,
        file_bytes,
        rights,
    } = found;
    let place = |why| ImageError::Place {
        number,
        from: address,
        to: address.saturating_add(bytes),
        why,
    };
    if file_bytes > bytes {
        return Err(ImageError::Damaged(
            "a segment has more bytes in the file than in memory",
        ));
    }
    if at.checked_add(file_bytes).is_none_or(|end| end > length) {
        return Err(ImageError::Damaged(
            "a segment ends behind the end of the file",
        ));
    }
    let end = address.checked_add(bytes);
    if address < IMAGE || end.is_none_or(|end| end > IMAGE + IMAGE_SPAN_MAX) {
        return Err(place("is not between 0x600000 and 0x1600000"));
    }
    if rights.write && rights.execute {
        return Err(place("can be written and run"));
    }
    Ok(found)
}

/// Checks that no two segments share a page with different rights, or a byte.
fn check_apart(segments: &[Segment]) -> Result<(), ImageError> {
    for (number, two) in segments.windows(2).enumerate() {
        let place = |why| ImageError::Place {
            number: number + 1,
            from: two[1].address,
            to: two[1].end(),
            why,
        };
        if two[0].end() > two[1].address {
            return Err(place("overlaps another one"));
        }
        let same_page = (two[0].end() - 1) / PAGE == two[1].address / PAGE;
        if same_page && two[0].rights != two[1].rights {
            return Err(place("shares a page with one of other rights"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
