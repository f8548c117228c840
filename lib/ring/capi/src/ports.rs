//! Ports by number and by name, and what the platform says about them.

use crate::errors::{Errno, INVALID, count, or_null, status};
use crate::frames::NflFrame;
use crate::held::Held;
use crate::instance::NflInstance;
use crate::lane::{Lane, Place};
use nfluid_ring::doorbell::fresh_epoch;
use nfluid_ring::layout::SLOT_SIZE;
use nfluid_ring::port::Port;
use nfluid_ring::table::PortEntry;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::NonNull;
use std::sync::Arc;

/// `struct nfl_port`: a port and its place in the instance.
#[derive(Debug)]
pub struct NflPort {
    port: NonNull<Port>,
    index: usize,
    name: CString,
    lanes: Arc<[Lane]>,
    /// Bit per port whose frames are queued here.
    lenders: u64,
    /// The next TX slot is being written by the caller.
    pub(crate) reserved: bool,
    /// The frames that are held.
    pub(crate) held: Held,
    /// Sleep epoch of the last sleep that [`crate::sleep::nfl_sleep`] has announced.
    pub(crate) epoch: u32,
}

impl NflPort {
    pub(crate) fn new(
        port: NonNull<Port>,
        index: usize,
        entry: &PortEntry,
        lanes: Arc<[Lane]>,
    ) -> Self {
        NflPort {
            port,
            index,
            name: CString::new(entry.name()).unwrap_or_default(),
            lanes,
            lenders: 0,
            reserved: false,
            held: Held::default(),
            epoch: fresh_epoch(),
        }
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(crate) fn port(&self) -> &Port {
        // SAFETY: the port lives as long as its handle; it is used by one thread at a time, which
        // is the one that has the handle.
        unsafe { self.port.as_ref() }
    }

    #[inline]
    pub(crate) fn port_mut(&mut self) -> &mut Port {
        // SAFETY: as above, and the handle is borrowed mutably.
        unsafe { self.port.as_mut() }
    }

    /// The port's own lane.
    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        &self.lanes[self.index]
    }

    /// Where a frame lies that some port of the instance has received. Nothing that the program says of its frame is
    /// taken without a look at what the library knows.
    ///
    /// # Errors
    /// `EINVAL` if that port does not exist or has received no frame there.
    #[inline]
    pub(crate) fn place_of(&self, frame: &NflFrame) -> Result<Place, Errno> {
        let lane = self.lanes.get(usize::from(frame.port)).ok_or(INVALID)?;
        let place = lane.place(frame.slot).ok_or(INVALID)?;
        let is_in_pool = frame.slot < self.port().pool().slots();
        let is_there = is_in_pool && frame.data == slot_start(self.port(), frame.slot);
        is_there.then_some(place).ok_or(INVALID)
    }

    /// Notes that a frame of port `lender`, which exists, is about to be queued here.
    #[inline]
    pub(crate) fn borrow_from(&mut self, lender: u16) {
        let lender = usize::from(lender);
        if self.lenders & (1 << lender) == 0 {
            self.lenders |= 1 << lender;
            self.lanes[lender].lend_to(self.index);
        }
    }

    /// Notes that no frame is queued any more: slots that other ports lent belong to those ports again.
    #[inline]
    pub(crate) fn return_all(&mut self) {
        while self.lenders != 0 {
            let lender = self.lenders.trailing_zeros() as usize;
            self.lenders &= self.lenders - 1;
            self.lanes[lender].take_back_from(self.index);
        }
    }

    /// Returns true if frames of this port are still queued on another port.
    #[inline]
    pub(crate) fn has_lent(&self) -> bool {
        self.lane().has_lent()
    }
}

/// Where a slot of the port's pool begins; the slot must exist.
#[inline]
pub(crate) fn slot_start(port: &Port, slot: u32) -> *mut u8 {
    let (start, _) = port.pool().as_raw_parts();
    start.wrapping_add(slot as usize * SLOT_SIZE)
}

