//! `select` and `pselect`: as `poll`, over the same descriptors.

use crate::calls::{duration, fail, polled};
use crate::descriptor;
use crate::next;
use std::ffi::{c_int, c_short};
use std::time::{Duration, Instant};

/// What makes a descriptor of a set ready.
const READABLE: c_short = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const WRITABLE: c_short = libc::POLLOUT | libc::POLLERR;
const EXCEPTIONAL: c_short = libc::POLLPRI;

/// The three sets of a call: null or sets.
struct Sets([*mut libc::fd_set; 3]);

const ASKED: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
const FOUND: [c_short; 3] = [READABLE, WRITABLE, EXCEPTIONAL];

impl Sets {
    /// What is asked of a descriptor.
    fn asked(&self, fd: c_int) -> c_short {
        let sets = self.0.iter().zip(ASKED);
        // SAFETY: null or a set, as the caller of `wait` promises; the number is below its size.
        let in_set = |set: *mut libc::fd_set| !set.is_null() && unsafe { libc::FD_ISSET(fd, set) };
        sets.filter(|(set, _)| in_set(**set))
            .fold(0, |asked, (_, event)| asked | event)
    }

    /// Replaces the sets by what was found; returns the number of bits.
    fn answer(&self, fds: &[libc::pollfd]) -> c_int {
        let mut bits = 0;
        for ((set, asked), found) in self.0.iter().zip(ASKED).zip(FOUND) {
            if set.is_null() {
                continue;
            }
            // SAFETY: a set, as the caller of `wait` promises.
            unsafe { libc::FD_ZERO(*set) };
            for fd in fds {
                if fd.events & asked != 0 && fd.revents & found != 0 {
                    // SAFETY: as above; the number is below the set's size.
                    unsafe { libc::FD_SET(fd.fd, *set) };
                    bits += 1;
                }
            }
        }
        bits
    }
}

/// Waits, if a descriptor of this library is among those of the sets.
///
/// # Safety
/// The sets are null or sets; `mask` is null or can be read.
unsafe fn wait(
    count: c_int,
    sets: &Sets,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Option<c_int> {
    let numbers = 0..count.clamp(0, libc::FD_SETSIZE as c_int);
    let entry = |fd| {
        let events = sets.asked(fd);
        (events != 0).then_some(libc::pollfd {
            fd,
            events,
            revents: 0,
        })
    };
    let mut fds: Vec<libc::pollfd> = numbers.filter_map(entry).collect();
    if !fds.iter().any(|fd| descriptor::find(fd.fd).is_some()) {
        return None;
    }
    // SAFETY: the array is ours, and the mask as the caller promises.
    let ready = unsafe { polled(fds.as_mut_ptr(), fds.len() as u64, timeout, mask) };
    if ready < 0 {
        return Some(ready);
    }
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Some(fail(libc::EBADF));
    }
    Some(sets.answer(&fds))
}

/// `pselect` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let time = match unsafe { duration(timeout) } {
        Ok(time) => time,
        Err(errno) => return fail(errno),
    };
    let sets = Sets([read, write, except]);
    // SAFETY: the same contract.
    let own = crate::calls::guarded(|| unsafe { wait(count, &sets, time, mask) }, || Some(-1));
    // SAFETY: the same contract.
    own.unwrap_or_else(|| unsafe { next::pselect(count, read, write, except, timeout, mask) })
}

/// `select` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    let begun = Instant::now();
    // SAFETY: null or a time, as the caller promises.
    let given = unsafe { timeout.as_mut() };
    let time = given.as_ref().map(|time| {
        // More than a second of microseconds is as long as it says.
        let seconds = time.tv_sec.saturating_add(time.tv_usec / 1_000_000);
        libc::timespec {
            tv_sec: seconds,
            tv_nsec: time.tv_usec % 1_000_000 * 1000,
        }
    });
    let time = time.as_ref();
    let pointer = time.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the same contract.
    let ready = unsafe { pselect(count, read, write, except, pointer, std::ptr::null()) };
    // As Linux does, and no other system: what is left of the time.
    // SAFETY: as the caller promises.
    if let (Some(given), Ok(Some(time))) = (given, unsafe { duration(pointer) }) {
        let left = time.saturating_sub(begun.elapsed());
        given.tv_sec = left.as_secs().cast_signed();
        given.tv_usec = i64::from(left.subsec_micros());
    }
    ready
}
