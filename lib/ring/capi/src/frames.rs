//! Received frames in place: room, metadata, and the way from a frame to packets.

use crate::errors::{Errno, INVALID, count, status};
use crate::lane::Place;
use crate::offload::{BAD_LENGTH, BAD_OFFLOAD, NflOffload, UNSUPPORTED};
use crate::ports::{NflPort, slot_start};
use nfluid_ring::layout::FRAME_MIN;
use nfluid_ring::offload::OFFLOAD_BYTES;
use nfluid_ring::port::Port;
use nfluid_ring::{Frame, Offload};
use std::ffi::{c_int, c_void};

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
    /// The first slot in the instance's pool.
    pub slot: u32,
}

// The size in `nfluid.h`; lib/ring/tests/header.c asserts it on the other side.
const _: () = assert!(size_of::<NflFrame>() == size_of::<usize>() + 8);

/// The function that takes the packets of a frame.
pub type NflPacket = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int;

impl NflFrame {
    /// The frame's length, if its slots have room for it.
    ///
    /// # Errors
    /// `EMSGSIZE` if not, or if no frame is so short.
    #[inline]
    pub(crate) fn len_in(&self, place: Place) -> Result<usize, Errno> {
        let len = usize::from(self.len);
        let fits = (FRAME_MIN..=place.room()).contains(&len);
        fits.then_some(len).ok_or(BAD_LENGTH)
    }
}

/// Where the metadata of a frame lies.
#[inline]
fn metadata_at(port: &Port, place: Place) -> *mut u8 {
    slot_start(port, place.slot).wrapping_add(place.room())
}

/// The work that is still to be done to a frame that is `len` bytes long now.
///
/// # Errors
/// `EBADMSG` if the metadata does not fit that length, or the program has written over it.
#[inline]
pub(crate) fn offload_of(port: &Port, place: Place, len: usize) -> Result<Offload, Errno> {
    if !place.has_offload {
        return Ok(Offload::NONE);
    }
    let mut words = [0; OFFLOAD_BYTES];
    // SAFETY: the place is one of the port's lane, whose slots lie in the pool, and the metadata is the last bytes of its
    // last slot. No reference to them exists: `Frame`s do not have them.
    unsafe {
        std::ptr::copy_nonoverlapping(metadata_at(port, place), words.as_mut_ptr(), OFFLOAD_BYTES);
    }
    Offload::check(words, len).map_err(|_| BAD_OFFLOAD)
}

/// Keeps what is still to be done to a frame of `len` bytes.
fn keep(handle: &NflPort, place: Place, len: usize, offload: Offload) {
    if !offload.is_none() {
        let words = offload.words(len);
        // SAFETY: as in `offload_of`.
        unsafe {
            let to = metadata_at(handle.port(), place);
            std::ptr::copy_nonoverlapping(words.as_ptr(), to, OFFLOAD_BYTES);
        }
    }
    handle.lane().note(Place {
        has_offload: !offload.is_none(),
        ..place
    });
}

/// Reads a program's description of a frame, and finds the frame.
///
/// # Errors
/// `EINVAL` if `port` has not received the frame.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `frame` is null or can be read.
unsafe fn find<'a>(
    port: *const NflPort,
    frame: *const NflFrame,
) -> Result<(&'a NflPort, NflFrame, Place), Errno> {
    // SAFETY: null or a port, as this function's caller promises.
    let handle = unsafe { port.as_ref() }.ok_or(INVALID)?;
    // SAFETY: null or readable, as this function's caller promises.
    let frame = *unsafe { frame.as_ref() }.ok_or(INVALID)?;
    if usize::from(frame.port) != handle.index() {
        return Err(INVALID);
    }
    let place = handle.place_of(&frame)?;
    Ok((handle, frame, place))
}

/// Lets `change` change a frame and what is still to be done to it.
///
/// # Safety
/// As for [`find`], and the program holds the frame.
unsafe fn change(
    port: *const NflPort,
    frame: *const NflFrame,
    change: impl FnOnce(&mut Frame<'_>) -> Result<(), Errno>,
) -> c_int {
    status(|| {
        // SAFETY: the same contract.
        let (handle, frame, place) = unsafe { find(port, frame) }?;
        let len = frame.len_in(place)?;
        let offload = offload_of(handle.port(), place, len)?;
        // SAFETY: these slots lie in the pool and are the program's, which is in this function.
        let slots = unsafe { std::slice::from_raw_parts_mut(frame.data, place.room()) };
        let mut view = Frame::new(slots, frame.len, 0);
        view.set_offload(offload);
        change(&mut view)?;
        if view.offload() != offload {
            keep(handle, place, len, view.offload());
        }
        Ok(0)
    })
}

/// The most bytes that a frame can have where it lies.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone; `frame` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_frame_room(port: *const NflPort, frame: *const NflFrame) -> c_int {
    // SAFETY: the same contract.
    status(|| unsafe { find(port, frame) }.map(|(_, _, place)| count(place.room())))
}

