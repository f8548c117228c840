//! The functions of this library that stand before those of the C library. Each does what is netmap's, and calls the next
//! function otherwise.
//!
//! No panic leaves them: it becomes EFAULT, as an error of the kernel's own would.

use crate::abi;
use crate::descriptor;
use crate::next;
use crate::request::{control, legacy};
use crate::waiting::{Deadline, poll as wait_for};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Sets errno, and returns what functions of C return with it.
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The error of the last call of the C library.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs what is this library's part of a call.
pub fn guarded<T>(body: impl FnOnce() -> T, failed: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        fail(libc::EFAULT);
        failed()
    })
}

/// Is this path the device?
///
/// # Safety
/// `path` is null or a text of C.
unsafe fn is_device(path: *const c_char) -> bool {
    // SAFETY: not null, and as the caller promises.
    !path.is_null() && unsafe { CStr::from_ptr(path) }.to_bytes() == abi::DEVICE
}

/// Opens the device; `None`: the process has no ports, and what the kernel has at that path is next.
fn open_device() -> Option<c_int> {
    guarded(descriptor::open, || None)
}

macro_rules! opens {
    ($($name:ident, $checked:ident;)*) => {$(
        /// `open` of the C library, but for `/dev/netmap`.
        ///
        /// # Safety
        /// As of that function. A mode that the caller has not given is not looked at.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            // SAFETY: as the caller promises.
            let own = unsafe { is_device(path) }.then(open_device).flatten();
            // SAFETY: as the caller promises.
            own.unwrap_or_else(|| unsafe { next::open(path, flags, mode) })
        }

        /// The same, as compilers call it that check arguments.
        ///
        /// # Safety
        /// As of that function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the same contract; without a mode, nothing is created.
            unsafe { $name(path, flags, 0) }
        }
    )*};
}

opens! {
    open, __open_2;
    open64, __open64_2;
}

macro_rules! opens_at {
    ($($name:ident)*) => {$(
        /// `openat` of the C library, but for `/dev/netmap`.
        ///
        /// # Safety
        /// As of that function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            folder: c_int,
            path: *const c_char,
            flags: c_int,
            mode: c_uint,
        ) -> c_int {
            // SAFETY: as the caller promises.
            let own = unsafe { is_device(path) }.then(open_device).flatten();
            // SAFETY: as the caller promises.
            own.unwrap_or_else(|| unsafe { next::openat(folder, path, flags, mode) })
        }
    )*};
}

opens_at! { openat openat64 }

/// `close` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    crate::events::forget(fd);
    match guarded(|| descriptor::take(fd), || None) {
        Some(own) => guarded(
            || {
                drop(own);
                0
            },
            || -1,
        ),
        // SAFETY: as the caller promises.
        None => unsafe { next::close(fd) },
    }
}

/// `ioctl` of the C library.
///
/// # Safety
/// As of that function; requests of netmap have what netmap(4) says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some(own) = descriptor::find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { next::ioctl(fd, request, argument) };
    };
    let body = || match request {
        // A ring that was put right is no error of the request.
        abi::TX_SYNC if own.binding().is_some() => {
            let _put_right = own.send();
            Ok(())
        }
        abi::RX_SYNC if own.binding().is_some() => {
            let _put_right = own.release();
            own.receive();
            Ok(())
        }
        abi::TX_SYNC | abi::RX_SYNC => Err(libc::ENXIO),
        // SAFETY: as the caller promises.
        abi::CONTROL => unsafe { control(&own, argument.cast()) },
        abi::LEGACY_REGISTER | abi::LEGACY_INFO => {
            let registers = request == abi::LEGACY_REGISTER;
            // SAFETY: as the caller promises.
            unsafe { legacy(&own, argument.cast(), registers) }
        }
        _ => Err(libc::ENOTTY),
    };
    guarded(|| body().map_or_else(fail, |()| 0), || -1)
}

macro_rules! maps {
    ($($name:ident)*) => {$(
        /// `mmap` of the C library: a descriptor with ports has the region.
        ///
        /// # Safety
        /// As of that function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            len: usize,
            access: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> *mut c_void {
            let own = (fd >= 0).then(|| descriptor::find(fd)).flatten();
            let Some(own) = own else {
                // SAFETY: as the caller promises.
                return unsafe { next::mmap(address, len, access, flags, fd, offset) };
            };
            let region = &own.instance.region;
            let is_whole = own.binding().is_some() && offset == 0 && len <= region.bytes();
            if !is_whole || flags & libc::MAP_FIXED != 0 {
                fail(libc::EINVAL);
                return libc::MAP_FAILED;
            }
            region.start().as_ptr().cast()
        }
    )*};
}

maps! { mmap mmap64 }

/// `munmap` of the C library: the region stays, for others have it too.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    if descriptor::is_region(address as usize) {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { next::munmap(address, len) }
}

/// `poll`, with a time and a mask; what the kernel does if no descriptor is of this library.
///
/// # Safety
/// `fds` has `count` elements; `mask` is null or can be read.
pub unsafe fn polled(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> c_int {
    let own = || {
        if fds.is_null() {
            return None;
        }
        // SAFETY: not null, and of that many elements, as the caller promises.
        let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
        // SAFETY: as the caller promises.
        unsafe { wait_for(fds, Deadline::of(timeout), mask) }
    };
    guarded(own, || Some(-1)).unwrap_or_else(|| {
        let time = timeout.map(crate::waiting::timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as the caller promises.
        unsafe { next::ppoll(fds, count, time, mask) }
    })
}

/// A timeout in milliseconds; negative: none.
pub fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A timeout in seconds and parts of them; `None`: there is none; EINVAL: it is none.
///
/// # Safety
/// `time` is null or can be read.
pub unsafe fn duration(time: *const libc::timespec) -> Result<Option<Duration>, c_int> {
    // SAFETY: as the caller promises.
    let Some(time) = (unsafe { time.as_ref() }) else {
        return Ok(None);
    };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let rest = u32::try_from(time.tv_nsec).map_err(|_| libc::EINVAL)?;
    if rest >= 1_000_000_000 {
        return Err(libc::EINVAL);
    }
    Ok(Some(Duration::new(seconds, rest)))
}

/// `poll` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn poll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { polled(fds, count, milliseconds(timeout), std::ptr::null()) }
}

/// The same, as compilers call it that check arguments.
///
/// # Safety
/// As of `poll`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
    bytes: usize,
) -> c_int {
    if (bytes / size_of::<libc::pollfd>()) < count as usize {
        std::process::abort();
    }
    // SAFETY: the same contract.
    unsafe { poll(fds, count, timeout) }
}

/// `ppoll` of the C library.
///
/// # Safety
/// As of that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { duration(timeout) } {
        // SAFETY: the same contract.
        Ok(timeout) => unsafe { polled(fds, count, timeout, mask) },
        Err(errno) => fail(errno),
    }
}

/// The same, as compilers call it that check arguments.
///
/// # Safety
/// As of `ppoll`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
    bytes: usize,
) -> c_int {
    if (bytes / size_of::<libc::pollfd>()) < count as usize {
        std::process::abort();
    }
    // SAFETY: the same contract.
    unsafe { ppoll(fds, count, timeout, mask) }
}
