//! The headers of an ELF file (elf(5)): whether the kernel of this machine loads the file, and the files that it
//! needs to start.
//!
//! The file is untrusted. However long the file is, and whatever its headers say, only its header, at most 128
//! program headers and the path of its loader are read.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most program headers, and longest path of a loader in bytes, that are looked at. Real ones are far smaller.
const HEADERS_MAX: u16 = 128;
const INTERPRETER_BYTES_MAX: u64 = 4096;
/// Types of program headers, and permissions of a segment (elf(5)).
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PF_X: u32 = 1;
const PF_W: u32 = 2;

/// The files that a program needs to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// The program's own file alone.
    Static,
    /// A loader, and through it shared libraries.
    Dynamic {
        /// The loader's path as the program names it.
        interpreter: PathBuf,
    },
}

/// Reads the ELF header and the program headers (elf(5)) of a 64-bit little-endian file.
///
/// The kernel maps segments and the stack as the file asks, before any system call filter looks: a file that asks for
/// memory that is writable and executable is refused here. Without PT_GNU_STACK the stack of a 64-bit program is not
/// executable, on x86-64 and arm64 since Linux 5.8 (arch/x86/include/asm/elf.h, elf_read_implies_exec).
///
/// `size` is the file's length in bytes. `read_exact_at` fills a buffer from a place in the file; it is called at most
/// 130 times, for at most 4096 bytes.
///
/// # Errors
/// The error says, in words, why the file is no program for this machine.
pub fn linkage(
    size: u64,
    read_exact_at: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<Linkage, &'static str> {
    let mut header = [0u8; 64];
    read_exact_at(&mut header, 0).map_err(|_| "it is too short")?;
    if header[..4] != *b"\x7fELF" {
        return Err("it does not begin as one");
    }
    if header[4] != 2 || header[5] != 1 {
        return Err("it is not 64-bit little-endian");
    }
    if u16_at(&header, 18) != Some(machine()) {
        return Err("it is for another machine");
    }
    if !matches!(u16_at(&header, 16), Some(2 | 3)) {
        return Err("it is an object file or a core dump");
    }
    let table = u64_at(&header, 32).unwrap_or(0);
    let entry_size = u16_at(&header, 54).unwrap_or(0);
    let count = u16_at(&header, 56).unwrap_or(0);
    if entry_size != 56 || count == 0 || count > HEADERS_MAX {
        return Err("its program headers are damaged");
    }
    let mut linkage = Linkage::Static;
    for index in 0..u64::from(count) {
        let mut entry = [0u8; 56];
        let at = table.checked_add(index * 56).filter(|at| *at < size);
        let at = at.ok_or("its program headers are damaged")?;
        read_exact_at(&mut entry, at).map_err(|_| "its program headers are damaged")?;
        let kind = u32_at(&entry, 0).unwrap_or(0);
        let flags = u32_at(&entry, 4).unwrap_or(0);
        match kind {
            PT_LOAD if flags & (PF_W | PF_X) == PF_W | PF_X => {
                return Err("it has a segment that is writable and executable; link it without -N");
            }
            PT_GNU_STACK if flags & PF_X != 0 => {
                return Err("it asks for an executable stack; link it with -z noexecstack");
            }
            // The kernel takes the first.
            PT_INTERP if linkage == Linkage::Static => {
                let at = u64_at(&entry, 8).unwrap_or(u64::MAX);
                let length = u64_at(&entry, 32).unwrap_or(u64::MAX);
                let interpreter = interpreter(&read_exact_at, at, length)
                    .ok_or("the path of its loader is damaged")?;
                linkage = Linkage::Dynamic { interpreter };
            }
            _ => {}
        }
    }
    Ok(linkage)
}

fn interpreter(
    read_exact_at: &impl Fn(&mut [u8], u64) -> io::Result<()>,
    at: u64,
    length: u64,
) -> Option<PathBuf> {
    if !(2..=INTERPRETER_BYTES_MAX).contains(&length) {
        return None;
    }
    let mut bytes = vec![0u8; usize::try_from(length).ok()?];
    read_exact_at(&mut bytes, at).ok()?;
    let path = std::ffi::CStr::from_bytes_with_nul(&bytes).ok()?;
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    path.is_absolute().then(|| path.to_owned())
}

