//! nDPI, opened at run time: a version other than that of the headers is refused. The program itself is not linked with
//! nDPI, runs without it, and then reports what is missing.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex, PoisonError};

/// The library's name as its packages have it (Debian's `libndpi4.2`).
pub const LIBRARY: &str = "libndpi.so.4.2";
/// Size of the buffer for the shim's error text.
const WHY_BYTES: usize = 512;

/// The reason why nDPI cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("nDPI ({library}) cannot be used: {why}")]
pub struct LibraryError {
    library: String,
    why: String,
}

/// The result for a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The application.
    pub application: Application,
    /// True if the application was guessed by ports or addresses, not read in a packet.
    pub guessed: bool,
    /// True if further packets may show more.
    pub more: bool,
}

impl Answer {
    /// Returns a number for the table of the fast path: 0 means none.
    pub(crate) fn to_note(self) -> u64 {
        let Application {
            master,
            application,
        } = self.application;
        1 << 63 | u64::from(self.guessed) << 32 | u64::from(master) << 16 | u64::from(application)
    }

    /// Reads the note that [`Answer::to_note`] has made. `None`: the note has another writer.
    pub(crate) fn of_note(note: u64) -> Option<Self> {
        (note >> 63 == 1).then_some(Answer {
            application: Application {
                master: (note >> 16) as u16,
                application: note as u16,
            },
            guessed: note >> 32 & 1 == 1,
            more: false,
        })
    }
}

/// An application by nDPI's numbers; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Application {
    /// The protocol that carries the application (TLS, HTTP), if it is another one.
    pub master: u16,
    /// The application.
    pub application: u16,
}

impl Application {
    /// Returns the number under which it is counted: the application, or at least the carrying protocol.
    pub fn id(self) -> u16 {
        if self.application == 0 {
            self.master
        } else {
            self.application
        }
    }
}

#[repr(C)]
struct ShimAnswer {
    master: u16,
    application: u16,
    guessed: u8,
    more: u8,
}

enum ShimModule {}
enum ShimFlow {}

// SAFETY: as shim/shim.h declares them; the two files are kept side by side.
unsafe extern "C" {
    fn shim_open(library: *const c_char, why: *mut c_char, size: usize) -> *mut ShimModule;
    fn shim_close(module: *mut ShimModule);
    fn shim_version(module: *const ShimModule) -> *const c_char;
    fn shim_protocols(module: *const ShimModule) -> u32;
    fn shim_name(module: *const ShimModule, protocol: u16) -> *const c_char;
    fn shim_flow_new(module: *const ShimModule) -> *mut ShimFlow;
    fn shim_flow_free(module: *const ShimModule, flow: *mut ShimFlow);
    fn shim_packet(
        module: *mut ShimModule,
        flow: *mut ShimFlow,
        packet: *const u8,
        length: u16,
        time_ms: u64,
        answer: *mut ShimAnswer,
    );
    fn shim_give_up(module: *mut ShimModule, flow: *mut ShimFlow, answer: *mut ShimAnswer);
}

/// nDPI does not set up two of itself at once.
static SETTING_UP: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Module(*mut ShimModule);

// SAFETY: nDPI has no state that belongs to a thread.
unsafe impl Send for Module {}
// SAFETY: through a shared reference only names are read, and flows allocated and freed, which does not write to the
// module; everything else takes `&mut Library`.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: `shim_open` has made it, and no flow is left: each holds the module.
        unsafe { shim_close(self.0) }
    }
}

/// An nDPI, set up for all protocols.
#[derive(Debug)]
pub struct Library {
    module: Arc<Module>,
}

/// nDPI's state of a flow.
#[derive(Debug)]
pub struct Conversation {
    flow: *mut ShimFlow,
    module: Arc<Module>,
}

// SAFETY: it is memory of its own, which nothing else points to.
unsafe impl Send for Conversation {}

impl Drop for Conversation {
    fn drop(&mut self) {
        // SAFETY: `shim_flow_new` of this module has made it.
        unsafe { shim_flow_free(self.module.0, self.flow) }
    }
}

impl Library {
    /// Opens [`LIBRARY`].
    ///
    /// # Errors
    /// As [`Library::open_file`].
    pub fn open() -> Result<Self, LibraryError> {
        Library::open_file(LIBRARY)
    }

    /// Opens a library by its name or path.
    ///
    /// # Errors
    /// When the library does not exist, has another version than the headers of this build, or this build has none.
    pub fn open_file(library: &str) -> Result<Self, LibraryError> {
        let error = |why: String| LibraryError {
            library: library.to_owned(),
            why,
        };
        let name = CString::new(library).map_err(|_| error("that is no name".to_owned()))?;
        let mut why = [0; WHY_BYTES];
        let one_at_a_time = SETTING_UP.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the name ends with zero, and `why` has the stated length.
        let module = unsafe { shim_open(name.as_ptr(), why.as_mut_ptr().cast(), why.len()) };
        drop(one_at_a_time);
        if module.is_null() {
            let said = CStr::from_bytes_until_nul(&why).map(CStr::to_string_lossy);
            let mut said = said.unwrap_or_default().into_owned();
            if said.contains("No such file") {
                said += "; install it (apt-get install libndpi4.2)";
            }
            return Err(error(said));
        }
        Ok(Library {
            module: Arc::new(Module(module)),
        })
    }

    /// Returns the library's version text.
    pub fn version(&self) -> String {
        // SAFETY: the module is open; it ends with zero, and stays as long as the library.
        unsafe { text(shim_version(self.module.0)) }.unwrap_or_default()
    }

