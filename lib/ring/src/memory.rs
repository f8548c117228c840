//! The mappings of a port's rings and of an instance's pool. Why one pool for all ports:
//! `docs/adr/0002-one-pool-per-instance.md`.

use crate::error::AttachError;
use crate::layout::{ReceiverLine, Released, Ring, SLOT_SIZE, SenderLine, SwitchLine};
use crate::lending::Lending;
use crate::mpsc::Mpsc;
use crate::offload::OFFLOAD_BYTES;
use crate::table::TableHead;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// A shared mapping of a BPF map, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory; `RingMemory` (atomics only) and `Pool` (one owner per slot) decide which
// party can access which part of it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, len: usize, what: &'static str) -> Result<Self, AttachError> {
        Self::with(fd, (0, len), what, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps so many bytes from an offset on.
    pub(crate) fn with(
        fd: BorrowedFd<'_>,
        (offset, len): (usize, usize),
        what: &'static str,
        access: ProtFlags,
    ) -> Result<Self, AttachError> {
        let failed = |errno: Errno| AttachError::Map {
            what,
            len,
            source: errno.into(),
        };
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, fd, offset as u64) }
            .map_err(failed)?;
        let start = NonNull::new(start.cast()).expect("mmap returns no null pointer on success");
        let mapping = Mapping { start, len };
        // A process that the owner forks has no port: it could write to its frames and queues.
        // SAFETY: the mapping is ours, and this changes what a fork copies, no byte.
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontFork) }.map_err(failed)?;
        Ok(mapping)
    }
}

