//! The memory that a program maps: descriptions of its ports and rings. Buffers are the slots of the instance's pool. Rings
//! find them by an offset, so this memory lies right below the pool if there is room.

use crate::abi::{self, FRAGMENTS_MAX, INTERFACE_BYTES, RESERVED_BUFFERS, RING_BYTES, SLOT_BYTES};
use nfluid_ring::layout::SLOT_SIZE;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Descriptors that can have ports at the same time.
pub const INTERFACES: usize = 256;
/// Bytes of each interface: offsets of the rings of eight queues, and of two that are the host's.
const INTERFACE: usize = 256;
/// Below the pool: where buffers 0 and 1 would be.
const RESERVED: usize = RESERVED_BUFFERS as usize * SLOT_SIZE;

const _: () = assert!(INTERFACE_BYTES + 18 * 8 <= INTERFACE);
const _: () = assert!(FRAGMENTS_MAX * SLOT_SIZE > nfluid_ring::layout::LONG_MAX);

/// The memory. It is never unmapped: a program may keep pointers.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    pool: NonNull<u8>,
    ring_slots: u32,
}

// SAFETY: the region lives as long as the process, and is read and written by atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A ring in the region.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    start: NonNull<u8>,
    slots: u32,
}

// SAFETY: as for the region.
unsafe impl Send for Ring {}

/// The description of a slot, read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub buffer: u32,
    pub len: u16,
    pub flags: u16,
}

