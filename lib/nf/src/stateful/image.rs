//! Header and checksum of an image. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `NFLSTATE` |
//! | 2 | format of images |
//! | 2 | version of the NF's records |
//! | 1 + n | length of the NF's name, and the name |
//! | 8 + m | length of the records, and the records |
//! | 8 | XXH3-64 of everything before |
//!
//! The checksum detects damage, not forgery: a forger of an image can compute its checksum.

use super::StateError;
use alloc::vec::Vec;
use xxhash_rust::xxh3::xxh3_64;

/// Format of images that this version writes and reads.
pub const FORMAT: u16 = 1;
/// Longest image in bytes: a NAT with a million sessions has 40 MB.
pub const IMAGE_BYTES_MAX: usize = 256 << 20;

const MAGIC: &[u8; 8] = b"NFLSTATE";
/// Longest name of an NF.
const NAME_MAX: usize = 64;
/// Bytes besides the name before the length of the records.
const HEAD_BYTES: usize = 8 + 2 + 2 + 1;
/// Bytes besides name and records.
const FRAME_BYTES: usize = HEAD_BYTES + 8 + 8;

/// The content of an image.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub name: &'a str,
    pub version: u16,
    pub records: &'a [u8],
}

/// The beginning of an image, in `buffer`, whose content is of no interest any more; records follow.
pub(super) fn begin(mut buffer: Vec<u8>, name: &str, version: u16) -> Result<Vec<u8>, StateError> {
    if name.len() > NAME_MAX {
        return Err(StateError::TooLong(FRAME_BYTES + name.len()));
    }
    buffer.clear();
    buffer.extend_from_slice(MAGIC);
    buffer.extend_from_slice(&FORMAT.to_le_bytes());
    buffer.extend_from_slice(&version.to_le_bytes());
    buffer.push(name.len() as u8);
    buffer.extend_from_slice(name.as_bytes());
    buffer.extend_from_slice(&0u64.to_le_bytes());
    Ok(buffer)
}

/// Makes what [`begin`] has begun, and records follow, an image.
pub(super) fn seal(mut image: Vec<u8>, name: &str) -> Result<Vec<u8>, StateError> {
    let length = image.len() + size_of::<u64>();
    if length > IMAGE_BYTES_MAX {
        return Err(StateError::TooLong(length));
    }
    let records = (length - FRAME_BYTES - name.len()) as u64;
    let at = HEAD_BYTES + name.len();
    image[at..at + size_of::<u64>()].copy_from_slice(&records.to_le_bytes());
    let checksum = xxh3_64(&image);
    image.extend_from_slice(&checksum.to_le_bytes());
    Ok(image)
}

pub(super) fn open(image: &[u8]) -> Result<Opened<'_>, StateError> {
    if image.len() > IMAGE_BYTES_MAX {
        return Err(StateError::TooLong(image.len()));
    }
    let rest = image.strip_prefix(MAGIC).ok_or(StateError::NoImage)?;
    let short = || StateError::Length {
        found: image.len() as u64,
        said: FRAME_BYTES as u64,
    };
    let (format, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let found = u16::from_le_bytes(*format);
    if found != FORMAT {
        return Err(StateError::Format { found });
    }
    let (version, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (&name_len, rest) = rest.split_first().ok_or_else(short)?;
    let (name, rest) = rest
        .split_at_checked(usize::from(name_len))
        .ok_or_else(short)?;
    let (length, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let length = u64::from_le_bytes(*length);
    let said = length.saturating_add((FRAME_BYTES + name.len()) as u64);
    if said != image.len() as u64 {
        return Err(StateError::Length {
            found: image.len() as u64,
            said,
        });
    }
    let (records, checksum) = rest.split_last_chunk().ok_or_else(short)?;
    let summed = &image[..image.len() - size_of::<u64>()];
    if u64::from_le_bytes(*checksum) != xxh3_64(summed) {
        return Err(StateError::Checksum);
    }
    let name = core::str::from_utf8(name).map_err(|_| StateError::NoImage)?;
    Ok(Opened {
        name,
        version: u16::from_le_bytes(*version),
        records,
    })
}
