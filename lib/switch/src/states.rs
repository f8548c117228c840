//! The mapping of the trusted state: only the daemon and its uplinks' processes have it.

use crate::SwitchError;
use crate::abi::{PORTS_MAX, PortState};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

/// The states of all ports, or of one.
#[derive(Debug)]
pub(crate) struct States {
    start: NonNull<u8>,
    bytes: usize,
    /// Bytes of the table before the mapping.
    skipped: usize,
    /// The first port that may be asked for, and the number of them.
    ports: (u32, u32),
}

// SAFETY: the state is made of atomics in a shared mapping that lives as long as `self`.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

impl States {
    /// The states of all ports.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, SwitchError> {
        Self::map_ports(fd, (0, PORTS_MAX))
    }

    /// The state of one port: a page or two instead of five megabytes.
    pub(crate) fn map_port(fd: BorrowedFd<'_>, port: u32) -> Result<Self, SwitchError> {
        if port >= PORTS_MAX {
            return Err(SwitchError::Limit(format!("there can be no port {port}")));
        }
        Self::map_ports(fd, (port, 1))
    }

    fn map_ports(fd: BorrowedFd<'_>, ports: (u32, u32)) -> Result<Self, SwitchError> {
        let page = rustix::param::page_size();
        let first = ports.0 as usize * size_of::<PortState>();
        let end = first + ports.1 as usize * size_of::<PortState>();
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
        .map_err(SwitchError::system("mapping the port states"))?;
        Ok(States {
            start: NonNull::new(start.cast()).expect("mmap returns no null pointer on success"),
            bytes,
            skipped,
            ports,
        })
    }

    /// The state of port `id`.
    ///
    /// # Panics
    /// If `id` is none of a port that was mapped: ids come from the platform itself.
    pub(crate) fn port(&self, id: u32) -> &PortState {
        let (first, count) = self.ports;
        assert!(
            id >= first && id - first < count,
            "port id {id} is outside the table"
        );
        let at = id as usize * size_of::<PortState>() - self.skipped;
        // SAFETY: `at` and a state's size are within the mapping, which begins on a page, and the
        // size is a multiple of the alignment; the type is made of atomics, valid for any bits.
        unsafe { self.start.add(at).cast().as_ref() }
    }
}

impl Drop for States {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
