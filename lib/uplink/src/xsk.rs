//! An AF_XDP socket that only sends, and sends the slots of an uplink's own pool: the pool's
//! mapping is its UMEM, so that nothing is copied on the way into the TX ring
//! (Documentation/networking/af_xdp.rst).
//!
//! In zero-copy mode the driver also takes its receive buffers for this queue from the UMEM: the
//! port's TX slots, which an uplink has no other use for, are given to it for that.

use crate::error::UplinkError;
use nfluid_netdev::packet;
use nfluid_ring::layout::SLOT_SIZE;
use nfluid_ring::memory::Pool;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const RING_NEED_WAKEUP: u32 = 1;

/// Does the driver read the slots, or does the kernel copy them?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// The driver reads them.
    Zero,
    /// The kernel copies each frame into a socket buffer.
    Once,
}

/// A ring shared with the kernel, of `T`, of which this side is either producer or consumer.
#[derive(Debug)]
struct SharedRing<T> {
    start: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: the ring is a mapping of its own; the positions are atomics, and the entries belong to
// the side that the positions say.
unsafe impl<T: Send> Send for SharedRing<T> {}

impl<T: Copy> SharedRing<T> {
    fn map(
        socket: &OwnedFd,
        offset: u64,
        at: &libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = at.desc as usize + entries as usize * size_of::<T>();
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket.as_fd(),
                offset,
            )
        }?;
        let start: NonNull<u8> = NonNull::new(start.cast()).expect("mmap returns no null pointer");
        // SAFETY: the kernel gives offsets within the ring that was just mapped, aligned for what
        // is there.
        let word = |offset: u64| unsafe { start.add(offset as usize) };
        Ok(SharedRing {
            start,
            bytes,
            producer: word(at.producer).cast(),
            consumer: word(at.consumer).cast(),
            flags: word(at.flags).cast(),
            entries: word(at.desc).cast(),
            mask: entries - 1,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points into the mapping, which lives as long as `self`; an atomic is valid for
        // any bits.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & RING_NEED_WAKEUP != 0
    }

    fn get(&self, position: u32) -> T {
        // SAFETY: the index is masked to the ring; `T` is plain data.
        unsafe {
            self.entries
                .add((position & self.mask) as usize)
                .read_volatile()
        }
    }

    fn put(&self, position: u32, entry: T) {
        // SAFETY: as above; the kernel reads the entry after the producer position has passed it.
        unsafe {
            self.entries
                .add((position & self.mask) as usize)
                .write_volatile(entry);
        }
    }
}

impl<T> Drop for SharedRing<T> {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and all borrows of it end with `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The socket.
#[derive(Debug)]
pub struct Xsk {
    tx: SharedRing<libc::xdp_desc>,
    completions: SharedRing<u64>,
    _fill: SharedRing<u64>,
    /// Entries written to the TX ring; the kernel sees them at the next kick.
    queued: u32,
    socket: OwnedFd,
    copying: Copying,
    /// Last, after the socket: the kernel reads it as long as the socket is open.
    _umem: Arc<Pool>,
}

impl Xsk {
    /// A socket on queue 0 of the interface with `index` in the calling thread's namespace, for
    /// up to `slots` frames at once, whose UMEM is `pool`. In zero-copy mode, the slots `spare`
    /// are given to the driver to receive into.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open(
        index: u32,
        pool: &Arc<Pool>,
        slots: u32,
        spare: std::ops::Range<u32>,
        copying: Copying,
    ) -> Result<Self, UplinkError> {
        let socket = socket_with(
            AddressFamily::from_raw(libc::AF_XDP as u16),
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(UplinkError::system("opening an AF_XDP socket"))?;
        let (start, len) = pool.as_raw_parts();
        let umem = libc::xdp_umem_reg {
            addr: start as u64,
            len: len as u64,
            chunk_size: SLOT_SIZE as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &umem)
            .map_err(UplinkError::system("registering the pool as AF_XDP memory"))?;
        let fill_entries = (spare.len() as u32).next_power_of_two().max(64);
        let sizes = [
            (libc::XDP_UMEM_FILL_RING, fill_entries),
            (libc::XDP_UMEM_COMPLETION_RING, slots),
            (libc::XDP_TX_RING, slots),
        ];
        for (option, entries) in sizes {
            set(&socket, option, &entries)
                .map_err(UplinkError::system("sizing the rings of an AF_XDP socket"))?;
        }
        let at = offsets(&socket).map_err(UplinkError::system("asking for AF_XDP offsets"))?;
        let mapping = || UplinkError::system("mapping the rings of an AF_XDP socket");
        let tx = SharedRing::map(&socket, libc::XDP_PGOFF_TX_RING as u64, &at.tx, slots)
            .map_err(mapping())?;
        let completions =
            SharedRing::map(&socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, slots)
                .map_err(mapping())?;
        let fill: SharedRing<u64> = SharedRing::map(
            &socket,
            libc::XDP_UMEM_PGOFF_FILL_RING,
            &at.fr,
            fill_entries,
        )
        .map_err(mapping())?;
        if copying == Copying::Zero {
            let count = spare.len() as u32;
            for (position, slot) in (0..count).zip(spare) {
                fill.put(position, u64::from(slot) * SLOT_SIZE as u64);
            }
            fill.producer().store(count, Ordering::Release);
        }
        let xsk = Xsk {
            tx,
            completions,
            _fill: fill,
            queued: 0,
            socket,
            copying,
            _umem: Arc::clone(pool),
        };
        xsk.bind(index)?;
        Ok(xsk)
    }

    fn bind(&self, index: u32) -> Result<(), UplinkError> {
        let how = match self.copying {
            Copying::Zero => libc::XDP_ZEROCOPY,
            Copying::Once => libc::XDP_COPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: how | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: index,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the address is a live sockaddr_xdp of the length that is passed.
        let status = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        };
        if status != 0 {
            return Err(UplinkError::system("binding an AF_XDP socket")(
                io::Error::last_os_error(),
            ));
        }
        Ok(())
    }

    /// Returns the way in which frames are copied.
    pub fn copying(&self) -> Copying {
        self.copying
    }

    /// Queues the `len` bytes of slot `slot`. At most as many frames as the ring has slots may be
    /// queued and not completed.
    pub fn queue(&mut self, slot: u32, len: u16) {
        self.tx.put(
            self.queued,
            libc::xdp_desc {
                addr: u64::from(slot) * SLOT_SIZE as u64,
                len: u32::from(len),
                options: 0,
            },
        );
        self.queued = self.queued.wrapping_add(1);
    }

    /// Frames that the kernel has not begun with.
    fn waiting(&self) -> u32 {
        let begun = self.tx.consumer().load(Ordering::Acquire);
        self.queued.wrapping_sub(begun)
    }

    /// Hands the queued frames over and makes the kernel send them. Returns the number of system calls. A call sends
    /// a few dozen frames; the call is repeated as long as it sends any.
    ///
    /// # Errors
    /// The error of a call that sent nothing; queued frames stay queued, for the next kick.
    pub fn kick(&mut self) -> io::Result<u64> {
        self.tx.producer().store(self.queued, Ordering::Release);
        let mut calls = 0;
        let mut before = self.waiting();
        while before > 0 && self.tx.needs_wakeup() {
            calls += 1;
            let result = self.wake();
            let after = self.waiting();
            if after == before {
                result?;
                break;
            }
            before = after;
        }
        Ok(calls)
    }

    fn wake(&self) -> io::Result<()> {
        // SAFETY: an empty message without an address: no memory is passed.
        let status = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                null_mut(),
                0,
                libc::MSG_DONTWAIT,
                null_mut(),
                0,
            )
        };
        if status < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Calls `done` with the slot of every frame that has been sent.
    pub fn reap(&mut self, mut done: impl FnMut(u32)) {
        let end = self.completions.producer().load(Ordering::Acquire);
        let mut position = self.completions.consumer().load(Ordering::Relaxed);
        while position != end {
            done((self.completions.get(position) / SLOT_SIZE as u64) as u32);
            position = position.wrapping_add(1);
        }
        self.completions.consumer().store(end, Ordering::Release);
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    packet::set(socket, (libc::SOL_XDP, option), value)
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let none = || libc::xdp_ring_offset {
        producer: 0,
        consumer: 0,
        desc: 0,
        flags: 0,
    };
    let mut offsets = libc::xdp_mmap_offsets {
        rx: none(),
        tx: none(),
        fr: none(),
        cr: none(),
    };
    let mut len = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the live structure, which is plain data.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut len,
        )
    };
    if status == 0 && len as usize == size_of::<libc::xdp_mmap_offsets>() {
        Ok(offsets)
    } else {
        Err(io::Error::last_os_error())
    }
}
