//! Errors as C sees them: negative errno values, and a text for each that the library itself gives.

use nfluid_ring::error::AttachError;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A positive errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) const INVALID: Errno = Errno(libc::EINVAL);

impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Self {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<AttachError> for Errno {
    fn from(error: AttachError) -> Self {
        match &error {
            AttachError::NoTable => Errno(libc::ENOENT),
            AttachError::BadTable(_) => Errno(libc::EPROTO),
            AttachError::OtherVersion => Errno(libc::EPROTONOSUPPORT),
            AttachError::Read { source, .. }
            | AttachError::Map { source, .. }
            | AttachError::Listen(source) => source.into(),
        }
    }
}

/// Runs the body of a function that returns `int`, and returns its return value.
#[inline]
pub(crate) fn status(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(number))) => -number,
        Err(_) => -libc::EFAULT,
    }
}

/// Runs the body of a function that returns a pointer, and returns its return value.
#[inline]
pub(crate) fn or_null<T>(body: impl FnOnce() -> Option<*mut T>) -> *mut T {
    let pointer = catch_unwind(AssertUnwindSafe(body)).ok().flatten();
    pointer.unwrap_or(std::ptr::null_mut())
}

/// A count as C's `int`; counts here are bounded by the size of a ring.
#[inline]
pub(crate) fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// The text for an errno value, positive or negative: what it means here, and what to do.
fn text(error: c_int) -> &'static CStr {
    match error.saturating_abs() {
        0 => c"no error",
        libc::ENOENT => {
            c"NFLUID_ATTACH_FD is not set to a file descriptor: start this program as an nfluid instance (nfluid apply)"
        }
        libc::EPROTO => {
            c"the port table is damaged: daemon and libnfluid are of different versions?"
        }
        libc::EPROTONOSUPPORT => {
            c"the port table is of another version of nfluid: build this program with the libnfluid of the running daemon, and start it again"
        }
        libc::EALREADY => c"this process has attached before: call nfl_attach once",
        libc::EINVAL => {
            c"a null pointer, an argument out of range, a frame of another instance, or a commit without a reserved slot"
        }
        libc::EMSGSIZE => {
            c"not the length of a frame: 14 to 2032 bytes, or to 65520 where the frame or the port has room for long frames"
        }
        libc::EBADMSG => {
            c"metadata that no such frame can have: it contradicts itself, the frame's length or its headers"
        }
        libc::EOPNOTSUPP => {
            c"a super-frame has no checksum of its own (cut it), or the port has no room for frames with metadata (frames: in the deployment)"
        }
        libc::ENOBUFS => c"no slot is free: call nfl_flush first",
        libc::EBUSY => {
            c"flush forwarded frames before their release, commit the reserved slot before another send, use a port from one thread at a time"
        }
        libc::ENETDOWN => c"the port is down: the platform has taken it out of service",
        libc::EPERM => c"not a port of this platform, or memory that may not be mapped",
        libc::EBADF => c"a descriptor that is not open",
        libc::ENOMEM => c"out of memory: give the instance more (memory: in its deployment)",
        libc::EFAULT => c"an error of libnfluid itself; please report it",
        _ => c"an error of the operating system: see strerror",
    }
}

/// Returns the meaning of a return value. The text is never null, and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn nfl_strerror(error: c_int) -> *const c_char {
    text(error).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_errors_become_negative_numbers() {
        assert_eq!(status(|| Ok(7)), 7);
        assert_eq!(status(|| Err(INVALID)), -libc::EINVAL);
        assert_eq!(status(|| panic!("a bug")), -libc::EFAULT);
        assert!(or_null::<u8>(|| panic!("a bug")).is_null());
    }

    #[test]
    fn attaching_elsewhere_says_what_to_do() {
        for error in [AttachError::NoTable, AttachError::OtherVersion] {
            let said = error.to_string();
            let Errno(number) = error.into();
            assert_eq!(text(-number).to_str().unwrap(), said);
        }
    }

    #[test]
    fn every_number_has_a_text() {
        for number in (-200..200).chain([c_int::MIN, c_int::MAX]) {
            assert!(!text(number).is_empty(), "{number}");
        }
    }
}
