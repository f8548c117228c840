//! The heap: the memory behind the image, up to the end that the device page names.
//!
//! Memory that a guest has never touched is zero and costs nothing, but each first touch of a page costs microseconds.
//! Network functions ask for large zeroed tables, most of which they never touch. So the upper half of the heap is for
//! large zeroed blocks, which are not written when they are first handed out; the lower half is for everything else.

use super::mailbox;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use talc::locking::AssumeUnlockable;
use talc::{ErrOnOom, Span, Talc, Talck};

/// Least bytes of a block in the upper half.
const LARGE: usize = 32 << 10;
const PAGE: usize = 4096;
/// Most large blocks at a time; further ones are in the lower half.
const BLOCKS_MAX: usize = 64;

#[global_allocator]
static HEAP: Heap = Heap {
    // A guest has one virtual CPU and no interrupts: nobody can hold this lock while another wants it.
    small: Talc::new(ErrOnOom).lock(),
    large: UnsafeCell::new(Large {
        fresh: 0,
        end: 0,
        blocks: [Block::NONE; BLOCKS_MAX],
    }),
};

/// The two halves.
struct Heap {
    small: Talck<AssumeUnlockable, ErrOnOom>,
    large: UnsafeCell<Large>,
}

// SAFETY: a guest has one thread, and no code interrupts it.
unsafe impl Sync for Heap {}

/// The upper half.
struct Large {
    /// First address that was never handed out.
    fresh: usize,
    /// First address behind the heap.
    end: usize,
    blocks: [Block; BLOCKS_MAX],
}

/// A large block: in use, or free to be used again.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    bytes: usize,
    is_free: bool,
}

impl Block {
    /// A place in the table that has no block.
    const NONE: Block = Block {
        start: 0,
        bytes: 0,
        is_free: false,
    };
}

impl Large {
    /// Returns a zeroed block, or null if there is none.
    fn take(&mut self, bytes: usize) -> *mut u8 {
        let bytes = bytes.next_multiple_of(PAGE);
        let fits = |it: &Block| it.is_free && it.bytes >= bytes && it.bytes / 2 <= bytes;
        if let Some(block) = self.blocks.iter_mut().find(|it| fits(it)) {
            block.is_free = false;
            let start = block.start as *mut u8;
            // SAFETY: the block has so many bytes, belongs to this half, and is in nobody's use.
            unsafe { start.write_bytes(0, block.bytes) };
            return start;
        }
        let place = self.blocks.iter_mut().find(|it| it.start == 0);
        match place {
            Some(place) if self.end - self.fresh >= bytes => {
                *place = Block {
                    start: self.fresh,
                    bytes,
                    is_free: false,
                };
                self.fresh += bytes;
                place.start as *mut u8
            }
            _ => core::ptr::null_mut(),
        }
    }

    /// Takes a block back. Returns false if it is none of this half.
    fn give_back(&mut self, start: usize) -> bool {
        let block = self.blocks.iter_mut().find(|it| it.start == start);
        block.is_some_and(|block| {
            block.is_free = true;
            true
        })
    }
}

// SAFETY: blocks of the upper half do not overlap, are aligned to pages, and are handed out once at a time; everything
// else is talc's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.small.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && layout.align() <= PAGE {
            // SAFETY: there is one thread, and this reference ends here.
            let block = unsafe { &mut *self.large.get() }.take(layout.size());
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.small.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        let is_large = layout.size() >= LARGE
            // SAFETY: as in `alloc_zeroed`.
            && unsafe { &mut *self.large.get() }.give_back(start as usize);
        if !is_large {
            // SAFETY: the caller's promise; the block is talc's.
            unsafe { self.small.dealloc(start, layout) };
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `alloc_zeroed`.
        let large = unsafe { &*self.large.get() };
        if !large.blocks.iter().any(|it| it.start == start as usize) {
            // SAFETY: the caller's promise; the block is talc's.
            return unsafe { self.small.realloc(start, layout, bytes) };
        }
        // SAFETY: the caller's promise: the new size is a valid one for this alignment, and the old block has
        // `layout.size()` bytes.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(start, bytes.min(layout.size()));
                self.dealloc(start, layout);
            }
            new
        }
    }
}

/// Touches `bytes` bytes of what either half hands out next: each first touch of a page leaves the guest.
pub fn warm(bytes: usize) {
    let bytes = bytes.next_multiple_of(PAGE);
    // Pages of the upper half stay zero.
    // SAFETY: there is one thread, and this reference ends before anything is allocated.
    let (fresh, end) = unsafe { ((*HEAP.large.get()).fresh, (*HEAP.large.get()).end) };
    for page in (fresh..end.min(fresh.saturating_add(bytes))).step_by(PAGE) {
        // SAFETY: these pages belong to the heap, and were never handed out.
        unsafe { (page as *mut u8).write_volatile(0) };
    }
    let Ok(layout) = Layout::from_size_align(bytes, PAGE) else {
        return;
    };
    if bytes == 0 {
        return;
    }
    // SAFETY: the layout is not empty; the block is written within its bounds, and given back.
    unsafe {
        let block = HEAP.alloc(layout);
        if block.is_null() {
            return;
        }
        for at in (0..bytes).step_by(PAGE) {
            block.add(at).write_volatile(0);
        }
        HEAP.dealloc(block, layout);
    }
}

/// Gives the heap its memory.
pub fn start() {
    let device = mailbox::device();
    let (from, end) = (device.heap as usize, device.memory_end as usize);
    let middle = (from + (end - from) / 2).next_multiple_of(PAGE);
    // SAFETY: the monitor has mapped these addresses as memory that belongs to no segment and no stack, and this
    // function is called once, before anything is allocated.
    let claimed = unsafe {
        let large = &mut *HEAP.large.get();
        (large.fresh, large.end) = (middle, end);
        HEAP.small
            .lock()
            .claim(Span::new(from as *mut u8, middle as *mut u8))
    };
    assert!(
        claimed.is_ok(),
        "the memory of the guest is too small for a heap"
    );
}