/// Number of ports, queues counted.
///
/// # Safety
/// `instance` is null or attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_count(instance: *const NflInstance) -> c_int {
    status(|| {
        // SAFETY: null or attached, as the caller promises.
        let instance = unsafe { instance.as_ref() }.ok_or(INVALID)?;
        Ok(count(instance.port_count()))
    })
}

/// The port of this number; null if there is none.
///
/// # Safety
/// `instance` is null or attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_at(instance: *mut NflInstance, index: c_uint) -> *mut NflPort {
    or_null(|| {
        // SAFETY: null or attached, as the caller promises.
        let instance = unsafe { instance.as_ref() }?;
        instance.handle(usize::try_from(index).ok()?)
    })
}

/// A queue of the port of this name; null if there is none.
///
/// # Safety
/// `instance` is null or attached; `name` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_by_name(
    instance: *mut NflInstance,
    name: *const c_char,
    queue: c_uint,
) -> *mut NflPort {
    or_null(|| {
        // SAFETY: null or attached, as the caller promises.
        let instance = unsafe { instance.as_ref() }?;
        if name.is_null() {
            return None;
        }
        // SAFETY: not null, and the caller promises that it ends with a NUL.
        let name = unsafe { CStr::from_ptr(name) };
        (0..instance.port_count())
            .filter_map(|index| instance.handle(index))
            .find(|&handle| {
                // SAFETY: `handle` is a handle of the instance. The name and the port's entry never change, and no
                // references are made to fields that do change.
                let (own, port) = unsafe { (&(*handle).name, (*handle).port.as_ptr()) };
                // SAFETY: as above.
                let entry = unsafe { (*port).entry() };
                own.as_c_str() == name && c_uint::from(entry.queue) == queue
            })
    })
}

/// Returns what `read` reads of a port.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
unsafe fn about(port: *const NflPort, read: impl FnOnce(&NflPort) -> c_int) -> c_int {
    status(|| {
        // SAFETY: as this function's caller promises.
        let port = unsafe { port.as_ref() }.ok_or(INVALID)?;
        Ok(read(port))
    })
}

/// The port's number in its instance.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_index(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(port, |port| count(port.index())) }
}

/// The port's name; null for a null pointer.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_name(port: *const NflPort) -> *const c_char {
    // SAFETY: null or a port, as the caller promises.
    let name = unsafe { port.as_ref() }.map(|port| port.name.as_ptr());
    name.unwrap_or(std::ptr::null())
}

/// Writes the port's MAC address.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `mac` is null or
/// has 6 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_mac(port: *const NflPort, mac: *mut u8) -> c_int {
    status(|| {
        // SAFETY: null or a port, as the caller promises.
        let port = unsafe { port.as_ref() }.ok_or(INVALID)?;
        if mac.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, and of 6 bytes, as the caller promises.
        unsafe { mac.cast::<[u8; 6]>().write(port.port().entry().mac) };
        Ok(0)
    })
}

/// Largest IP packet of the port in bytes.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_mtu(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(port, |port| port.port().entry().mtu.into()) }
}

/// Which queue of its port this is, from 0.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_queue(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(port, |port| port.port().entry().queue.into()) }
}

/// Returns the number of queues of the port.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_queues(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(port, |port| port.port().entry().queues.into()) }
}

/// The level of frames that the port gets: `NFL_LEVEL_PLAIN`, `_CHECKSUMS` or `_SUPER`.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_level(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe { about(port, |port| port.port().entry().level() as c_int) }
}

/// Slots for long frames that the port receives.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_rx_long(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe {
        about(port, |port| {
            count(port.port().entry().rx_long_slots as usize)
        })
    }
}

/// Slots for long frames that the program makes.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_port_tx_long(port: *const NflPort) -> c_int {
    // SAFETY: the same contract.
    unsafe {
        about(port, |port| {
            count(port.port().entry().tx_long_slots as usize)
        })
    }
}