/// Writes what is still to be done to a frame.
///
/// # Safety
/// As for [`nfl_frame_room`]; `offload` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_frame_offload(
    port: *const NflPort,
    frame: *const NflFrame,
    offload: *mut NflOffload,
) -> c_int {
    status(|| {
        // SAFETY: the same contract.
        let (handle, frame, place) = unsafe { find(port, frame) }?;
        if offload.is_null() {
            return Err(INVALID);
        }
        let found = offload_of(handle.port(), place, frame.len_in(place)?)?;
        // SAFETY: not null, and the caller promises that it can be written.
        unsafe { offload.write(NflOffload::of(found)) };
        Ok(0)
    })
}

/// Sets what is still to be done to a frame.
///
/// # Safety
/// As for [`nfl_frame_room`]; `offload` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_frame_set_offload(
    port: *const NflPort,
    frame: *const NflFrame,
    offload: *const NflOffload,
) -> c_int {
    status(|| {
        // SAFETY: the same contract.
        let (handle, frame, place) = unsafe { find(port, frame) }?;
        // SAFETY: null or readable, as the caller promises.
        let offload = *unsafe { offload.as_ref() }.ok_or(INVALID)?;
        let len = frame.len_in(place)?;
        let offload = offload.check(len)?;
        if !offload.is_none() && handle.port().pool().is_shared() {
            return Err(UNSUPPORTED);
        }
        keep(handle, place, len, offload);
        Ok(0)
    })
}

/// Makes sure that the metadata of a frame is about the frame's own headers.
///
/// # Safety
/// As for [`nfl_frame_room`], and the program holds the frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_frame_settle(port: *const NflPort, frame: *const NflFrame) -> c_int {
    let settle = |frame: &mut Frame<'_>| frame.settle().map_err(|_| BAD_OFFLOAD);
    // SAFETY: the same contract.
    unsafe { change(port, frame, settle) }
}

/// Computes the partial checksum of a frame that is one packet.
///
/// # Safety
/// As for [`nfl_frame_room`], and the program holds the frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_frame_finish(port: *const NflPort, frame: *const NflFrame) -> c_int {
    let finish = |frame: &mut Frame<'_>| frame.finish().then_some(()).ok_or(UNSUPPORTED);
    // SAFETY: the same contract.
    unsafe { change(port, frame, finish) }
}

/// Hands the packets that a frame becomes on a wire to `packet`, one after the other.
///
/// # Safety
/// As for [`nfl_frame_room`], and the program holds the frame, and does not change it before the call returns. `packet` is
/// null or a function that may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_frame_cut(
    port: *const NflPort,
    frame: *const NflFrame,
    packet: Option<NflPacket>,
    context: *mut c_void,
) -> c_int {
    status(|| {
        let packet = packet.ok_or(INVALID)?;
        // SAFETY: the same contract. `packet` may use the port: no reference to it is held when that function is called.
        let (handle, frame, place) = unsafe { find(port, frame) }?;
        let len = frame.len_in(place)?;
        let offload = offload_of(handle.port(), place, len)?;
        // SAFETY: the bytes lie in the pool, and nobody changes them before the call returns, as the caller promises.
        let bytes = unsafe { std::slice::from_raw_parts(frame.data, len) };
        let mut segments = offload.packets_of(bytes).map_err(|_| BAD_OFFLOAD)?;
        let packets = segments.remaining();
        let mut buffer = vec![0; segments.packet_len()];
        while let Some(len) = segments.write_next(&mut buffer) {
            // SAFETY: as the caller promises; the packet lies in the buffer.
            let said = unsafe { packet(context, buffer.as_ptr(), len) };
            if said < 0 {
                return Err(Errno(said.saturating_neg()));
            }
        }
        Ok(count(packets))
    })
}
