//! Sleep in a program's own event loop.

use crate::errors::{Errno, INVALID, status};
use crate::instance::{NflInstance, timeout};
use crate::ports::NflPort;
use crate::traffic::on;
use std::ffi::c_int;

/// Announces a sleep: 1, the next frame rings; 0, a frame waits.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_sleep(port: *mut NflPort) -> c_int {
    let body = |handle: &mut NflPort| {
        handle.epoch = handle.epoch.wrapping_add(1).max(1);
        let epoch = handle.epoch;
        Ok(c_int::from(handle.port_mut().fall_asleep(epoch)))
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Takes the announcement back.
///
/// # Safety
/// `port` is null or a port of an attached instance, used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_awake(port: *mut NflPort) -> c_int {
    let body = |handle: &mut NflPort| {
        handle.port_mut().awake();
        Ok(0)
    };
    // SAFETY: the same contract.
    unsafe { on(port, body) }
}

/// Waits for a ring, whichever port it is for.
///
/// # Safety
/// `instance` is null or attached; no other thread is in a function that takes the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_wait_ring(instance: *mut NflInstance, timeout_ms: c_int) -> c_int {
    status(|| {
        if instance.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, so attached; no other thread refers to the instance, as the caller promises.
        let doorbell = unsafe { &mut (*instance).doorbell };
        let rung = doorbell.wait_for_ring(timeout(timeout_ms));
        rung.map(c_int::from).map_err(|error| Errno::from(&error))
    })
}
