//! Receiving, sending, forwarding.

use crate::errors::{Errno, INVALID, count, status};
use crate::frames::{NflFrame, offload_of};
use crate::lane::Place;
use crate::offload::{BAD_LENGTH, NflOffload, UNSUPPORTED};
use crate::ports::{NflPort, slot_start};
use nfluid_ring::Offload;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, LONG_MAX};
use nfluid_ring::port::{Port, WhenFull};
use std::ffi::{c_int, c_uint};

/// `struct nfl_stats`: what the library has counted on a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NflStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames handed to the switch.
    pub tx_frames: u64,
    /// hyperio calls.
    pub calls: u64,
    /// Wake-ups given to a link's peer.
    pub rings: u64,
    /// Frames that found no free TX slot.
    pub tx_no_slot: u64,
    /// Calls that failed; their frames were discarded.
    pub tx_errors: u64,
}

// The size in `nfluid.h`; lib/ring/tests/header.c asserts it on the other side.
const _: () = assert!(size_of::<NflStats>() == 56);

const NFL_KEEP: c_uint = 1;
const NO_SLOT: Errno = Errno(libc::ENOBUFS);
const BUSY: Errno = Errno(libc::EBUSY);

/// Runs `body` on a port.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[inline]
pub(crate) unsafe fn on(
    port: *mut NflPort,
    body: impl FnOnce(&mut NflPort) -> Result<c_int, Errno>,
) -> c_int {
    status(|| {
        // SAFETY: as this function's caller promises.
        let port = unsafe { port.as_mut() }.ok_or(INVALID)?;
        body(port)
    })
}

fn check_len(len: usize, most: usize) -> Result<(), Errno> {
    if (FRAME_MIN..=most).contains(&len) {
        Ok(())
    } else {
        Err(BAD_LENGTH)
    }
}

