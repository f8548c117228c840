//! Receiving, sending, forwarding.

use crate::errors::{Errno, INVALID, count, status};
use crate::ports::NflPort;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN, SLOT_SIZE};
use nfluid_ring::port::{Port, WhenFull};
use std::ffi::{c_int, c_uint};
use std::time::Duration;

/// `struct nfl_frame`: a received frame in place.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NflFrame {
    /// First byte.
    pub data: *mut u8,
    /// Length in bytes.
    pub len: u16,
    /// Index of the port that received it.
    pub port: u16,
    /// Slot in the instance's pool.
    pub slot: u32,
}

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

// The sizes in `nfluid.h`; lib/ring/tests/header.c asserts them on the other side.
const _: () = assert!(size_of::<NflFrame>() == size_of::<usize>() + 8);
const _: () = assert!(size_of::<NflStats>() == 56);

/// Looks at what an I/O thread has done, before the first nap.
const YIELDS: u32 = 64;
/// Between two later ones.
const NAP: Duration = Duration::from_micros(50);
const NFL_KEEP: c_uint = 1;
const TOO_LONG_OR_SHORT: Errno = Errno(libc::EMSGSIZE);
const NO_SLOT: Errno = Errno(libc::ENOBUFS);
const BUSY: Errno = Errno(libc::EBUSY);

/// Runs `body` on a port.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[inline]
unsafe fn on(port: *mut NflPort, body: impl FnOnce(&mut NflPort) -> Result<c_int, Errno>) -> c_int {
    status(|| {
        // SAFETY: as this function's caller promises.
        let port = unsafe { port.as_mut() }.ok_or(INVALID)?;
        body(port)
    })
}

fn check_len(len: usize) -> Result<(), Errno> {
    if (FRAME_MIN..=FRAME_MAX).contains(&len) {
        Ok(())
    } else {
        Err(TOO_LONG_OR_SHORT)
    }
}

/// Where a slot of the port's pool begins; the slot must exist.
#[inline]
fn slot_start(port: &Port, slot: u32) -> *mut u8 {
    let (start, _) = port.pool().as_raw_parts();
    start.wrapping_add(slot as usize * SLOT_SIZE)
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
        let port = handle.port_mut();
        let mut received = 0;
        while received < max {
            let Some(taken) = port.take_slot() else { break };
            let frame = NflFrame {
                data: slot_start(port, taken.slot),
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
        handle.port_mut().release();
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
        check_len(len)?;
        if handle.reserved {
            return Err(BUSY);
        }
        let sent = handle.port_mut().send(|slot| {
            // SAFETY: a slot has FRAME_MAX bytes, `data` has `len`, which is no more; the two may
            // overlap if the caller sends from a slot.
            unsafe { std::ptr::copy(data, slot.as_mut_ptr(), len) };
            len
        });
        if sent { Ok(0) } else { Err(NO_SLOT) }
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
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
            check_len(len)?;
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
        if frame.data != slot_start(handle.port(), frame.slot) {
            return Err(INVALID);
        }
        check_len(usize::from(frame.len))?;
        let pool = handle.port().pool();
        if frame.slot >= pool.slots() {
            return Err(INVALID);
        }
        if pool.is_lent(frame.slot) {
            return Err(BUSY);
        }
        if !handle.port().can_queue() {
            return Err(NO_SLOT);
        }
        handle.borrow_from(frame.port, frame.slot)?;
        handle.port_mut().queue_raw(frame.len, frame.slot);
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
        if when_full == WhenFull::Drop {
            await_io_thread(handle.port_mut());
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

/// Waits until the I/O thread has made the port's calls, if an I/O thread makes them. The promise to C programs is
/// that their slots are theirs again after a flush.
fn await_io_thread(port: &mut Port) {
    let mut turns: u32 = 0;
    while port.queued() > 0 && port.is_served() {
        if port.collect() > 0 {
            turns = 0;
        } else if turns < YIELDS {
            turns += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
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