/// e_machine of this build: EM_X86_64 or EM_AARCH64.
fn machine() -> u16 {
    if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// As [`linkage`], of a file in memory.
///
/// # Errors
/// As [`linkage`].
pub fn linkage_of(bytes: &[u8]) -> Result<Linkage, &'static str> {
    linkage(bytes.len() as u64, |buffer, at| {
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
        let found = rest.and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header and one program header: a segment, or the path of a loader.
    pub(crate) fn elf(interpreter: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16] = 3;
        bytes[18..20].copy_from_slice(&machine().to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64] = 1;
        if let Some(path) = interpreter {
            bytes[64] = 3;
            bytes[64 + 8] = 120;
            bytes[64 + 32..64 + 40].copy_from_slice(&(path.len() as u64).to_le_bytes());
            bytes.extend_from_slice(path);
        }
        bytes
    }

    // promise: 3.20
    #[test]
    fn a_header_asks_for_a_bounded_number_of_bytes() {
        let mut bytes = elf(None);
        bytes[56] = HEADERS_MAX as u8;
        bytes.resize(64 + 56 * usize::from(HEADERS_MAX), 0);
        let read = std::cell::Cell::new(0);
        let count = |buffer: &mut [u8], at: u64| {
            read.set(read.get() + buffer.len());
            let at = at as usize;
            buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
            Ok(())
        };
        assert_eq!(linkage(u64::MAX, count), Ok(Linkage::Static));
        assert_eq!(read.get(), bytes.len());
        bytes[56] += 1;
        bytes.extend([0; 56]);
        assert!(linkage_of(&bytes).is_err());
        let path = |length: u64| [&vec![b'/'; length as usize - 1][..], b"\0"].concat();
        assert!(linkage_of(&elf(Some(&path(INTERPRETER_BYTES_MAX)))).is_ok());
        assert!(linkage_of(&elf(Some(&path(INTERPRETER_BYTES_MAX + 1)))).is_err());
        for length in [0, 1, u64::MAX] {
            let mut bytes = elf(Some(b"/\0"));
            bytes[64 + 32..64 + 40].copy_from_slice(&length.to_le_bytes());
            assert!(linkage_of(&bytes).is_err(), "{length}");
        }
    }

    // Catches: `linkage` looks for PT_INTERP alone; or it stops there.
    // promise: 3.9
    #[test]
    fn memory_that_is_writable_and_executable_cannot_be_asked_for() {
        let with = |headers: &[(u32, u32)]| {
            let mut bytes = elf(None);
            bytes[56] = headers.len() as u8;
            bytes.truncate(64);
            for (kind, flags) in headers {
                let mut entry = [0; 56];
                entry[..4].copy_from_slice(&kind.to_le_bytes());
                entry[4..8].copy_from_slice(&flags.to_le_bytes());
                let path = 64 + 56 * headers.len() as u64;
                entry[8..16].copy_from_slice(&path.to_le_bytes());
                entry[32..40].copy_from_slice(&6u64.to_le_bytes());
                bytes.extend_from_slice(&entry);
            }
            bytes.extend_from_slice(b"/ld.so");
            bytes.push(0);
            let path = bytes.len() - 7;
            bytes[path..path + 6].copy_from_slice(b"/ld.s\0");
            linkage_of(&bytes)
        };
        const PF_R: u32 = 4;
        let plain = [
            (PT_INTERP, PF_R),
            (PT_LOAD, PF_R | PF_X),
            (PT_LOAD, PF_R | PF_W),
        ];
        with(&plain).unwrap();
        with(&[(PT_GNU_STACK, PF_R | PF_W)]).unwrap();
        for (bad, why) in [
            ((PT_LOAD, PF_R | PF_W | PF_X), "segment"),
            ((PT_LOAD, PF_W | PF_X), "segment"),
            ((PT_GNU_STACK, PF_R | PF_W | PF_X), "stack"),
        ] {
            for headers in [vec![bad], [&plain[..], &[bad]].concat()] {
                let refused = with(&headers).unwrap_err();
                assert!(refused.contains(why), "{refused}");
            }
        }
    }

    proptest! {
        // promise: 3.20
        #[test]
        fn damaged_programs_never_panic(
            at in 0usize..120, value in any::<u8>(), cut in 0usize..140,
        ) {
            let mut bytes = elf(Some(b"/lib64/ld.so\0"));
            bytes[at] = value;
            bytes.truncate(cut.max(1));
            let _verdict = linkage_of(&bytes);
        }
    }
}