    /// Returns the number of known protocols.
    pub fn protocols(&self) -> u16 {
        // SAFETY: the module is open.
        let protocols = unsafe { shim_protocols(self.module.0) };
        u16::try_from(protocols).unwrap_or(u16::MAX)
    }

    /// The name of a protocol.
    pub fn name(&self, protocol: u16) -> Option<String> {
        // SAFETY: the module is open; names end with zero, and stay as long as it.
        unsafe { text(shim_name(self.module.0, protocol)) }
    }

    /// The protocol of that name, in any case.
    pub fn protocol(&self, name: &str) -> Option<u16> {
        let of = |id: &u16| {
            self.name(*id)
                .is_some_and(|known| known.eq_ignore_ascii_case(name))
        };
        (0..self.protocols()).find(of)
    }

    /// Begins with a flow; none if there is no memory.
    pub fn begin(&self) -> Option<Conversation> {
        // SAFETY: the module is open.
        let flow = unsafe { shim_flow_new(self.module.0) };
        (!flow.is_null()).then(|| Conversation {
            flow,
            module: Arc::clone(&self.module),
        })
    }

    /// Shows it a packet, which begins with its IP header, at most 65,535 bytes of it.
    pub fn look(&mut self, at: &mut Conversation, packet: &[u8], time_ms: u64) -> Answer {
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        self.answer(at, |module, flow, answer| {
            // SAFETY: module and flow belong together; the packet has at least `length` bytes.
            unsafe { shim_packet(module, flow, packet.as_ptr(), length, time_ms, answer) }
        })
    }

    /// Returns nDPI's last guess about a flow of which no packet will be shown any more.
    pub fn give_up(&mut self, at: &mut Conversation) -> Answer {
        self.answer(at, |module, flow, answer| {
            // SAFETY: module and flow belong together.
            unsafe { shim_give_up(module, flow, answer) }
        })
    }

    fn answer(
        &mut self,
        at: &mut Conversation,
        ask: impl FnOnce(*mut ShimModule, *mut ShimFlow, *mut ShimAnswer),
    ) -> Answer {
        assert!(
            Arc::ptr_eq(&self.module, &at.module),
            "a flow of another nDPI"
        );
        let mut answer = ShimAnswer {
            master: 0,
            application: 0,
            guessed: 0,
            more: 0,
        };
        ask(self.module.0, at.flow, &raw mut answer);
        Answer {
            application: Application {
                master: answer.master,
                application: answer.application,
            },
            guessed: answer.guessed != 0,
            more: answer.more != 0,
        }
    }
}

/// A copy of the text.
///
/// # Safety
/// The pointer is null, or the text ends with zero.
unsafe fn text(at: *const c_char) -> Option<String> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Answer, Application, LIBRARY, Library};
    use std::process::Command;

    // promise: 15.26
    #[test]
    fn what_is_not_there_is_said() {
        let error = Library::open_file("libndpi.so.there-is-none").expect_err("there is none");
        let error = error.to_string();
        assert!(error.contains("libndpi.so.there-is-none"), "{error}");
        assert!(error.contains("apt-get install libndpi"), "{error}");
        assert!(Library::open_file("a\0b").is_err());
    }

    // promise: 15.26
    #[test]
    fn another_version_is_refused() {
        if Library::open().is_err() {
            println!("SKIPPED another_version_is_refused: {LIBRARY} or its headers are missing");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (source, library) = (folder.path().join("n.c"), folder.path().join("n.so"));
        for (functions, said) in [
            ("", "ndpi_revision"),
            (
                "char *ndpi_revision(void) { return \"9.9.0-1\"; }",
                "nDPI 9.9.0-1",
            ),
            (
                "char *ndpi_revision(void) { return \"4.2.0\"; }",
                "built otherwise",
            ),
        ] {
            let others = [
                "init_detection_module",
                "set_protocol_detection_bitmask2",
                "finalize_initialization",
                "exit_detection_module",
                "get_num_supported_protocols",
                "get_proto_name",
                "flow_malloc",
                "free_flow",
                "detection_process_packet",
                "extra_dissection_possible",
                "detection_giveup",
                "get_api_version",
                "detection_get_sizeof_ndpi_flow_struct",
            ];
            let mut text = functions.to_owned();
            for other in others {
                text += &format!("\nint ndpi_{other}(void) {{ return 1; }}");
            }
            std::fs::write(&source, text).expect("written");
            let compiled = Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .args([&library, &source])
                .status();
            assert!(compiled.expect("it starts").success());
            // Each copy has another name: a library that is loaded stays.
            let own = folder.path().join(format!("{}.so", functions.len()));
            std::fs::rename(&library, &own).expect("renamed");
            let error = Library::open_file(own.to_str().expect("a path")).expect_err("another");
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn a_note_says_what_was_answered() {
        let answer = Answer {
            application: Application {
                master: 91,
                application: 133,
            },
            guessed: true,
            more: false,
        };
        assert_eq!(Answer::of_note(answer.to_note()), Some(answer));
        assert_eq!(Answer::of_note(0), None);
    }

    #[test]
    fn protocols_have_numbers_and_names() {
        let Ok(library) = Library::open() else {
            println!(
                "SKIPPED protocols_have_numbers_and_names: {LIBRARY} or its headers are missing"
            );
            return;
        };
        assert!(
            library.version().starts_with("4.2"),
            "{}",
            library.version()
        );
        assert_eq!(library.name(0).as_deref(), Some("Unknown"));
        let dns = library.protocol("dns").expect("it knows DNS");
        assert_eq!(library.name(dns).as_deref(), Some("DNS"));
        assert_eq!(library.protocol("no such protocol"), None);
        assert_eq!(library.name(u16::MAX), None);
    }
}