impl Mapping {
    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`. An error leaves it
        // mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The rings of a port.
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

/// The words that a port's owner and the switch write, for an observer that only reads.
#[derive(Debug)]
pub struct ReceiverWords(Mapping);

impl ReceiverWords {
    /// Maps the control words of a port, read-only.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let words = core::mem::offset_of!(Ring, tx);
        Mapping::with(fd, (0, words), "ring's control words", ProtFlags::READ).map(ReceiverWords)
    }

    /// How far the owner has released, as it says: any numbers.
    pub fn released(&self) -> Released {
        let at = core::mem::offset_of!(Ring, receiver);
        // SAFETY: the control words, page-aligned and mapped for as long as `self` lives, begin with
        // those lines; they are made of atomics, valid for any bits, and only loaded from here.
        let line: &ReceiverLine = unsafe { self.0.start.add(at).cast().as_ref() };
        Released::of(line.rx_released.load(Ordering::Relaxed))
    }

    /// Returns true if frames that the owner has handed over wait for the switch, by the words of both: the
    /// destination has no room, or an I/O thread has not come to the frames.
    pub fn sends(&self) -> bool {
        let at = core::mem::offset_of!(Ring, sender);
        // SAFETY: as in `released`: this line is among the control words too.
        let sender: &SenderLine = unsafe { self.0.start.add(at).cast().as_ref() };
        let at = core::mem::offset_of!(Ring, switch);
        // SAFETY: as above.
        let switch: &SwitchLine = unsafe { self.0.start.add(at).cast().as_ref() };
        sender.tx_head.load(Ordering::Relaxed) != switch.tx_tail.load(Ordering::Relaxed)
    }
}

/// A ring of many producers in memory that processes share.
#[derive(Debug)]
pub struct MpscMemory {
    memory: Mapping,
    fd: OwnedFd,
}

impl MpscMemory {
    /// Values in the ring: as many as a platform has ports.
    pub const SLOTS: usize = 16384;
    const BYTES: usize = size_of::<Mpsc<{ Self::SLOTS }>>();

    /// Makes an empty ring.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    pub fn create() -> Result<Self, AttachError> {
        let failed = |errno: rustix::io::Errno| AttachError::Map {
            what: "ring of many producers",
            len: Self::BYTES,
            source: errno.into(),
        };
        let fd = memfd_create("nfluid-mpsc", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&fd, Self::BYTES as u64).map_err(failed)?;
        let made = Self::of(fd)?;
        made.ring().clear();
        Ok(made)
    }

    /// Maps the ring that another process made; `fd` is its [`MpscMemory::fd`].
    ///
    /// # Errors
    /// When the kernel refuses the mapping, or `fd` is shorter than a ring.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let failed = |source: std::io::Error| AttachError::Map {
            what: "ring of many producers",
            len: Self::BYTES,
            source,
        };
        let found = fstat(fd).map_err(|errno| failed(errno.into()))?.st_size;
        if (found as usize) < Self::BYTES {
            let why = format!("its memory has only {found} bytes");
            return Err(failed(std::io::Error::other(why)));
        }
        Self::of(fd.try_clone_to_owned().map_err(failed)?)
    }

    fn of(fd: OwnedFd) -> Result<Self, AttachError> {
        let memory = Mapping::new(fd.as_fd(), Self::BYTES, "ring of many producers")?;
        Ok(MpscMemory { memory, fd })
    }

    /// Returns the descriptor that another process maps.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The ring.
    pub fn ring(&self) -> &Mpsc<{ Self::SLOTS }> {
        // SAFETY: the mapping has the size of the ring, is page-aligned, lives as long as `self`, and the
        // ring is made of atomics only, for which every bit pattern is valid.
        unsafe { self.memory.start.cast().as_ref() }
    }
}

/// An instance's frame slots, shared by its ports, or those of its whole trust group.
#[derive(Debug)]
pub struct Pool {
    memory: Mapping,
    slots: u32,
    lending: Option<Lending>,
}

impl Pool {
    /// Maps a pool of `slots` slots.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(fd: BorrowedFd<'_>, slots: u32) -> Result<Self, AttachError> {
        let memory = Mapping::new(fd, slots as usize * SLOT_SIZE, "pool")?;
        Ok(Pool {
            memory,
            slots,
            lending: None,
        })
    }

    /// Maps the pool that `head` describes. Of a trust group's pool the instance owns some slots, which change over
    /// time.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn of(head: &TableHead, fd: BorrowedFd<'_>) -> Result<Self, AttachError> {
        let mut pool = Pool::map(fd, head.pool_slots)?;
        pool.lending = head.is_shared().then(|| Lending::new(head.pool_slots));
        Ok(pool)
    }

    /// Returns the instance's record of its slots, if the pool is shared.
    #[inline]
    pub(crate) fn lending(&self) -> Option<&Lending> {
        self.lending.as_ref()
    }

    /// Returns true if the pool is shared and a frame that was received in `slot` has been queued: another slot may
    /// come back for that frame.
    pub fn is_lent(&self, slot: u32) -> bool {
        self.lending().is_some_and(|lending| lending.is_lent(slot))
    }

    /// Returns true if the instance shares the pool with other instances.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.lending.is_some()
    }

    /// Slots in the pool.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Start and length in bytes of the mapping, for an AF_XDP socket that uses it as its UMEM.
    pub fn as_raw_parts(&self) -> (*mut u8, usize) {
        (self.memory.start.as_ptr(), self.memory.len)
    }

    /// Has the first bytes of `slot` brought into the cache: of very many instances on a core none finds
    /// its frames there, and of a batch all can be on their way at once.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        #[cfg(target_arch = "x86_64")]
        if slot < self.slots {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the slot lies within the mapping, and a prefetch only hints.
            unsafe {
                let start = self.memory.start.as_ptr().add(slot as usize * SLOT_SIZE);
                _mm_prefetch::<_MM_HINT_T0>(start.cast());
            }
        }
    }

    /// The bytes of the `slots` slots from `slot` on that a frame can have; `None` if the pool has no such slots.
    ///
    /// # Safety
    /// The caller owns the slots: they are those of an RX position that was published to the caller and not yet released,
    /// or TX slots that no call is sending. The caller holds no other reference to their bytes.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn buffer(&self, slot: u32, slots: usize) -> Option<&mut [u8]> {
        if slots == 0 || slot as usize + slots > self.slots as usize {
            return None;
        }
        // SAFETY: the slots lie within the mapping, and the caller has the only reference to them.
        Some(unsafe {
            let start = self.memory.start.as_ptr().add(slot as usize * SLOT_SIZE);
            std::slice::from_raw_parts_mut(start, slots * SLOT_SIZE - OFFLOAD_BYTES)
        })
    }

    /// The metadata words in the last bytes of `slot`; zeros if there is no such slot.
    #[inline]
    pub(crate) fn offload_words(&self, slot: u32) -> [u8; OFFLOAD_BYTES] {
        let mut words = [0; OFFLOAD_BYTES];
        if let Some(from) = self.offload_at(slot) {
            // SAFETY: `offload_at` names as many bytes of the mapping, of which no reference exists: `buffer` leaves them out.
            // Others who map the pool may write them meanwhile: any bytes are words.
            unsafe { std::ptr::copy_nonoverlapping(from, words.as_mut_ptr(), OFFLOAD_BYTES) };
        }
        words
    }

    /// Writes the metadata words in the last bytes of `slot`.
    #[inline]
    pub(crate) fn set_offload_words(&self, slot: u32, words: [u8; OFFLOAD_BYTES]) {
        if let Some(to) = self.offload_at(slot) {
            // SAFETY: as in `offload_words`.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), to, OFFLOAD_BYTES) };
        }
    }

    #[inline]
    fn offload_at(&self, slot: u32) -> Option<*mut u8> {
        let at = (slot as usize + 1) * SLOT_SIZE - OFFLOAD_BYTES;
        // SAFETY: the slot lies within the mapping.
        (slot < self.slots).then(|| unsafe { self.memory.start.as_ptr().add(at) })
    }
}
