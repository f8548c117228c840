//! The mappings of a port's rings and of an instance's pool. Why one pool for all ports:
//! `docs/adr/0002-one-pool-per-instance.md`.

use crate::attach::AttachError;
use crate::layout::{FRAME_MAX, ReceiverLine, Ring, SLOT_SIZE};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// A shared mapping of a BPF array, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory; who may touch which part of it when is the business
// of `RingMemory` (atomics only) and `Pool` (one owner per slot).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, len: usize, what: &'static str) -> Result<Self, AttachError> {
        Self::with(fd, len, what, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn with(
        fd: BorrowedFd<'_>,
        len: usize,
        what: &'static str,
        access: ProtFlags,
    ) -> Result<Self, AttachError> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start =
            unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, fd, 0) }.map_err(|errno| {
                AttachError::Map {
                    what,
                    len,
                    source: errno.into(),
                }
            })?;
        let start = NonNull::new(start.cast()).expect("mmap returns no null pointer on success");
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`. An error leaves it
        // mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// One port's rings.
#[derive(Debug)]
pub struct RingMemory(Mapping);

impl RingMemory {
    /// Maps the rings of a port.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, AttachError> {
        Ok(RingMemory(Mapping::new(fd, size_of::<Ring>(), "ring")?))
    }

    /// The control words and descriptors. The other side may write them at any time.
    #[inline]
    pub fn ring(&self) -> &Ring {
        // SAFETY: the mapping has the size of a `Ring`, is page-aligned, lives as long as `self`,
        // and a `Ring` is made of atomics only, for which every bit pattern is valid.
        unsafe { self.0.start.cast::<Ring>().as_ref() }
    }
}

/// The words that a port's owner writes as a receiver, for somebody who only looks.
#[derive(Debug)]
pub struct ReceiverWords(Mapping);

impl ReceiverWords {
    /// Maps the control words of a port, read-only.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let words = core::mem::offset_of!(Ring, tx);
        Mapping::with(fd, words, "ring's control words", ProtFlags::READ).map(ReceiverWords)
    }

    /// Position after the last frame that the owner has released, as it says: any number.
    pub fn rx_head(&self) -> u32 {
        let at = core::mem::offset_of!(Ring, receiver);
        // SAFETY: the control words, page-aligned and mapped for as long as `self` lives, begin with
        // those lines; they are made of atomics, valid for any bits, and only loaded from here.
        let line: &ReceiverLine = unsafe { self.0.start.add(at).cast().as_ref() };
        line.rx_head.load(Ordering::Relaxed)
    }
}

/// An instance's frame slots, shared by its ports.
#[derive(Debug)]
pub struct Pool {
    memory: Mapping,
    slots: u32,
}

impl Pool {
    /// Maps a pool of `slots` slots.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(fd: BorrowedFd<'_>, slots: u32) -> Result<Self, AttachError> {
        let memory = Mapping::new(fd, slots as usize * SLOT_SIZE, "pool")?;
        Ok(Pool { memory, slots })
    }

    /// Slots in the pool.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Start and length in bytes of the mapping, for an AF_XDP socket that uses it as its UMEM.
    pub fn as_raw_parts(&self) -> (*mut u8, usize) {
        (self.memory.start.as_ptr(), self.memory.len)
    }

    /// The frame buffer of `slot`; `None` if there is no such slot.
    ///
    /// # Safety
    /// The caller owns the slot: it is an RX slot that was published to it and not yet released, or
    /// a TX slot that no call is sending. It holds no other reference to the slot's bytes.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn buffer(&self, slot: u32) -> Option<&mut [u8]> {
        if slot >= self.slots {
            return None;
        }
        // SAFETY: the slot lies within the mapping, and the caller has the only reference to it.
        Some(unsafe {
            let start = self.memory.start.as_ptr().add(slot as usize * SLOT_SIZE);
            std::slice::from_raw_parts_mut(start, FRAME_MAX)
        })
    }
}
