//! libxdp, opened at run time: it has programs of several owners on one interface, one behind the other.
//!
//! nfluid is not linked with libxdp, runs where libxdp is not installed, and then reports what is missing. libxdp has
//! a libbpf of its own (`libbpf.so.1`), which is not the libbpf that is built in here: objects of one libbpf are
//! never handed to the other, except for numbers and descriptors, which are the kernel's.

mod functions;

use crate::hook::XdpHook;
use functions::{Functions, RawObject, load};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes of the library's messages that are passed on.
const MESSAGES_BYTES_MAX: usize = 2048;
/// `enum xdp_attach_mode`.
const MODE_ANY: c_uint = 0;
const MODE_NATIVE: c_uint = 1;
const MODE_GENERIC: c_uint = 2;
/// The message by which libxdp reports that the kernel has no room beside a program.
const ALONE: &str = "libxdp: Falling back to loading single prog";
/// Level of a warning, with both libraries.
const WARNING: c_int = 0;

unsafe extern "C" {
    fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, list: *mut c_void) -> c_int;
}

/// Messages of the libraries since the last reading. Only a single thread at a time uses the libraries: their
/// messages have no owner, and they remember where their files are.
static MESSAGES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static IN_USE: Mutex<()> = Mutex::new(());
static OPENED: OnceLock<Functions> = OnceLock::new();

/// The library, for one thread.
pub struct Libxdp {
    functions: &'static Functions,
    _alone: MutexGuard<'static, ()>,
}

/// The program at XDP on an interface.
#[derive(Debug, PartialEq, Eq)]
pub enum Occupant {
    None,
    /// A program that is not libxdp's dispatcher.
    Other,
    /// The dispatcher, with the numbers of the programs in it, in the order in which packets meet them.
    Dispatcher(XdpHook, Vec<u32>),
}

impl Libxdp {
    /// The library; it stays open.
    ///
    /// # Errors
    /// When it is not installed, or too old; says what to do.
    pub fn open() -> Result<Self, String> {
        let alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let functions = match OPENED.get() {
            Some(functions) => functions,
            None => {
                let found = load()?;
                OPENED.get_or_init(|| found)
            }
        };
        Ok(Libxdp {
            functions,
            _alone: alone,
        })
    }

    /// Returns the program at XDP on an interface of the calling thread's namespace.
    pub fn occupant(&self, interface: u32) -> Occupant {
        let f = self.functions;
        // SAFETY: of an interface that is not there it says so.
        let found = unsafe { (f.on_interface)(interface.cast_signed()) };
        // SAFETY: the pointer is the result of a function of the library.
        if unsafe { (f.error_of)(found.cast()) } != 0 || found.is_null() {
            return Occupant::None;
        }
        // SAFETY: the library has just made the dispatcher, and no code has closed it; the programs belong to it, and
        // end with it.
        unsafe {
            let mut programs = Vec::new();
            let mut last = null();
            loop {
                let next = (f.next_program)(last, found);
                if next.is_null() {
                    break;
                }
                programs.push((f.program_id)(next));
                last = next;
            }
            let occupant = if (f.is_single)(found) {
                Occupant::Other
            } else if (f.attach_mode)(found) == MODE_GENERIC {
                Occupant::Dispatcher(XdpHook::Generic, programs)
            } else {
                Occupant::Dispatcher(XdpHook::Native, programs)
            };
            (f.close_dispatcher)(found);
            occupant
        }
    }

    /// Loads the only program of an object, with `map` in the place of its own map of that name, into the dispatcher
    /// on an interface of the calling thread's namespace. The dispatcher is made if there is none. The program stays
    /// when this process ends.
    ///
    /// # Errors
    /// When the library or the kernel refuses; nothing has changed then.
    pub fn attach(
        &self,
        object: &[u8],
        map: (&CStr, BorrowedFd<'_>),
        interface: u32,
        hook: XdpHook,
        priority: u32,
    ) -> io::Result<()> {
        let words = Words::listen(self.functions);
        let f = self.functions;
        // SAFETY: the object is readable in this length, and copied; there are no options.
        let object = unsafe { (f.object_open)(object.as_ptr().cast(), object.len(), null()) };
        // SAFETY: the pointer is the result of a function of the library.
        let error = unsafe { (f.error_of)(object.cast()) };
        if error != 0 || object.is_null() {
            return Err(words.error("reading the program", error));
        }
        let mode = match hook {
            XdpHook::Native => MODE_NATIVE,
            XdpHook::Generic => MODE_GENERIC,
        };
        // SAFETY: the object is open until the end of this, the program until before that; the descriptor is open.
        unsafe {
            let own = (f.object_map)(object, map.0.as_ptr());
            let shared = match own.is_null() {
                true => -libc::ENOENT,
                false => (f.map_reuse)(own, map.1.as_raw_fd()),
            };
            let attached = match shared {
                0 => self.attach_program(object, interface, mode, priority, &words),
                error => Err(words.error("handing over its map", error.into())),
            };
            (f.object_close)(object);
            attached
        }
    }

    /// # Safety
    /// The object is open.
    unsafe fn attach_program(
        &self,
        object: *mut RawObject,
        interface: u32,
        mode: c_uint,
        priority: c_uint,
        words: &Words,
    ) -> io::Result<()> {
        let f = self.functions;
        // SAFETY: the caller's promise; the program, which is open until the end of this, is the first one of the object.
        unsafe {
            let program = (f.program_of)(object, c"xdp".as_ptr());
            let error = (f.error_of)(program.cast());
            if error != 0 || program.is_null() {
                return Err(words.error("reading the program", error));
            }
            let mut status = (f.set_priority)(program, priority);
            if status == 0 {
                status = (f.attach)(program, interface.cast_signed(), mode, 0);
            }
            let is_single = || self.occupant(interface) == Occupant::Other;
            let attached = if status != 0 {
                Err(words.error("attaching", status.into()))
            } else if is_single() {
                let why = words.error("attaching", -c_long::from(libc::EOPNOTSUPP));
                // A program without a dispatcher would admit no other program.
                (f.detach)(program, interface.cast_signed(), MODE_ANY, 0);
                Err(why)
            } else {
                Ok(())
            };
            (f.program_close)(program);
            attached
        }
    }

    /// Takes a program out of the dispatcher of an interface of the calling thread's namespace; the last one takes that away.
    ///
    /// # Errors
    /// When it is not there, or the library or the kernel refuses.
    pub fn detach(&self, interface: u32, program: u32) -> io::Result<()> {
        let words = Words::listen(self.functions);
        let f = self.functions;
        // SAFETY: the call reports a number that no program has; the returned descriptor is open until the end of
        // this block.
        unsafe {
            let program = (f.program_by_id)(program);
            let error = (f.error_of)(program.cast());
            if error != 0 || program.is_null() {
                return Err(words.error("finding the program", error));
            }
            let status = (f.detach)(program, interface.cast_signed(), MODE_ANY, 0);
            (f.program_close)(program);
            match status {
                0 => Ok(()),
                error => Err(words.error("detaching", error.into())),
            }
        }
    }
}

/// Keeps warnings of the libraries while it lives.
struct Words {
    functions: &'static Functions,
}

impl Words {
    fn listen(functions: &'static Functions) -> Self {
        messages().clear();
        // SAFETY: the function is of the type that both call, and stays.
        unsafe {
            (functions.bpf_print)(Some(keep));
            (functions.xdp_print)(Some(keep));
        }
        Words { functions }
    }

