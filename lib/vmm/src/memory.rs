//! The memory of a guest, as the monitor has it.

use crate::end::{End, MachineError};
use nfluid_guest::abi::{self, Call, MEMORY, Mailbox, Reply};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

/// Pages that are mapped into this process.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory; who may access which part at which time is decided by `Memory` and `Image`.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives access to bytes that nobody changes only ([`Mapping::bytes`]).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed memory, which takes pages when they are touched.
    pub fn zeroed(bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, flags) }?;
        // A huge page for each first touch would make a small guest a large one. A kernel without huge pages refuses.
        // SAFETY: the range was mapped above, and the advice changes no byte of it.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
        Self::of(start.cast(), bytes)
    }

    /// Maps a file that nobody changes, to be read.
    pub fn of_file(file: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE;
        // SAFETY: as in `zeroed`.
        let start = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, flags, file, 0) }?;
        Self::of(start.cast(), bytes)
    }

    fn of(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    /// Returns the address in this process.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns the bytes of a mapping that nobody writes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`. Only images are read in this way, whose files are sealed or read-only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Writes bytes at a position.
    ///
    /// # Panics
    /// If they do not fit: the caller has checked.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes);
        // SAFETY: the range lies within the mapping, of which no reference exists, as `self` is borrowed mutably.
        unsafe {
            let to = self.start.as_ptr().add(at);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made above, and all borrows of it end with `self`. An error leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The memory of a guest from [`MEMORY`] on, while the guest stands still.
#[derive(Debug)]
pub struct Memory(pub Mapping);

impl Memory {
    /// Makes memory of `bytes` bytes.
    ///
    /// # Errors
    /// The process has no room for it.
    pub fn new(bytes: u64) -> Result<Self, MachineError> {
        let mapped = Mapping::zeroed(bytes as usize);
        let mapped = mapped.map_err(|source| MachineError::Memory { bytes, source })?;
        Ok(Memory(mapped))
    }

    /// Returns the bytes of memory.
    pub fn len(&self) -> u64 {
        self.0.bytes as u64
    }

    /// Returns the bytes at an address that the guest has named.
    ///
    /// # Errors
    /// They are not in its memory.
    pub fn bytes(&self, address: u64, length: u64) -> Result<&[u8], End> {
        let at = self.position(address, length)?;
        // SAFETY: the range lies within the mapping. The guest, the only other writer, stands still while `self` is
        // borrowed: it runs in `Machine::run`, which borrows it mutably.
        Ok(unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().add(at), length as usize) })
    }

    /// Writes bytes to an address that the guest has named.
    ///
    /// # Errors
    /// The range is not in its memory.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), End> {
        let at = self.position(address, bytes.len() as u64)?;
        self.0.write(at, bytes);
        Ok(())
    }

    fn position(&self, address: u64, length: u64) -> Result<usize, End> {
        let outside = End::Protocol("it names bytes outside of its memory");
        let at = address.checked_sub(MEMORY).ok_or(outside.clone())?;
        let end = at.checked_add(length).ok_or(outside.clone())?;
        if end > self.len() {
            return Err(outside);
        }
        Ok(at as usize)
    }

    /// Returns the mailbox. All of it is numbers, for which every bit pattern is valid.
    pub fn mailbox(&mut self) -> &mut Mailbox {
        // SAFETY: memory begins with the mailbox, is page-aligned and larger. The guest stands still, as in `bytes`.
        unsafe { self.0.start.cast::<Mailbox>().as_mut() }
    }

    /// Returns the reply to the last call.
    pub fn reply(&self) -> Reply {
        // SAFETY: as in `mailbox`.
        unsafe { self.0.start.cast::<Mailbox>().as_ref() }.reply
    }

    /// Puts a call into the mailbox.
    pub fn put_call(&mut self, call: Call) {
        self.mailbox().call = call;
    }

    /// Puts a request into the mailbox, if it fits. Returns its address.
    pub fn put_request(&mut self, request: &[u8]) -> Option<u64> {
        let place = self.mailbox().request.get_mut(..request.len())?;
        place.copy_from_slice(request);
        Some(MEMORY + std::mem::offset_of!(Mailbox, request) as u64)
    }
}

const _: () = assert!(size_of::<Mailbox>() < abi::DEVICE as usize);
