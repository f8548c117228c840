//! The heap: the memory behind the image, up to the end that the device page names.

use super::mailbox;
use talc::locking::AssumeUnlockable;
use talc::{ErrOnOom, Span, Talc, Talck};

/// A guest has one virtual CPU and no interrupts: nobody can hold this lock while another wants it.
#[global_allocator]
static HEAP: Talck<AssumeUnlockable, ErrOnOom> = Talc::new(ErrOnOom).lock();

/// Gives the heap its memory.
pub fn start() {
    let device = mailbox::device();
    let span = Span::new(device.heap as *mut u8, device.memory_end as *mut u8);
    // SAFETY: the monitor has mapped these addresses as memory that belongs to no segment and no stack, and this
    // function is called once.
    let claimed = unsafe { HEAP.lock().claim(span) };
    assert!(
        claimed.is_ok(),
        "the memory of the guest is too small for a heap"
    );
}