    /// An error with these words; `error` is a negative number of one.
    fn error(&self, what: &str, error: c_long) -> io::Error {
        let number = i32::try_from(-error).unwrap_or(libc::EIO);
        let error = io::Error::from_raw_os_error(number);
        let messages = String::from_utf8_lossy(&messages()).into_owned();
        let lines = messages.lines().map(str::trim);
        let messages: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let messages = messages.join("; ");
        let why = match hint(&messages, number) {
            Some(hint) => format!("{what}: {error}; {hint}"),
            None if messages.is_empty() => format!("{what}: {error}"),
            None => format!("{what}: {error} ({messages})"),
        };
        io::Error::new(error.kind(), why)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: none is the way to have them be silent.
        unsafe {
            (self.functions.bpf_print)(None);
            (self.functions.xdp_print)(None);
        }
    }
}

/// Returns the likely cause, and the remedy.
fn hint(messages: &str, number: i32) -> Option<&'static str> {
    if messages.contains("changes packet data") {
        Some(
            "this kernel needs libxdp 1.5.5 or later, for all tools that put programs there: the dispatcher of earlier ones takes no \
             program that goes on to another one",
        )
    } else if messages.contains(ALONE) || number == libc::EOPNOTSUPP || number == libc::EPERM {
        Some(
            "the dispatcher needs a kernel that replaces functions of programs (BPF_PROG_TYPE_EXT)",
        )
    } else {
        None
    }
}

fn messages() -> MutexGuard<'static, Vec<u8>> {
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// As the libraries call it: with a format that ends with zero, and a list that is as it says.
unsafe extern "C" fn keep(level: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    let mut line = [0u8; MESSAGES_BYTES_MAX];
    // SAFETY: the caller's promise; no more is written than there is room for.
    let length = unsafe { vsnprintf(line.as_mut_ptr().cast(), line.len(), format, list) };
    let length = usize::try_from(length).unwrap_or(0).min(line.len() - 1);
    let mut messages = messages();
    let room = MESSAGES_BYTES_MAX.saturating_sub(messages.len());
    let line_is = |start: &str| line.starts_with(start.as_bytes());
    let is_noise = line_is("libbpf: elf: skipping");
    if level == WARNING && !is_noise || line_is(ALONE) {
        messages.extend_from_slice(&line[..length.min(room)]);
    }
    length as c_int
}

#[cfg(test)]
mod tests {
    use super::{ALONE, Libxdp, Occupant, hint};

    // promise: 15.69
    #[test]
    fn an_interface_that_is_not_there_has_nobody_on_it() {
        let Ok(library) = Libxdp::open() else {
            println!(
                "SKIPPED an_interface_that_is_not_there_has_nobody_on_it: libxdp is not installed"
            );
            return;
        };
        assert_eq!(library.occupant(0x7fff_fff0), Occupant::None);
        assert!(library.detach(0x7fff_fff0, u32::MAX).is_err());
    }

    // promise: 15.69
    #[test]
    fn errors_of_libxdp_have_hints() {
        let words = "Extension program changes packet data, while original does not";
        let messages = hint(words, libc::EINVAL).expect("it is known");
        assert!(messages.contains("libxdp 1.5.5"));
        assert!(hint(&format!("{ALONE} x"), libc::EINVAL).is_some());
        assert!(hint("", libc::EPERM).is_some_and(|messages| messages.contains("kernel")));
        assert_eq!(hint("", libc::ENOMEM), None);
    }
}
