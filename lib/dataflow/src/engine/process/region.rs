//! Memory that the processes of one slice share, and nobody else: blocks of cache lines.

use std::collections::BTreeMap;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::super::array::ALIGNMENT;

/// Shared memory of a slice.
pub struct Region {
    start: NonNull<u8>,
    lines: u32,
    /// Free lines: how many from which on.
    free: Mutex<BTreeMap<u32, u32>>,
}

// SAFETY: a mapping is there for all threads; `free` decides who has which part of it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region of at least so many bytes, zeros. Pages that nobody touches take no memory. Processes that are forked do not
    /// have it, unless it is [shown](Self::show).
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let lines = u32::try_from(bytes.div_ceil(ALIGNMENT));
        let lines = lines.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start =
            unsafe { mmap_anonymous(null_mut(), lines as usize * ALIGNMENT, access, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Self {
            start,
            lines,
            free: Mutex::new(BTreeMap::from([(0, lines)])),
        };
        region.show(false)?;
        Ok(Arc::new(region))
    }

    fn bytes(&self) -> usize {
        self.lines as usize * ALIGNMENT
    }

    /// Has processes that are forked from now on have the region, or not.
    ///
    /// # Errors
    /// The kernel's.
    pub fn show(&self, shown: bool) -> io::Result<()> {
        let advice = if shown {
            Advice::LinuxDoFork
        } else {
            Advice::LinuxDontFork
        };
        // SAFETY: the mapping is ours, and this changes what a fork copies, no byte.
        unsafe { madvise(self.start.as_ptr().cast(), self.bytes(), advice)? };
        Ok(())
    }

    /// Takes a block of so many lines; `None` if there is no room. Its bytes are what they were when it was free.
    pub fn take(self: &Arc<Self>, lines: usize) -> Option<Arc<Block>> {
        let lines = u32::try_from(lines.max(1)).ok()?;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (&first, &room) = free.iter().find(|(_, room)| **room >= lines)?;
        free.remove(&first);
        if room > lines {
            free.insert(first + lines, room - lines);
        }
        Some(Arc::new(Block {
            region: Arc::clone(self),
            first,
            lines,
            is_given: true,
        }))
    }

    /// The block of so many lines from this line on, as another process has taken it; `None` if the region ends before.
    pub fn at(self: &Arc<Self>, first: u32, lines: usize) -> Option<Arc<Block>> {
        let lines = u32::try_from(lines).ok()?;
        let is_within = first.checked_add(lines)? <= self.lines;
        is_within.then(|| {
            Arc::new(Block {
                region: Arc::clone(self),
                first,
                lines,
                is_given: false,
            })
        })
    }

    fn give_back(&self, first: u32, lines: u32) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut first, mut lines) = (first, lines);
        if let Some(after) = free.remove(&(first + lines)) {
            lines += after;
        }
        if let Some((&before, &room)) = free.range(..first).next_back()
            && before + room == first
        {
            free.remove(&before);
            (first, lines) = (before, room + lines);
        }
        free.insert(first, lines);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and every block keeps the region. An error leaves it mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

/// A part of a region, free again when dropped by who has taken it.
pub struct Block {
    region: Arc<Region>,
    first: u32,
    lines: u32,
    is_given: bool,
}

impl Block {
    /// The block's first line in its region.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.lines as usize * ALIGNMENT
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: the block lies in the region.
        unsafe { self.region.start.add(self.first as usize * ALIGNMENT) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.is_given {
            self.region.give_back(self.first, self.lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_room_comes_back(steps in prop::collection::vec((1_usize..40, 0_usize..8), 1..200)) {
            let region = Region::new(256 * ALIGNMENT).unwrap();
            let mut taken: Vec<Arc<Block>> = Vec::new();
            for (lines, gone) in steps {
                if gone < taken.len() {
                    taken.swap_remove(gone);
                }
                taken.extend(region.take(lines));
                let mut places: Vec<_> = taken.iter().map(|block| (block.first, block.lines)).collect();
                places.sort_unstable();
                prop_assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            }
            taken.clear();
            prop_assert_eq!(&*region.free.lock().unwrap(), &BTreeMap::from([(0, 256)]));
        }
    }
}