impl Region {
    /// Makes the region for `rings` rings of `ring_slots` slots, with buffers in the pool of `pool_bytes` bytes at `pool`.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn new(
        rings: usize,
        ring_slots: u32,
        (pool, pool_bytes): (NonNull<u8>, usize),
    ) -> Result<Self, Errno> {
        let own = INTERFACES * INTERFACE + rings * ring_bytes(ring_slots) + RESERVED;
        let own = own.next_multiple_of(rustix::param::page_size());
        let below = pool.as_ptr().wrapping_sub(own);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let map = |at: *mut u8, flags| {
            // SAFETY: a new mapping: at an address that the kernel chooses, or where nothing is mapped.
            unsafe { mmap_anonymous(at.cast(), own, access, MapFlags::PRIVATE | flags) }
        };
        let (start, bytes) = match map(below, MapFlags::FIXED_NOREPLACE) {
            Ok(start) => (start, own + pool_bytes),
            Err(_) => (map(null_mut(), MapFlags::empty())?, own),
        };
        Ok(Region {
            start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?,
            bytes,
            pool,
            ring_slots,
        })
    }

    /// The address that a program maps.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes from there on: with the pool, if the pool comes next.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ring of this number, with nothing in it.
    pub fn ring(&self, number: usize) -> Ring {
        let at = INTERFACES * INTERFACE + number * ring_bytes(self.ring_slots);
        Ring {
            // SAFETY: within the region, which has room for that many rings.
            start: unsafe { self.start.add(at) },
            slots: self.ring_slots,
        }
    }

    /// Describes a ring to programs.
    pub fn describe_ring(&self, ring: Ring, number: u16, is_rx: bool) {
        let buffers = self.pool.as_ptr() as i64 - ring.start.as_ptr() as i64 - RESERVED as i64;
        ring.u64_at(abi::ring::BUFFERS)
            .store(buffers.cast_unsigned(), Ordering::Relaxed);
        ring.u32_at(abi::ring::SLOTS)
            .store(ring.slots, Ordering::Relaxed);
        ring.u32_at(abi::ring::BUFFER_SIZE)
            .store(SLOT_SIZE as u32, Ordering::Relaxed);
        ring.u16_at(abi::ring::NUMBER)
            .store(number, Ordering::Relaxed);
        ring.u16_at(abi::ring::DIRECTION)
            .store(u16::from(is_rx), Ordering::Relaxed);
    }

    /// Describes a port: `None` for rings that the descriptor is not for. Returns the offset from the start.
    pub fn describe_interface(
        &self,
        number: usize,
        name: &[u8],
        (tx, rx): (&[Option<Ring>], &[Option<Ring>]),
    ) -> usize {
        let at = number * INTERFACE;
        // SAFETY: within the region.
        let start = unsafe { self.start.add(at) };
        let u32_at = |offset| {
            // SAFETY: within the interface, aligned, and only accessed by atomics.
            unsafe { AtomicU32::from_ptr(start.as_ptr().add(offset).cast()) }
        };
        for (index, byte) in (0..15).zip(name.iter().chain(std::iter::repeat(&0))) {
            // SAFETY: within the name, the first 16 bytes of the interface.
            unsafe { start.as_ptr().add(index).write(*byte) };
        }
        let words = [
            (abi::interface::VERSION, u32::from(abi::VERSION)),
            (abi::interface::TX_RINGS, tx.len() as u32),
            (abi::interface::RX_RINGS, rx.len() as u32),
            (abi::interface::EXTRA_BUFFERS, 0),
            (abi::interface::HOST_TX_RINGS, 1),
            (abi::interface::HOST_RX_RINGS, 1),
        ];
        for (offset, value) in words {
            u32_at(offset).store(value, Ordering::Relaxed);
        }
        // A ring of the host's stack follows the others: it is never there, but programs count it.
        let all = tx.iter().chain([&None]).chain(rx).chain([&None]);
        for (index, ring) in all.enumerate() {
            let offset = ring.map_or(0, |ring| ring.start.as_ptr() as i64 - start.as_ptr() as i64);
            let to = INTERFACE_BYTES + index * 8;
            // SAFETY: within the interface, which has room for the rings of all queues; aligned.
            let word = unsafe { AtomicU64::from_ptr(start.as_ptr().add(to).cast()) };
            word.store(offset.cast_unsigned(), Ordering::Release);
        }
        at
    }

    /// The first of a list of extra buffers, which a program takes and gives back here.
    pub fn extra_buffers(&self, interface: usize) -> &AtomicU32 {
        let at = interface * INTERFACE + abi::interface::EXTRA_BUFFERS;
        // SAFETY: within the region, aligned, and only accessed by atomics.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

fn ring_bytes(slots: u32) -> usize {
    (RING_BYTES + slots as usize * SLOT_BYTES).next_multiple_of(RING_BYTES)
}

impl Ring {
    fn u16_at(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: within the head of a ring of the region, aligned, and only accessed by atomics.
        unsafe { AtomicU16::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Where the program is: any number.
    pub fn head(&self) -> u32 {
        self.u32_at(abi::ring::HEAD).load(Ordering::Acquire)
    }

    /// From where on the program wants to be woken: any number.
    pub fn cur(&self) -> u32 {
        self.u32_at(abi::ring::CUR).load(Ordering::Relaxed)
    }

    /// The first slot that is not the program's.
    pub fn set_tail(&self, tail: u32) {
        self.u32_at(abi::ring::TAIL).store(tail, Ordering::Release);
    }

    /// Puts the program where it has to be.
    pub fn set_head(&self, head: u32) {
        self.u32_at(abi::ring::HEAD).store(head, Ordering::Relaxed);
        self.u32_at(abi::ring::CUR).store(head, Ordering::Relaxed);
    }

    /// The time of the last look at the ring: a `struct timeval`.
    pub fn set_time(&self, seconds: i64, microseconds: i64) {
        for (offset, part) in [(0, seconds), (8, microseconds)] {
            self.u64_at(abi::ring::TIME + offset)
                .store(part.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// The slot after this one.
    #[inline]
    pub fn next(&self, at: u32) -> u32 {
        if at + 1 >= self.slots { 0 } else { at + 1 }
    }

    /// Slots from `from` on up to `to`, both of which are slots of the ring.
    #[inline]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from {
            to - from
        } else {
            to + self.slots - from
        }
    }

    pub fn slots(&self) -> u32 {
        self.slots
    }

    #[inline]
    fn word(&self, at: u32) -> &AtomicU64 {
        debug_assert!(at < self.slots);
        let offset = RING_BYTES + at.min(self.slots - 1) as usize * SLOT_BYTES;
        // SAFETY: a slot of the ring, aligned, and only accessed by atomics.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    #[inline]
    pub fn slot(&self, at: u32) -> Slot {
        let word = self.word(at).load(Ordering::Relaxed);
        Slot {
            buffer: word as u32,
            len: (word >> 32) as u16,
            flags: (word >> 48) as u16,
        }
    }

    #[inline]
    pub fn set_slot(&self, at: u32, slot: Slot) {
        let word = u64::from(slot.buffer) | u64::from(slot.len) << 32 | u64::from(slot.flags) << 48;
        self.word(at).store(word, Ordering::Relaxed);
    }

    /// The pointer of a slot whose packet lies in memory of the program's own.
    pub fn pointer(&self, at: u32) -> *const u8 {
        let offset = RING_BYTES + at.min(self.slots - 1) as usize * SLOT_BYTES + 8;
        let value = self.u64_at(offset).load(Ordering::Relaxed);
        std::ptr::with_exposed_provenance(value as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{Region, Slot};
    use nfluid_ring::layout::SLOT_SIZE;
    use std::ptr::NonNull;

    #[test]
    fn a_program_finds_each_buffer_by_the_words_of_a_ring() {
        let mut pool = vec![0u8; 8 * SLOT_SIZE];
        let start = NonNull::new(pool.as_mut_ptr()).expect("memory");
        let region = Region::new(4, 64, (start, pool.len())).expect("memory");
        let ring = region.ring(3);
        region.describe_ring(ring, 1, true);
        // As netmap's macros do.
        let base = ring.start.as_ptr();
        // SAFETY: the head of a ring, described just now, which nobody else has.
        let (offset, size) = unsafe {
            (
                base.cast::<i64>().read(),
                base.add(12).cast::<u32>().read() as usize,
            )
        };
        let buffer = |index: usize| base as i64 + offset + (index * size) as i64;
        for slot in 0..8 {
            let found = buffer(slot + 2);
            assert_eq!(found, start.as_ptr() as i64 + (slot * SLOT_SIZE) as i64);
        }
    }

    #[test]
    fn a_slot_is_written_and_read_at_once_and_a_ring_is_round() {
        let mut pool = vec![0u8; SLOT_SIZE];
        let start = NonNull::new(pool.as_mut_ptr()).expect("memory");
        let region = Region::new(2, 64, (start, pool.len())).expect("memory");
        let ring = region.ring(1);
        let slot = Slot {
            buffer: 7,
            len: 60,
            flags: 0x21,
        };
        ring.set_slot(63, slot);
        assert_eq!(ring.slot(63), slot);
        assert_eq!(
            ring.slot(62),
            Slot {
                buffer: 0,
                len: 0,
                flags: 0
            }
        );
        assert_eq!((ring.next(62), ring.next(63)), (63, 0));
        assert_eq!((ring.distance(62, 1), ring.distance(1, 62)), (3, 61));
    }
}
