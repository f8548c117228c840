//! Mappings of the trusted state: only the daemon and its uplinks' processes have them.

use crate::SwitchError;
use crate::abi::{PORTS_MAX, PortState};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

/// The states of all ports, or of one.
pub(crate) type States = Mapped<PortState>;

/// An entry of a map that can be mapped.
///
/// # Safety
/// The type is made of atomics, is valid for any bits, and its size is the size that the map has for each entry, a
/// multiple of 8.
pub(crate) unsafe trait Entry {}

// SAFETY: atomics alone; the assertion in `abi.rs` is that of `switch_types.h`.
unsafe impl Entry for PortState {}

/// The entries of a map, or some of them.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    start: NonNull<u8>,
    bytes: usize,
    /// Bytes of the table before the mapping.
    skipped: usize,
    /// The first entry that may be asked for, and the number of them.
    entries: (u32, u32),
    of: PhantomData<T>,
}

// SAFETY: the entries are made of atomics in a shared mapping that lives as long as `self`.
unsafe impl<T: Entry> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Entry> Sync for Mapped<T> {}

impl States {
    /// The states of all ports.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, SwitchError> {
        Self::map_entries(fd, (0, PORTS_MAX))
    }

    /// The state of one port: a page or two instead of five megabytes.
    pub(crate) fn map_port(fd: BorrowedFd<'_>, port: u32) -> Result<Self, SwitchError> {
        if port >= PORTS_MAX {
            return Err(SwitchError::Limit(format!("there can be no port {port}")));
        }
        Self::map_entries(fd, (port, 1))
    }

    /// The state of port `id`.
    ///
    /// # Panics
    /// As for [`Mapped::entry`].
    pub(crate) fn port(&self, id: u32) -> &PortState {
        self.entry(id)
    }
}

impl<T: Entry> Mapped<T> {
    /// Maps entries: the first number, and the count.
    pub(crate) fn map_entries(
        fd: BorrowedFd<'_>,
        entries: (u32, u32),
    ) -> Result<Self, SwitchError> {
        let page = rustix::param::page_size();
        let first = entries.0 as usize * size_of::<T>();
        let end = first + entries.1 as usize * size_of::<T>();
        let skipped = first / page * page;
        let bytes = end - skipped;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                skipped as u64,
            )
        }
        .map_err(SwitchError::system("mapping the switch's state"))?;
        Ok(Mapped {
            start: NonNull::new(start.cast()).expect("mmap returns no null pointer on success"),
            bytes,
            skipped,
            entries,
            of: PhantomData,
        })
    }

    /// Are entries 0 to `count` mapped?
    pub(crate) fn covers(&self, count: u32) -> bool {
        self.entries == (0, count)
    }

    /// The entry `id`.
    ///
    /// # Panics
    /// If `id` is none that was mapped: ids come from the platform itself.
    pub(crate) fn entry(&self, id: u32) -> &T {
        let (first, count) = self.entries;
        assert!(
            id >= first && id - first < count,
            "id {id} is outside the table"
        );
        let at = id as usize * size_of::<T>() - self.skipped;
        // SAFETY: `at` and an entry's size are within the mapping, which begins on a page, and the
        // size is a multiple of the alignment; the type is made of atomics, valid for any bits.
        unsafe { self.start.add(at).cast().as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