/// Receives at most `max` frames.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `frames` is null or
/// has `max` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_receive(
    port: *mut NflPort,
    frames: *mut NflFrame,
    max: usize,
) -> c_int {
    let body = |handle: &mut NflPort| {
        if frames.is_null() {
            return Err(INVALID);
        }
        let index = handle.index() as u16;
        let mut received = 0;
        while received < max {
            let Some(taken) = handle.port_mut().take_slot() else {
                break;
            };
            handle.held.push(taken.position);
            handle.lane().note(Place {
                slot: taken.slot,
                slots: taken.slots,
                has_offload: !handle.port().taken_offload(&taken).is_none(),
            });
            let frame = NflFrame {
                data: slot_start(handle.port(), taken.slot),
                len: taken.len,
                port: index,
                slot: taken.slot,
            };
            // SAFETY: `received` is less than `max`, the number of elements.
            unsafe { frames.add(received).write(frame) };
            received += 1;
        }
        Ok(count(received))
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Gives the slots of all received frames back.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_release(port: *mut NflPort) -> c_int {
    let body = |handle: &mut NflPort| {
        if handle.has_lent() {
            return Err(BUSY);
        }
        handle.held.clear();
        handle.port_mut().release();
        Ok(0)
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Gives the slots of the `count` frames that were received first back.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_release_first(port: *mut NflPort, count: usize) -> c_int {
    let body = |handle: &mut NflPort| {
        if handle.has_lent() {
            return Err(BUSY);
        }
        let end = handle.held.take(count).ok_or(INVALID)?;
        handle.port_mut().release_to(end);
        Ok(0)
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Queues a copy of `len` bytes.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `data` is null or
/// has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_send_copy(port: *mut NflPort, data: *const u8, len: usize) -> c_int {
    let body = |handle: &mut NflPort| {
        if data.is_null() {
            return Err(INVALID);
        }
        check_len(len, longest(handle.port()))?;
        // SAFETY: `data` has `len` bytes, as the caller promises.
        unsafe { send(handle, data, len, Offload::NONE) }
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Queues a copy of `len` bytes to which something is still to be done.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `data` is null or
/// has `len` bytes; `offload` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_send_offload(
    port: *mut NflPort,
    data: *const u8,
    len: usize,
    offload: *const NflOffload,
) -> c_int {
    let body = |handle: &mut NflPort| {
        if data.is_null() {
            return Err(INVALID);
        }
        check_len(len, longest(handle.port()))?;
        // SAFETY: null or readable, as the caller promises.
        let offload = match unsafe { offload.as_ref() } {
            Some(offload) => offload.check(len)?,
            None => Offload::NONE,
        };
        // SAFETY: `data` has `len` bytes, as the caller promises.
        unsafe { send(handle, data, len, offload) }
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// The longest frame that the program can make for a port.
fn longest(port: &Port) -> usize {
    match port.entry().tx_long_slots {
        0 => FRAME_MAX,
        _ => LONG_MAX,
    }
}

/// Queues a copy of `len` bytes, which the port has room for, in a slot of the port or in its slots for long frames.
///
/// # Safety
/// `data` has `len` bytes.
unsafe fn send(
    handle: &mut NflPort,
    data: *const u8,
    len: usize,
    offload: Offload,
) -> Result<c_int, Errno> {
    if handle.reserved {
        return Err(BUSY);
    }
    let port = handle.port_mut();
    let copy = |slots: &mut [u8]| {
        // SAFETY: the slots have room for `len` bytes, and `data` has as many; the two may overlap if the caller sends
        // from a slot.
        unsafe { std::ptr::copy(data, slots.as_mut_ptr(), len) };
    };
    let is_sent = if len <= FRAME_MAX && offload.is_none() {
        port.send(|slot| {
            copy(slot);
            len
        })
    } else if port.entry().tx_long_slots == 0 {
        return Err(UNSUPPORTED);
    } else {
        port.send_long(|slots| {
            copy(slots);
            (len, offload)
        })
    };
    if is_sent { Ok(0) } else { Err(NO_SLOT) }
}

/// Reserves the next slot and returns its address.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `data` is null or
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_tx_reserve(port: *mut NflPort, data: *mut *mut u8) -> c_int {
    let body = |handle: &mut NflPort| {
        if data.is_null() {
            return Err(INVALID);
        }
        let slot = handle.port_mut().next_tx_slot().ok_or(NO_SLOT)?;
        // SAFETY: not null, and the caller promises that it can be written.
        unsafe { data.write(slot_start(handle.port(), slot)) };
        handle.reserved = true;
        Ok(count(FRAME_MAX))
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Queues what lies in the reserved slot.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_tx_commit(port: *mut NflPort, len: usize) -> c_int {
    let body = |handle: &mut NflPort| {
        if !handle.reserved {
            return Err(INVALID);
        }
        if len > 0 {
            check_len(len, FRAME_MAX)?;
            // The frame is there already: nothing to fill in.
            if !handle.port_mut().send(|_| len) {
                return Err(NO_SLOT);
            }
        }
        handle.reserved = false;
        Ok(0)
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Queues a received frame without a copy.
///
/// # Safety
/// `to` is null or a port of an attached instance, used by this thread alone, as is the port that
/// the frame came from; `frame` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_forward(to: *mut NflPort, frame: *const NflFrame) -> c_int {
    let body = |handle: &mut NflPort| {
        // SAFETY: null or readable, as the caller promises.
        let frame = *unsafe { frame.as_ref() }.ok_or(INVALID)?;
        let place = handle.place_of(&frame)?;
        let len = frame.len_in(place)?;
        let offload = offload_of(handle.port(), place, len)?;
        if handle.port().pool().is_lent(place.slot) {
            return Err(BUSY);
        }
        if !handle.port().can_queue() {
            return Err(NO_SLOT);
        }
        handle.borrow_from(frame.port);
        let slots = (place.slot, place.slots);
        // SAFETY: the library has noted that a frame lies in these slots, and has no reference to metadata.
        unsafe { handle.port_mut().queue_slots(frame.len, slots, offload) };
        Ok(0)
    };
    // SAFETY: the same contract.
    unsafe { on(to, body) }
}

/// Hands all queued frames to the switch.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_flush(port: *mut NflPort, flags: c_uint) -> c_int {
    let body = |handle: &mut NflPort| {
        let when_full = match flags {
            0 => WhenFull::Drop,
            NFL_KEEP => WhenFull::Keep,
            _ => return Err(INVALID),
        };
        let flushed = handle.port_mut().flush(when_full);
        // The promise to C programs is that their slots are theirs again after a flush.
        if when_full == WhenFull::Drop {
            handle.port_mut().await_io_thread();
        }
        if handle.port().queued() == 0 {
            handle.return_all();
        }
        match flushed {
            Ok(consumed) => Ok(count(consumed as usize)),
            Err(error) => Err(Errno::from(&error)),
        }
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Frames queued and not yet consumed.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_queued(port: *const NflPort) -> c_int {
    status(|| {
        // SAFETY: null or a port, as the caller promises.
        let port = unsafe { port.as_ref() }.ok_or(INVALID)?;
        Ok(count(port.port().queued() as usize))
    })
}

/// Writes what the library has counted.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `stats` is null or
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_stats(port: *const NflPort, stats: *mut NflStats) -> c_int {
    status(|| {
        // SAFETY: null or a port, as the caller promises.
        let port = unsafe { port.as_ref() }.ok_or(INVALID)?;
        if stats.is_null() {
            return Err(INVALID);
        }
        let counted = port.port().stats();
        let told = NflStats {
            rx_frames: counted.rx_frames,
            rx_bytes: counted.rx_bytes,
            tx_frames: counted.tx_frames,
            calls: counted.calls,
            rings: counted.rings,
            tx_no_slot: counted.tx_no_slot,
            tx_errors: counted.tx_errors,
        };
        // SAFETY: not null, and the caller promises that it can be written.
        unsafe { stats.write(told) };
        Ok(0)
    })
}
