//! The mapping of the trusted state: only the daemon has it.

use crate::SwitchError;
use crate::abi::{PORTS_MAX, PortState};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

const BYTES: usize = PORTS_MAX as usize * size_of::<PortState>();

#[derive(Debug)]
pub(crate) struct States(NonNull<PortState>);

// SAFETY: the state is made of atomics in a shared mapping that lives as long as `self`.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

impl States {
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, SwitchError> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe {
            mmap(
                null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }
        .map_err(SwitchError::system("mapping the port states"))?;
        Ok(States(
            NonNull::new(start.cast()).expect("mmap returns no null pointer on success"),
        ))
    }

    /// The state of port `id`.
    ///
    /// # Panics
    /// If `id` is none of a port: ids come from the platform itself.
    pub(crate) fn port(&self, id: u32) -> &PortState {
        assert!(id < PORTS_MAX, "port id {id} is outside the table");
        // SAFETY: the array has PORTS_MAX elements, of a type made of atomics, valid for any bits.
        unsafe { self.0.add(id as usize).as_ref() }
    }
}

impl Drop for States {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
    }
}
