//! The functions of the C library that this library's functions stand before.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Declares functions that call the next library's function of the same name, which is looked up at the first call.
macro_rules! next {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's function.
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            type Function = unsafe extern "C" fn($($kind),*) -> $result;
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let name = concat!(stringify!($name), "\0");
            let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("a name without NUL");
            let function = find(name, &FOUND);
            // SAFETY: the C library's function of this name has this type: on the platforms that nfluid runs on, an argument
            // of a variadic function is passed as any other.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
            // SAFETY: as the caller promises.
            unsafe { function($($argument),*) }
        }
    )*};
}

fn find(name: &CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if function.is_null() {
        crate::say(format_args!(
            "the C library has no function {}",
            name.to_string_lossy()
        ));
        std::process::abort();
    }
    found.store(function, Ordering::Relaxed);
    function
}

next! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    fn mmap(address: *mut c_void, len: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn munmap(address: *mut c_void, len: usize) -> c_int;
    fn ppoll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int;
    fn pselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int;
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int;
    fn epoll_pwait(set: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int, mask: *const libc::sigset_t) -> c_int;
}
