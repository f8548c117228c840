//! The functions of libxdp and of its libbpf that are called, found in the library when it is opened.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ptr::NonNull;

const LIBRARY: &CStr = c"libxdp.so.1";

pub enum RawObject {}
pub enum RawMap {}
pub enum RawProgram {}
pub enum RawDispatcher {}

/// The callback for messages of both libraries; the last argument is a `va_list`, which the C ABIs of Linux pass by
/// its address.
pub type Print = unsafe extern "C" fn(c_int, *const c_char, *mut c_void) -> c_int;

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// Functions of libxdp and of its libbpf.
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// `library` is an open libxdp.
            unsafe fn of(library: NonNull<c_void>) -> Result<Self, String> {
                Ok(Functions {
                    // SAFETY: a function of this name has this signature in all versions 1 of the library (libxdp.h, libbpf.h).
                    $($field: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                            function(library, $name)?.as_ptr(),
                        )
                    },)*
                })
            }
        }
    };
}

functions! {
    object_open = c"bpf_object__open_mem" (*const c_void, usize, *const c_void) -> *mut RawObject;
    object_close = c"bpf_object__close" (*mut RawObject) -> ();
    object_map = c"bpf_object__find_map_by_name" (*const RawObject, *const c_char) -> *mut RawMap;
    map_reuse = c"bpf_map__reuse_fd" (*mut RawMap, c_int) -> c_int;
    bpf_print = c"libbpf_set_print" (Option<Print>) -> Option<Print>;
    xdp_print = c"libxdp_set_print" (Option<Print>) -> Option<Print>;
    error_of = c"libxdp_get_error" (*const c_void) -> c_long;
    program_of = c"xdp_program__from_bpf_obj" (*mut RawObject, *const c_char) -> *mut RawProgram;
    program_by_id = c"xdp_program__from_id" (u32) -> *mut RawProgram;
    program_id = c"xdp_program__id" (*const RawProgram) -> u32;
    program_close = c"xdp_program__close" (*mut RawProgram) -> ();
    set_priority = c"xdp_program__set_run_prio" (*mut RawProgram, c_uint) -> c_int;
    attach = c"xdp_program__attach" (*mut RawProgram, c_int, c_uint, c_uint) -> c_int;
    detach = c"xdp_program__detach" (*mut RawProgram, c_int, c_uint, c_uint) -> c_int;
    on_interface = c"xdp_multiprog__get_from_ifindex" (c_int) -> *mut RawDispatcher;
    next_program = c"xdp_multiprog__next_prog" (*const RawProgram, *const RawDispatcher) -> *mut RawProgram;
    is_single = c"xdp_multiprog__is_legacy" (*const RawDispatcher) -> bool;
    attach_mode = c"xdp_multiprog__attach_mode" (*const RawDispatcher) -> c_uint;
    close_dispatcher = c"xdp_multiprog__close" (*mut RawDispatcher) -> ();
}

/// # Safety
/// `library` is open.
unsafe fn function(library: NonNull<c_void>, name: &CStr) -> Result<NonNull<c_void>, String> {
    // SAFETY: the library is open, and the name ends with zero.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    let name = name.to_string_lossy();
    NonNull::new(found).ok_or_else(|| format!("it has no {name}: version 1.2 or later is needed"))
}

/// Opens the library, which is never closed.
///
/// # Errors
/// When it is not installed, or too old; says what to do.
pub fn load() -> Result<Functions, String> {
    // SAFETY: the name ends with zero; the initialisation of the libraries is their own affair. The libraries find
    // their symbols in themselves before they are found here.
    let library =
        unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | DEEP) };
    let Some(library) = NonNull::new(library) else {
        // SAFETY: it is null, or a text that stays until the next call of this thread.
        let why = unsafe { text(libc::dlerror()) };
        return Err(format!(
            "{why}; install libxdp (apt-get install libxdp1), or leave 'beside: libxdp' out"
        ));
    };
    // SAFETY: it is open, and is never closed.
    unsafe { Functions::of(library) }
}

/// The libbpf that is built in here is not taken for theirs.
#[cfg(target_env = "gnu")]
const DEEP: c_int = libc::RTLD_DEEPBIND;
#[cfg(not(target_env = "gnu"))]
const DEEP: c_int = 0;

/// # Safety
/// The pointer is null, or the text ends with zero.
unsafe fn text(at: *const c_char) -> String {
    if at.is_null() {
        return "it cannot be opened".to_owned();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}
