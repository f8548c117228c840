//! Arrays that threads, or processes, share: in memory of their own, or in a block of a [`Region`](super::process::region::Region).

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::process::region::Block;

/// Alignment of lines: a cache line, and more than any vector needs.
pub const ALIGNMENT: usize = 64;

/// Words of a line.
pub const WORDS_PER_LINE: usize = ALIGNMENT / size_of::<u64>();

/// Stores words, as many as there is room for.
pub fn store(places: &[AtomicU64], words: impl IntoIterator<Item = u64>) {
    for (place, word) in places.iter().zip(words) {
        place.store(word, Ordering::Relaxed);
    }
}

/// Loads each word once.
pub fn load(places: &[AtomicU64]) -> impl Iterator<Item = u64> {
    places.iter().map(|place| place.load(Ordering::Relaxed))
}

/// A cache line of bytes, which only those may look into who know that nobody writes.
#[repr(C, align(64))]
pub struct Bytes(UnsafeCell<[u8; ALIGNMENT]>);

// SAFETY: to share it is to share its address. Who looks into it says why nobody writes meanwhile.
unsafe impl Sync for Bytes {}

impl Default for Bytes {
    fn default() -> Self {
        Self(UnsafeCell::new([0; ALIGNMENT]))
    }
}

/// Types of which others may change any bit at any time.
///
/// # Safety
/// Any bits are a valid value, all of it is in atomics or in an [`UnsafeCell`], and the alignment is at most [`ALIGNMENT`].
pub unsafe trait Shareable {}

// SAFETY: an atomic of any bits.
unsafe impl Shareable for AtomicU8 {}
// SAFETY: as above.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: bytes in an `UnsafeCell`; their alignment is `ALIGNMENT`.
unsafe impl Shareable for Bytes {}
// SAFETY: a line of atomics, aligned to a cache line.
unsafe impl Shareable for crate::queue::Line {}

/// An array.
pub enum Array<T: Shareable> {
    /// In memory of its own.
    Own(Box<[T]>),
    /// In shared memory.
    Part(Part<T>),
}

/// An array in a block, which it keeps.
pub struct Part<T: Shareable> {
    start: NonNull<T>,
    len: usize,
    _block: Arc<Block>,
}

// SAFETY: a part is a slice that lives as long as its block; it hands out shared references only, which another thread may
// have if `T` is `Sync`.
unsafe impl<T: Shareable + Sync> Send for Part<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable + Sync> Sync for Part<T> {}

impl<T: Shareable> Part<T> {
    /// The array of `len` elements from line `line` of a block on; `None` if the block ends before.
    pub fn of(block: &Arc<Block>, line: usize, len: usize) -> Option<Self> {
        let first = line.checked_mul(ALIGNMENT)?;
        let end = len.checked_mul(size_of::<T>())?.checked_add(first)?;
        if end > block.bytes() {
            return None;
        }
        // SAFETY: `first` is within the block, or its end.
        let start = unsafe { block.start().add(first) };
        Some(Self {
            start: start.cast(),
            len,
            _block: Arc::clone(block),
        })
    }
}

impl<T: Shareable> Deref for Part<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `of` has checked that the elements lie in the block, whose start is aligned to a line, and thus for `T`; the
        // block is mapped as long as this part keeps it. Any bits are a `T`, and who else changes them changes atomics, or what
        // is in an `UnsafeCell` (`Shareable`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Shareable> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Array::Own(own) => own,
            Array::Part(part) => part,
        }
    }
}

impl<T: Shareable + Default> Array<T> {
    /// An array of zeros in memory of its own.
    pub fn own(len: usize) -> Self {
        Array::Own((0..len).map(|_| T::default()).collect())
    }
}

impl crate::queue::Lines for Part<crate::queue::Line> {
    fn lines(&self) -> &[crate::queue::Line] {
        self
    }
}
